"""`samelog topic`, `session` and `status`, against nodes that answer as they are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from samelog.admin import client as admin_client
from samelog.admin.answers import (
    HeldRecords,
    LostToDamage,
    NodeInfo,
    NodeState,
    PartitionInfo,
    SessionDecided,
    SessionInfo,
    SessionRetired,
    Status,
    TopicDescription,
    TopicInfo,
    Topics,
)
from samelog.admin.client import all_statuses, ask, node_status
from samelog.admin.errors import AdminError
from samelog.admin.mirror_requests import ListMirrors
from samelog.admin.requests import (
    AdminRequest,
    ContinueSession,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
    DiscardSession,
    ListTopics,
    RetireSession,
)
from samelog.admin.topic_answers import TopicMade
from samelog.cli.main import main
from samelog.http.routes import HttpProblem, problem_of
from samelog.wire.errors import FaultCode
from samelog.wire.plain import to_json
from tests.cli.fake_nodes import Answer, FakeCluster

FLIGHTS = TopicInfo("flights", "a" * 32, 2, {"segment.bytes": "65536"})
MADE = TopicMade(
    "flights", "a" * 32, 2, {"segment.bytes": "65536"}, retention_ms=60_000, retention_from="policy"
)
PARTITION = PartitionInfo("flights", 0, 0, 120, 110, 2, 4096, 0xABCD, 120, 100)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Three nodes; none answers until told how."""
    with FakeCluster(tmp_path) as started:
        yield started


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "RETRY_S", 0.01)


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what never comes; what comes may take its time."""
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 1.0)


def run(cluster: FakeCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", cluster.client_file])


def run_json(cluster: FakeCluster, *arguments: str) -> Any:
    result = run(cluster, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def not_leader(leader: str = "", address: str = "") -> HttpProblem:
    """What a node says that does not lead."""
    known = {"leader": leader, "leader_address": address}
    return problem_of(FaultCode.NOT_LEADER, "it does not lead", **known)


def answer_all(cluster: FakeCluster, answer: Answer) -> None:
    for node in cluster.nodes:
        node.answer = lambda body: answer


def test_create(cluster: FakeCluster) -> None:
    answer_all(cluster, MADE)
    arguments = ["topic", "create", "flights", "--partitions", "2"]
    created = run_json(cluster, *arguments, "--set", "segment.bytes=65536")
    assert created == to_json(MADE)
    settings = {"segment.bytes": "65536"}
    assert cluster.nodes[0].asked == [CreateTopic("flights", 2, settings)]
    result = run(cluster, *arguments)
    assert result.stdout == ""
    assert "created topic flights with 2" in result.stderr
    assert "archived after 1 minute, by the archiving policy" in " ".join(result.stderr.split())


def test_list_describe_delete(cluster: FakeCluster) -> None:
    answer_all(cluster, Topics((FLIGHTS, structs.replace(FLIGHTS, name="a"))))
    assert [topic["name"] for topic in run_json(cluster, "topic", "list")] == ["a", "flights"]
    assert "segment.bytes=65536" in run(cluster, "topic", "list").stdout
    answer_all(cluster, TopicDescription(FLIGHTS, (PARTITION,)))
    assert run_json(cluster, "topic", "describe", "flights")["partitions"][0]["end_offset"] == 120
    assert "4096" in run(cluster, "topic", "describe", "flights").stdout
    answer_all(cluster, FLIGHTS)
    delete = "topic", "delete", "flights", "--confirm", "flights", "--in-use"
    assert run_json(cluster, *delete)["topic_id"] == FLIGHTS.topic_id
    assert [type(body) for body in cluster.nodes[0].asked] == [
        *(ListTopics, ListTopics, ListMirrors),
        *(DescribeTopic, DescribeTopic),
        DeleteTopic,
    ]


def test_only_in_use_deletes_a_topic_that_is_used(cluster: FakeCluster) -> None:
    delete = "topic", "delete", "flights", "--confirm", "flights"

    def answer(request: AdminRequest[Any]) -> Answer:
        assert isinstance(request, DeleteTopic)
        text = "topic 'flights' is in use by group billing; nothing was changed"
        remedy = "stop them, or set in_use (--in-use)"
        return FLIGHTS if request.in_use else problem_of(FaultCode.TOPIC_IN_USE, text, remedy)

    for node in cluster.nodes:
        node.answer = answer
    result = run(cluster, *delete)
    assert result.exit_code == 1
    assert "is in use by group billing" in result.stderr
    assert "--in-use" in result.stderr
    assert run(cluster, *delete, "--in-use").exit_code == 0


def test_retire_a_session(cluster: FakeCluster) -> None:
    answer_all(cluster, SessionRetired("ewr"))
    retire = "session", "retire", "ewr", "--confirm", "ewr"
    assert run_json(cluster, *retire) == {"session": "ewr"}
    assert "retired session ewr" in run(cluster, *retire).stderr
    assert cluster.nodes[0].asked == [RetireSession("ewr", confirm="ewr")] * 2
    assert run(cluster, "session", "retire", "E/R", "--confirm", "E/R").exit_code == 2


def test_decide_on_held_records(cluster: FakeCluster) -> None:
    answer_all(cluster, SessionDecided("ewr", 70))
    assert run_json(cluster, "session", "continue", "ewr") == {"session": "ewr", "held_bytes": 70}
    discard = "session", "discard", "ewr", "--confirm", "ewr"
    assert "70 held bytes of session ewr are discarded" in run(cluster, *discard).stderr
    assert cluster.nodes[0].asked == [ContinueSession("ewr"), DiscardSession("ewr", confirm="ewr")]


def test_a_refusal_is_one_message_and_asks_nobody_else(cluster: FakeCluster) -> None:
    answer_all(cluster, problem_of(FaultCode.ALREADY_EXISTS, "there is one", "choose another name"))
    result = run(cluster, "topic", "create", "flights")
    assert result.exit_code == 1
    assert result.stderr == "samelog: there is one (choose another name)\n"
    assert cluster.nodes[1].asked == []


@pytest.mark.parametrize(
    "arguments",
    [["create", "a/b"], ["create", "a", "--partitions", "0"], ["create", "a", "--set", "x"]],
)
def test_a_wrong_command_line_asks_nobody(cluster: FakeCluster, arguments: list[str]) -> None:
    assert run(cluster, "topic", *arguments).exit_code == 2
    assert cluster.nodes[0].connections == []


def test_a_dead_node_is_passed_over(cluster: FakeCluster) -> None:
    cluster.stop(0)
    answer_all(cluster, MADE)
    assert ask(cluster.config, CreateTopic("flights", 2, {})) == MADE
    assert len(cluster.nodes[1].asked) == 1


def test_the_hint_to_the_leader_is_followed(cluster: FakeCluster) -> None:
    cluster.nodes[0].answer = lambda body: not_leader("n2", "elsewhere")
    cluster.nodes[2].answer = lambda body: Topics(())
    assert ask(cluster.config, ListTopics()).topics == ()
    assert cluster.nodes[1].asked == []


def test_waits_for_a_leader(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "TIMEOUT_S", 60.0)  # it is the count that ends the wait

    def later(body: AdminRequest[Any]) -> Answer:
        return Topics(()) if len(cluster.nodes[0].asked) > 3 else not_leader()

    not_ready = problem_of(FaultCode.NOT_READY, "starting")
    answer_all(cluster, not_ready)
    cluster.nodes[0].answer = later
    assert ask(cluster.config, ListTopics()).topics == ()


@pytest.mark.usefixtures("short_wait")
def test_gives_up_when_no_leader_comes(cluster: FakeCluster) -> None:
    answer_all(cluster, not_leader())
    with pytest.raises(AdminError, match=r"no node answers: .* knows no leader"):
        ask(cluster.config, ListTopics())


def test_a_change_is_never_asked_for_twice(cluster: FakeCluster) -> None:
    answer_all(cluster, ConnectionError("crashed"))
    with pytest.raises(AdminError, match=r"without response; it may have been done all the same"):
        ask(cluster.config, DeleteTopic("flights", confirm="flights"))
    assert [len(node.asked) for node in cluster.nodes] == [1, 0, 0]


@pytest.mark.usefixtures("short_wait")
def test_a_question_that_only_reads_is_asked_elsewhere(cluster: FakeCluster) -> None:
    answer_all(cluster, Topics((FLIGHTS,)))
    cluster.nodes[0].answer = lambda body: ConnectionError("crashed")
    cluster.nodes[1].answer = lambda body: None
    assert ask(cluster.config, ListTopics()).topics == (FLIGHTS,)
    assert [len(node.asked) for node in cluster.nodes] == [1, 1, 1]


def test_a_node_of_another_name_or_cluster_is_not_asked(cluster: FakeCluster) -> None:
    answer_all(cluster, Topics(()))
    config = replace(cluster.config, node_names=("n2", "n0", "n1"))
    with pytest.raises(AdminError, match="the peer is samelog://node/n0, wanted is"):
        ask(config, ListTopics())
    with pytest.raises(AdminError, match="this is cluster 'fake', not 'other'"):
        ask(replace(cluster.config, cluster="other"), ListTopics())
    assert [node.asked for node in cluster.nodes] == [[], [], []]


def test_an_answer_to_another_question_is_refused(cluster: FakeCluster) -> None:
    answer_all(cluster, FLIGHTS)
    with pytest.raises(
        AdminError, match="did not answer ListTopics: Object missing required field `topics`"
    ):
        ask(cluster.config, ListTopics())


def status_of(name: str, *, commit_index: int = 7, checksum: int = 0xABCD) -> Status:
    """What the node `name` of three says."""
    nodes = tuple(
        NodeInfo(f"n{number}", f"h:{number}", NodeState.LIVE, "", 1, commit_index, "follower")
        for number in range(3)
    )
    partition = structs.replace(PARTITION, checksum=checksum)
    session = SessionInfo("ewr", "samelog://publisher/ewr", 4, is_open=True, unmerged_bytes=512)
    return Status("fake", name, "n1", 3, commit_index, nodes, (partition,), (session,))


def tell_status(cluster: FakeCluster) -> None:
    for index, node in enumerate(cluster.nodes):
        status = status_of(node.name, commit_index=7 + index, checksum=0xABCD + (index == 2))
        node.answer = lambda body, status=status: status  # type: ignore[misc]


def test_sessions_are_listed_with_held_bytes_and_damage(cluster: FakeCluster) -> None:
    status = status_of("n1")
    session = structs.replace(
        status.sessions[0],
        held=(HeldRecords("t", 0, "id", 70), HeldRecords("t", 1, "id", 7)),
        damaged=(LostToDamage("t", 0, 2), LostToDamage("t", 1, 1)),
    )
    answer_all(cluster, structs.replace(status, sessions=(session,)))
    [found] = run_json(cluster, "session", "list")
    assert [each["ranges"] for each in found["damaged"]] == [2, 1]
    title, row = run(cluster, "session", "list").stdout.splitlines()[:2]
    assert row.split()[-3:] == ["512", "77", "3"], title


def test_status_of_one_and_of_all_nodes(cluster: FakeCluster) -> None:
    tell_status(cluster)
    assert node_status(cluster.config, cluster.nodes[1].address).node == "n1"
    cluster.stop(0)
    first, *others = all_statuses(cluster.config)
    assert isinstance(first, AdminError)
    assert [answer.node for answer in others if isinstance(answer, Status)] == ["n1", "n2"]


def test_status_for_programs(cluster: FakeCluster) -> None:
    tell_status(cluster)
    cluster.stop(0)
    found = run_json(cluster, "status")
    assert found["answers"] == 2
    assert found["leader"] == "n1"
    assert [node["state"] for node in found["nodes"]] == ["offline", "live", "live"]
    assert found["nodes"][2]["commit_index"] == 9
    assert found["partitions"][0]["copies"]["n1"] == {"end_offset": 120, "checksum": 0xABCD}
    assert found["sessions"][0]["unmerged_bytes"] == 512


def test_status_for_humans(cluster: FakeCluster) -> None:
    tell_status(cluster)
    text = run(cluster, "status").stdout
    assert "0000abce" in text
    assert "copies differ" in text
    assert "samelog://publisher/ewr" in text


def test_status_fails_only_if_no_node_answers(cluster: FakeCluster) -> None:
    for index in range(3):
        cluster.stop(index)
    result = run(cluster, "status", "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("samelog: no node answers: 127.0.0.1:")


SLOW_TYPE = """
import threading, time, msgspec
from samelog.admin import client

