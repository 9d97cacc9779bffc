"""What a node answers over HTTP: a real process, asked as operators, probes and strangers would."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given, settings
from prometheus_client.parser import text_string_to_metric_families

from samelog import Publisher, Subscriber
from samelog.admin import client, requests
from samelog.admin.errors import AdminError
from samelog.admin.table import OPERATIONS
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode, free_ports
from samelog.config.values import Address
from samelog.http.metrics.table import COMMON, NODE, PUBLISHER, SIDECAR, SUBSCRIBER
from tests.e2e.harness import wait_for
from tests.http import asking
from tests.http.asking import Answer
from tests.patience import PATIENCE_S

NAME = "rt-sequencer-0"
CLUSTER = ClusterOptions().cluster
RECORDS = 50


def get(node: LocalNode, path: str) -> Any:
    """What a node answers with success."""
    return asking.get(node.http, path)


def ask(node: LocalNode, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """What a node answers."""
    return asking.ask(node.http, method, path, body, **headers)


def post(node: LocalNode, path: str, body: Any) -> Answer:
    """A change."""
    return ask(node, "POST", path, body)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[LocalCluster]:
    """One node, with records of a session in it."""
    directory = tmp_path_factory.mktemp("http")
    with LocalCluster(str(directory / "cluster"), ClusterOptions(nodes=1)) as cluster:
        cluster.start()
        files = str(directory / "publishers")
        with Publisher("t", session="s", config=cluster.client_file, directory=files) as publisher:
            for number in range(RECORDS):
                publisher.append(str(number).encode())
            publisher.wait_merged(PATIENCE_S)
        yield cluster


@pytest.fixture
def node(cluster: LocalCluster) -> LocalNode:
    """That node."""
    return cluster.nodes[0]


def test_probes(node: LocalNode) -> None:
    assert get(node, "/healthz") == {"status": "alive"}
    assert get(node, "/readyz") == {"status": "ready"}


def test_status_is_that_of_the_command_line(node: LocalNode) -> None:
    status = get(node, "/status")
    assert (status["node"], status["leader"]) == (NAME, NAME)
    assert status["nodes"][0]["state"] == "live"
    assert status["partitions"][0]["end_offset"] == RECORDS


def test_topics(node: LocalNode) -> None:
    assert [topic["name"] for topic in get(node, "/topics")["topics"]] == ["t"]
    assert get(node, "/topics/t")["partitions"][0]["committed_offset"] == RECORDS


def session_row(node: LocalNode, session: str) -> Any:
    """What a node says of a session."""
    return {row["session"]: row for row in get(node, "/sessions")["sessions"]}[session]


def is_all_released(row: Any) -> bool:
    """Whether nothing of a session is kept: its end, behind the last record, was released, too."""
    part = row["partitions"][0]
    return bool(part["replicated"] == part["merged"] == part["released"])


def test_sessions_say_who_publishes_and_how_far_it_has_come(
    cluster: LocalCluster, node: LocalNode, tmp_path: Path
) -> None:
    found = session_row(node, "s")
    assert not found["connected"]
    assert not found["is_open"]
    assert found["received_bytes"] > 0
    assert found["last_record_ms"] > 0
    wait_for(lambda: is_all_released(session_row(node, "s")), "its files are released")
    options: dict[str, Any] = {"config": cluster.client_file, "directory": str(tmp_path)}
    rows = client.ask(cluster.client_config(), requests.ListSessions()).sessions
    (own,) = [each for each in rows if each.session == "s"]
    assert own.partitions[0].merged.byte > 0, "clients of samelog can read the answer, too"
    with Publisher("t2", session="twin", dedup_id="d", **options) as publisher:
        publisher.append(b"x", id=7)
        publisher.wait_merged(PATIENCE_S)
        twin = session_row(node, "twin")
        assert twin["connected"]
        assert twin["dedup_id"] == "d"
        known = get(node, "/dedup")["dedup_ids"][0]
        mark = {"topic": "t2", "partition": 0, "watermark": 7}
        assert (known["dedup_id"], known["partitions"]) == ("d", [mark])
        twin = known["publishers"][0]
        assert (twin["session"], twin["connected"], twin["partitions"]) == ("twin", True, [mark])


def test_subscribers(cluster: LocalCluster, node: LocalNode, tmp_path: Path) -> None:
    options: dict[str, Any] = {"config": cluster.client_file, "directory": str(tmp_path)}
    with Subscriber("t", start="earliest", **options) as subscriber:
        wait_for(lambda: bool(subscriber.batch(max_records=1, timeout=0.5)), "a record")
        row = get(node, "/subscribers")["subscribers"][0]
        assert row["identity"] == "samelog://client/local"
        assert row["sent_bytes"] > 0
        assert (row["partitions"][0]["topic"], row["partitions"][0]["lag_bytes"]) == ("t", 0)
    wait_for(lambda: get(node, "/subscribers") == {"subscribers": []}, "it is gone")


def test_positions_and_files(node: LocalNode) -> None:
    [position] = get(node, "/latest-position?topic=t")["positions"]
    assert (position["offset"], position["committed_offset"]) == (RECORDS, RECORDS)
    [file] = get(node, "/log-history?topic=t&partition=0")["files"]
    assert (file["first_offset"], file["next_offset"]) == (0, RECORDS)
    assert file["size_bytes"] == position["byte"]


def test_raft_and_archive(node: LocalNode) -> None:
    raft = get(node, "/raft")
    assert (raft["role"], raft["leader"]) == ("leader", NAME)
    assert raft["members"][0]["match_index"] == raft["last_index"]
    assert get(node, "/archive/plan")["planned"] == []


def test_groups_and_their_reset(cluster: LocalCluster, node: LocalNode) -> None:
    to = {"topic": "t", "to": "offset", "offset": 20}
    answer = post(node, "/groups/g/reset", to)
    assert answer.status == 200
    assert [row["lag"] for row in answer.body["partitions"]] == [RECORDS - 20]
    rows = {row["group"]: row for row in get(node, "/groups")["groups"]}
    assert rows["g"]["lag"] == RECORDS - 20
    assert get(node, "/groups/g")["partitions"][0]["committed"] == 20
    assert post(node, "/groups/g/reset", to | {"offset": 10_000}).status == 422
    for wrong in ({"topic": "t", "to": "offset"}, to | {"to": "latest"}):
        assert post(node, "/groups/g/reset", wrong).status == 400
    assert get(node, "/groups/g")["partitions"][0]["committed"] == 20
    assert ask(node, "GET", "/groups/nobody").status == 404


def test_changes_are_made_and_written_down(node: LocalNode) -> None:
    assert post(node, "/maintenance", {"node": NAME, "seconds": 3600}).status == 200
    assert get(node, "/status")["nodes"][0]["state"] == "maintenance"
    assert post(node, "/maintenance", {"node": NAME, "seconds": 0}).body["until_ms"] == 0
    assert post(node, "/leadership", {"to": NAME}).body == {"leader": NAME}
    assert post(node, "/sessions/s/retire", {"confirm": "s"}).body == {"session": "s"}
    reset = {"hard": False, "reset_id": "r1", "confirm": CLUSTER}
    assert post(node, "/reset", reset).body["topics"] == []
    lines = written_down(node)
    assert sum("POST /maintenance" in line and 'result="done"' in line for line in lines) == 2
    assert any('who="samelog://user/anonymous"' in line and "r1" in line for line in lines)


def written_down(node: LocalNode) -> list[str]:
    """The audit log."""
    return [line for line in Path(node.log_file).read_text().splitlines() if " audit " in line]


def test_changes_by_other_ways_are_written_down_too(cluster: LocalCluster, node: LocalNode) -> None:
    before = len(written_down(node))
    config = cluster.client_config()
    created = client.ask(config, requests.CreateTopic("audited", 1, {}))
    assert created.name == "audited"
    with pytest.raises(AdminError):
        client.ask(config, requests.RetireSession("nobody", confirm="nobody"))
    client.ask(config, requests.ListTopics())
    kafka = AdminClient({"bootstrap.servers": config.kafka_bootstrap})
    for name, result in kafka.create_topics([NewTopic("audited", 1), NewTopic("b", 1)]).items():
        assert (result.exception(20) is None) == (name == "b")
    kafka.delete_topics(["b"])["b"].result(PATIENCE_S)
    kafka.delete_consumer_groups(["nobody"])["nobody"].exception(20)
    kafka.list_topics(timeout=PATIENCE_S)
    found = [
        tuple(re.findall(r'who="(.*?)".* what="(.*?)".* result="(.*?)"', line)[0])
        for line in written_down(node)[before:]
    ]
    own, anonymous = "samelog://client/local", "samelog://user/anonymous"
    assert found == [
        (own, "POST /topics", "done"),
        (own, "POST /sessions/nobody/retire", "failed: no session 'nobody'"),
        (anonymous, "CreateTopics", "failed: topic 'audited' exists already"),
        (anonymous, "DeleteTopics", "done"),
        (anonymous, "DeleteGroups", "failed: group_id_not_found"),
    ]


def values(address: Address | None) -> dict[str, float]:
    """What /metrics has now, by name and labels in the order of their names."""
    text = asking.get(address, "/metrics")
    return {
        f"{s.name}{{{','.join(s.labels.values())}}}" if s.labels else s.name: s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def described(address: Address | None) -> set[str]:
    """Names of the metrics that are described."""
    lines = asking.get(address, "/metrics").splitlines()
    return {line.split()[2] for line in lines if line.startswith("# TYPE samelog_")}


TROUBLES = (
    "samelog_intake_stopped",
    "samelog_divergences_total",
    "samelog_partitions_halted",
    "samelog_partitions_missing_records",
    "samelog_damaged_files",
    "samelog_damaged_inputs",
    "samelog_damaged_replicas",
    "samelog_archive_policy_refused",
    "samelog_archive_copies_failing",
)


def test_every_metric_of_the_table_is_there(node: LocalNode) -> None:
    assert post(node, "/groups/lagging/reset", {"topic": "t", "to": "earliest"}).status == 200
    assert described(node.http) == {metric.name for metric in (*COMMON, *NODE)}
    found = values(node.http)
    assert found["samelog_node_state{live}"] == 1
    assert found["samelog_merged_records_total{0,t}"] == RECORDS
    assert found["samelog_partition_lag_records{0,t}"] == 0
    assert found["samelog_session_received_bytes_total{s}"] > 0
    assert found["samelog_session_received_records_total{s}"] == RECORDS
    assert found["samelog_group_lag_records{lagging,0,t}"] == RECORDS
    assert found[f"samelog_node_lag_records{{{NAME}}}"] == 0
    assert found["samelog_raft_is_leader"] == found["samelog_ready"] == 1
    assert found["samelog_raft_elections_total"] >= 1
    counted = ["append_to_merged", "raft_commit", "event_loop_delay"]
    assert all(found[f"samelog_{name}_seconds_count"] > 0 for name in counted)
    syncs = [found[f"samelog_fsync_seconds_count{{{x}}}"] for x in ("merged", "raft")]
    assert all(syncs)
    assert found["samelog_disk_free_bytes"] > 0
    expiry = found["samelog_tls_certificate_expiry_timestamp_seconds{own}"]
    assert expiry > found["samelog_session_last_received_timestamp_seconds{s}"] > 1e9
    assert {name: found[name] for name in TROUBLES} == dict.fromkeys(TROUBLES, 0)


def test_what_is_read_counts(cluster: LocalCluster, node: LocalNode, tmp_path: Path) -> None:
    before = values(node.http)
    options: dict[str, Any] = {"config": cluster.client_file, "directory": str(tmp_path)}
    with Subscriber("t", start="earliest", **options) as subscriber:
        wait_for(lambda: bool(subscriber.batch(max_records=1, timeout=0.5)), "a record")
        lag = "samelog_subscriber_lag_bytes{0,samelog://client/local,t}"
        wait_for(lambda: values(node.http).get(lag) == 0, "all is sent")
    boot = {"bootstrap.servers": str(node.kafka), "auto.offset.reset": "earliest"}
    consumer = Consumer({**boot, "group.id": "metrics"})
    consumer.subscribe(["t"])
    wait_for(lambda: consumer.poll(1.0) is not None, "a record through Kafka")
    assert values(node.http)["samelog_kafka_connections{local}"] > 0
    consumer.close()
    after = values(node.http)
    for name in ("samelog_sent_bytes_total", "samelog_append_to_read_seconds_count"):
        assert after[name] > before[name]
    sent = "samelog_sent_records_total"
    assert after[sent] - before[sent] >= 2 * RECORDS
    for name in ("requests_total", "received_bytes_total", "sent_bytes_total"):
        assert after[f"samelog_kafka_{name}{{local}}"] > 0
    assert after["samelog_kafka_refused_connections_total{local}"] == 0


@contextmanager
def sidecar(cluster: LocalCluster, directory: Path, *arguments: str) -> Iterator[Address]:
    """A sidecar process, and where it answers HTTP."""
    address = Address("127.0.0.1", *free_ports(1))
    command = [sys.executable, "-m", "samelog", "sidecar", *arguments, "--http", str(address)]
    command += ["--config", cluster.client_file, "--dir", str(directory)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            wait_for(lambda: _is_ready(address), "the sidecar is ready")
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, b"Traceback" in said) == (0, False), said


def _is_ready(address: Address) -> bool:
    try:
        return asking.ask(address, "GET", "/readyz").status == 200
    except OSError:
        return False


def test_a_subscriber_sidecar_says_what_it_has(cluster: LocalCluster, tmp_path: Path) -> None:
    with sidecar(cluster, tmp_path, "subscriber", "--topic", "t") as address:

        def copy() -> dict[str, Any]:
            found: dict[str, Any] = asking.get(address, "/status")["copies"][0]
            return found

        wait_for(lambda: copy()["next_offset"] == RECORDS, "all is copied")
        wait_for(lambda: bool(copy()["caught_up"]), "it has caught up")
        assert (copy()["topic"], copy()["state"], copy()["fault"]) == ("t", "copying", "")
        assert asking.ask(address, "POST", "/status", {}).status == 405
        assert asking.get(address, "/healthz") == {"status": "alive"}
        assert described(address) == {metric.name for metric in (*COMMON, *SIDECAR, *SUBSCRIBER)}
        found = values(address)
        assert found["samelog_sidecar_copied_records_total{0,t}"] == RECORDS
        assert found["samelog_sidecar_copy_lag_records{0,t}"] == 0
        assert found["samelog_sidecar_copy_stopped{0,t}"] == 0
        assert found["samelog_sidecar_connected"] == found["samelog_ready"] == 1
        delays = "samelog_event_loop_delay_seconds_count"
        wait_for(lambda: values(address)[delays] > 0, "the loop's delay is watched")


def test_a_publisher_sidecar_says_what_it_ships(cluster: LocalCluster, tmp_path: Path) -> None:
    options: dict[str, Any] = {"config": cluster.client_file, "directory": str(tmp_path)}
    with sidecar(cluster, tmp_path, "publisher") as address:
        found = asking.get(address, "/status")
        assert found == {"fault": "", "config_problem": "", "not_shipped": {}, "sessions": []}
        with Publisher("t", session="beside", ship=False, **options) as publisher:
            publisher.append(b"x")

            def merged() -> bool:
                sessions = asking.get(address, "/status")["sessions"]
                parts = sessions[0]["partitions"] if sessions else []
                return bool(parts) and parts[0]["merged"]["byte"] > 0

            wait_for(merged, "it is shipped and merged")
        [shipped] = asking.get(address, "/status")["sessions"]
        assert shipped["directory"].endswith("beside")
        assert shipped["nodes"][0]["node"] == NAME
        assert described(address) == {metric.name for metric in (*COMMON, *SIDECAR, *PUBLISHER)}
        found = values(address)
        assert found["samelog_sidecar_sessions"] == 1
        assert found["samelog_sidecar_session_stopped{beside}"] == 0
        assert found["samelog_sidecar_session_connected_nodes{beside}"] == 1
        assert found["samelog_sidecar_held_bytes{beside}"] > 0
        _check_mismatch(cluster, address)


def _check_mismatch(cluster: LocalCluster, address: Address) -> None:
    """A certificate of another key is not taken, and an alarm; the sidecar stays connected."""
    pki = Path(cluster.directory, "pki")
    own, wrong = pki / "client-local.pem", (pki / f"node-{NAME}.pem").read_bytes()
    good = own.read_bytes()

    def is_unusable() -> bool:
        return values(address)["samelog_tls_files_unusable{own}"] == 1

    assert not is_unusable()
    try:
        own.write_bytes(wrong)
        wait_for(is_unusable, "the alarm")
        assert values(address)["samelog_sidecar_session_connected_nodes{beside}"] == 1
    finally:
        own.write_bytes(good)
    wait_for(lambda: not is_unusable(), "all is well again")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/topics/nothing", None, 404),
        ("GET", "/topics/%2e%2e%2fetc", None, 400),
        ("GET", "/latest-position?topic=nothing", None, 404),
        ("GET", "/topics?unknown=1", None, 400),
        ("GET", "/log-history?topic=t&topic=t", None, 400),
        ("GET", "/log-history?partition=-1", None, 400),
        ("GET", "/log-history?from_offset=many", None, 400),
        ("DELETE", "/topics", None, 405),
        ("POST", "/status", {}, 405),
        ("POST", "/maintenance", {"node": NAME}, 400),
        ("POST", "/maintenance", {"node": NAME, "seconds": "1"}, 400),
        ("POST", "/maintenance", {"node": NAME, "seconds": 1, "why": ""}, 400),
        ("POST", "/maintenance", {"node": "nobody", "seconds": 1}, 404),
        ("POST", "/maintenance", [], 400),
        ("POST", "/maintenance?node=x", {"node": NAME, "seconds": 1}, 400),
        ("POST", "/sessions/a/retire", {"session": "b", "confirm": "a"}, 400),
        ("POST", "/sessions/A%20B/retire", {"confirm": "A B"}, 400),
        ("POST", "/leadership", {"to": "nobody"}, 404),
        ("POST", "/maintenance", b"{}", 415),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    node: LocalNode, method: str, path: str, body: Any, status: int
) -> None:
    answer = ask(node, method, path, body)
    assert (answer.status, answer.kind) == (status, "application/problem+json"), answer
    assert answer.body["status"] == status
    assert answer.body["detail"]
    assert "Traceback" not in str(answer.body)


def test_head_is_answered_as_get_without_a_body(node: LocalNode) -> None:
    """RFC 9110, 9.1: a server supports GET and HEAD."""
    paths = [each.path for each in OPERATIONS if each.method == "GET" and "{" not in each.path]
    for path in (*paths, "/topics/t", "/healthz", "/readyz", "/metrics", "/openapi.json", "/ui"):
        head, whole = ask(node, "HEAD", path), ask(node, "GET", path)
        assert (head.status, head.kind, head.body) == (whole.status, whole.kind, ""), path
    assert ask(node, "HEAD", "/ui/events").status == 200, "events that never end"
    assert ask(node, "HEAD", "/maintenance").status == 405
    assert ask(node, "HEAD", "/nothing").status == 404


def test_bodies_are_bounded_and_json(node: LocalNode) -> None:
    kind = {"Content-Type": "application/json"}
    assert ask(node, "POST", "/maintenance", b" " * 100_000, **kind).status == 413
    for bad in (b"{", b"\xff\xfe", b"[" * 50_000, b'{"node": "a\\ud800", "seconds": 1}'):
        assert ask(node, "POST", "/maintenance", bad, **kind).status == 400, bad[:40]


def test_a_page_that_means_another_host_sees_nothing(node: LocalNode) -> None:
    assert ask(node, "GET", "/status", None, Host="evil.example").status == 421
    assert ask(node, "GET", "/status", None, Host="localhost:1234").status == 200


def test_a_request_without_host_is_refused(node: LocalNode) -> None:
    """HTTP/1.0 does not need one; a page of a stranger must not get around the check by that."""
    for version, head in (("1.0", ""), ("1.1", "Host:\r\n"), ("1.0", "Host: evil.example\r\n")):
        assert node.http is not None
        with socket.create_connection(node.http, timeout=PATIENCE_S) as connection:
            line = f"GET /status HTTP/{version}\r\n{head}Connection: close\r\n\r\n"
            connection.sendall(line.encode())
            said = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b" 421 " in said[:20], said[:200]
        assert b"leader" not in said


def test_no_answer_names_versions(node: LocalNode) -> None:
    assert node.http is not None
    for request in (
        b"GET /status HTTP/1.1\r\nHost: localhost\r\n",
        b"BAD\r\n",
        b"GET /no HTTP/1.0\r\n",
    ):
        with socket.create_connection(node.http, timeout=PATIENCE_S) as connection:
            connection.sendall(request + b"Connection: close\r\n\r\n")
            said = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b"\r\nServer: samelog\r\n" in said
        assert b"aiohttp" not in said
        assert b"Python" not in said


def test_what_is_no_http_is_answered(node: LocalNode) -> None:
    assert node.http is not None
    for bad in (b"BAD\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(node.http, timeout=PATIENCE_S) as connection:
            connection.sendall(bad + b"\r\n\r\n")
            said = b"".join(iter(lambda: connection.recv(4096), b""))
        assert b" 400 " in said[:20]
        assert b"application/problem+json" in said
    assert get(node, "/healthz")
    assert "Traceback" not in Path(node.log_file).read_text()


def test_the_description_fits_what_is_answered(node: LocalNode) -> None:
    """Schemathesis asks all that the description allows, and what it does not."""
    import schemathesis
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    assert node.http is not None
    schema = schemathesis.openapi.from_dict(get(node, "/openapi.json"))
    schema.config.base_url = f"http://{node.http}"
    found: list[Any] = list(schema.get_all_operations())
    operations = [result.ok() for result in found]
    assert len(operations) >= 20
    for operation in operations:

        @settings(max_examples=5)
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            if case.path == "/topics" and case.method == "POST":
                case.body["partitions"] = 1
            if case.path.startswith("/stages/"):
                case.body["runs"] = []  # of unknown ones 503 says that they may yet begin
            if case.path == "/reset":
                case.body |= {"hard": False, "confirm": CLUSTER}
            if case.path == "/leadership":
                case.body["to"] = NAME  # there is nobody else to lead
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        check()
    assert "Traceback" not in Path(node.log_file).read_text()


def test_a_topic_gets_more_partitions_and_never_fewer(node: LocalNode) -> None:
    assert post(node, "/topics", {"topic": "grows", "partitions": 2, "settings": {}}).status == 200
    assert post(node, "/topics/grows/partitions", {"partitions": 3}).body["partitions"] == 3
    assert post(node, "/topics/grows/partitions", {"partitions": 3}).status == 200
    refused = post(node, "/topics/grows/partitions", {"partitions": 2})
    assert (refused.status, "has 3 partitions" in str(refused.body)) == (422, True)
    assert post(node, "/topics/nowhere/partitions", {"partitions": 2}).status == 404