class Inner(msgspec.Struct):
    x: "int if time.sleep(0.2) is None else str"
    y: int = 0

class Slow(msgspec.Struct):
    inner: Inner

def decode():
    assert client._decoder(Slow).decode(b'{"inner": {"x": 1, "y": 2}}').inner.y == 2

threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("decoded")
"""


def test_threads_may_meet_a_type_of_answer_for_the_first_time_at_once() -> None:
    """Without a lock this ends with a segmentation fault."""
    command = [sys.executable, "-c", SLOW_TYPE]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, "decoded\n"), run.stderr


def test_partitions_are_added(cluster: FakeCluster) -> None:
    answer_all(cluster, FLIGHTS)
    result = run(cluster, "topic", "add-partitions", "flights", "2")
    assert (result.exit_code, cluster.nodes[0].asked) == (0, [CreatePartitions("flights", 2)])
    assert "has 2 partitions" in result.stderr


def test_large_topics_are_waited_for_longer() -> None:
    assert admin_client.timeout_of(ListTopics()) == admin_client.TIMEOUT_S
    assert admin_client.timeout_of(CreateTopic("t", 2000, {})) > 4 * admin_client.TIMEOUT_S
    assert admin_client.timeout_of(DeleteTopic("t", confirm="t")) > 4 * admin_client.TIMEOUT_S
