"""`samelog node list`, `wait-ready` and `cluster restart-plan`: states in nodes' own words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import structs

from samelog.admin.answers import (
    GroupPlacement,
    NodeAdded,
    NodeInfo,
    NodeState,
    PartitionInfo,
    PlacementStatus,
    Status,
)
from samelog.admin.placement_requests import GetPlacement
from samelog.admin.requests import AddNode, AdminRequest
from samelog.admin.site_answers import SiteInfo, SiteMember, SiteRows
from samelog.admin.site_requests import ListSites
from samelog.cli.main import main
from tests.cli.fake_nodes import Answer, FakeCluster

LIVE = [
    NodeInfo("n0", "h:0", NodeState.LIVE, "", 1, 7, "follower", 0),
    NodeInfo("n1", "h:1", NodeState.LIVE, "", 1, 7, "leader", 1),
    NodeInfo("n2", "h:2", NodeState.LIVE, "", 1, 7, "learner", 2, voter=False),
]
SYNCING: dict[str, Any] = {"state": NodeState.SYNCING, "not_ready": "the node catches up"}
OFFLINE: dict[str, Any] = {"state": NodeState.OFFLINE, "not_ready": "not connected", "role": ""}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Three nodes that say the same of each other: all is well."""
    with FakeCluster(tmp_path) as started:
        for node in started.nodes:
            says(started, node.name)
        yield started


def says(
    cluster: FakeCluster,
    name: str,
    known: Sequence[NodeInfo] = LIVE,
    groups: Sequence[Sequence[str]] = (),
    **of: dict[str, Any],
) -> None:
    """What one node says from now on; `of`: what is different of some members."""
    heard = [structs.replace(each, age_s=0.0 if each.name == name else 0.5) for each in known]
    nodes = tuple(structs.replace(each, **of.get(each.name, {})) for each in heard)
    status = Status("fake", name, "n1", 3, 7, nodes, (), ())
    placed = PlacementStatus(
        tuple(
            GroupPlacement(number, members[0], tuple(members), len(members), {})
            for number, members in enumerate(groups, 1)
        ),
        (),
    )
    next(node for node in cluster.nodes if node.name == name).answer = lambda request: (
        placed if isinstance(request, GetPlacement) else status
    )


def run(cluster: FakeCluster, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--config", cluster.client_file])


def states(cluster: FakeCluster) -> list[str]:
    rows = run(cluster, "node", "list").stdout.splitlines()[1:]
    return [row.split(maxsplit=4)[4] for row in rows]


def test_a_nodes_own_answer_counts_not_what_others_say(cluster: FakeCluster) -> None:
    says(cluster, "n0", n0=SYNCING)
    says(cluster, "n1", n0={"age_s": 0.4}, n2=OFFLINE)
    says(cluster, "n2", n0={"age_s": 0.2}, n1={"age_s": 0.3})
    assert states(cluster) == ["syncing", "live", "live"]


def test_the_youngest_word_counts_and_an_old_one_is_doubted(cluster: FakeCluster) -> None:
    cluster.stop(0)
    says(cluster, "n1", n0={"age_s": 9.0})
    says(cluster, "n2", n0=OFFLINE)
    assert states(cluster)[0] == "live?"
    says(cluster, "n2", n0=SYNCING | {"age_s": 1.0})
    assert states(cluster)[0] == "syncing"


def test_live_and_not_ready_says_why(cluster: FakeCluster) -> None:
    says(cluster, "n0", n0={"not_ready": "no leader is known"})
    assert states(cluster)[0] == "live (not ready: no leader is known)"


def test_waiting_ends_when_the_node_is_ready(cluster: FakeCluster) -> None:
    assert run(cluster, "node", "wait-ready", "n0").exit_code == 0
    syncing = Status("fake", "n0", "n1", 3, 7, (structs.replace(LIVE[0], **SYNCING),), (), ())
    live = structs.replace(syncing, nodes=(LIVE[0],))
    answers = [syncing, syncing]
    cluster.nodes[0].answer = lambda request: answers.pop() if answers else live
    result = run(cluster, "node", "wait-ready", "n0")
    assert (result.exit_code, answers) == (0, [])


@pytest.mark.parametrize("of", [SYNCING, OFFLINE, {"age_s": 6.0}])
def test_waiting_is_given_up_and_says_why(cluster: FakeCluster, of: dict[str, Any]) -> None:
    cluster.stop(0)
    for name in ("n1", "n2"):
        says(cluster, name, n0=of)
    result = run(cluster, "node", "wait-ready", "n0", "--timeout", "0")
    assert result.exit_code == 1
    assert of.get("not_ready", "said nothing for 6 s") in result.stderr


def test_of_a_new_node_it_is_told_how_much_it_has_copied(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, float | None, str]] = []

    @contextmanager
    def waiting(label: str, *, is_bytes: bool) -> Iterator[Callable[..., None]]:
        yield lambda *progress: told.append(progress)

    def partition(topic: str, size: int) -> PartitionInfo:
        return PartitionInfo(topic, 0, 0, size, size, 1, size, 0)

    whole = (partition("a", 700), partition("b", 300))
    new = structs.replace(LIVE[2], address=str(cluster.nodes[2].address), **SYNCING)
    answers = [new, structs.replace(new, voter=True)]

    def leading(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, AddNode):
            return NodeAdded("n2", 2)
        return Status("fake", "n0", "n1", 3, 7, (*LIVE[:2], answers.pop(0)), whole, ())

    own = Status("fake", "n2", "n1", 3, 7, (new,), (partition("a", 420), partition("c", 9)), ())
    cluster.nodes[0].answer, cluster.nodes[2].answer = leading, lambda request: own
    monkeypatch.setattr("samelog.cli.commands.node.waiting", waiting)
    result = run(cluster, "node", "add", "n2", new.address, "--wait", "60")
    assert (result.exit_code, answers) == (0, []), result.output
    assert told[0] == (420, 1000, "n2 syncing")


def test_a_node_of_a_site_that_only_reads_is_waited_for_until_it_is_ready(
    cluster: FakeCluster,
) -> None:
    """It never votes, so that nothing else could end the wait."""
    new = structs.replace(LIVE[2], voter=False, address=str(cluster.nodes[2].address))
    states = [structs.replace(new, **SYNCING), new]
    nyc = SiteInfo("nyc", False, 0, (SiteMember("n2", False, 0, 0),))

    def leading(request: AdminRequest[Any]) -> Answer:
        match request:
            case AddNode():
                return NodeAdded("n2", 2)
            case ListSites():
                return SiteRows((nyc,), ())
            case _:
                now = states.pop(0) if len(states) > 1 else states[0]
                return Status("fake", "n0", "n1", 3, 7, (*LIVE[:2], now), (), ())

    for node in cluster.nodes:
        node.answer = leading
    result = run(cluster, "node", "add", "n2", new.address, "--wait", "60")
    assert result.exit_code == 0, result.output
    assert "ready; its site only reads" in result.stderr
    assert states == [new]


def test_a_node_that_stands_by_is_waited_for_until_it_is_ready(cluster: FakeCluster) -> None:
    """Its host has a voter: it votes once that one does not."""
    new = structs.replace(LIVE[2], address=str(cluster.nodes[2].address), stands_by=True)
    states = [structs.replace(new, **SYNCING), new]

    def leading(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, AddNode):
            return NodeAdded("n2", 2)
        now = states.pop(0) if len(states) > 1 else states[0]
        return Status("fake", "n0", "n1", 3, 7, (*LIVE[:2], now), (), ())

    for node in cluster.nodes:
        node.answer = leading
    result = run(cluster, "node", "add", "n2", new.address, "--wait", "60")
    assert (result.exit_code, states) == (0, [new]), result.output
    assert "ready; it votes once another node does not" in result.stderr


def test_nobody_is_waited_for_who_is_no_member(cluster: FakeCluster) -> None:
    result = run(cluster, "node", "wait-ready", "n9")
    assert (result.exit_code, "no member is called n9" in result.stderr) == (1, True)


def test_the_plan_goes_from_learners_to_the_leader(cluster: FakeCluster) -> None:
    result = run(cluster, "cluster", "restart-plan", "--json")
    plan = json.loads(result.stdout)
    assert (result.exit_code, plan["may_begin"]) == (0, True)
    assert [step["host"] for step in plan["steps"]] == ["n2", "n0", "n1"]
    transfers = ["transfer" in " ".join(step["commands"]) for step in plan["steps"]]
    assert transfers == [False, False, True]
    text = run(cluster, "cluster", "restart-plan").stdout
    assert text.index("wait-ready n2") < text.index("restart samelog-node    # on n0")


def pair(number: int, host: str, role: str = "follower", **of: Any) -> NodeInfo:
    return NodeInfo(
        f"n{number}", f"h:{number}", NodeState.LIVE, "", 1, 7, role, number, host=host, **of
    )


THREE_HOSTS = [
    pair(0, "a"),
    pair(1, "b", "leader"),
    pair(2, "c"),
    pair(3, "a"),
    pair(4, "b"),
    pair(5, "c", "learner", voter=False),
]


def of_hosts(cluster: FakeCluster, *groups: Sequence[str]) -> None:
    for node in cluster.nodes:
        says(cluster, node.name, THREE_HOSTS, groups)


def test_members_are_listed_by_host(cluster: FakeCluster) -> None:
    of_hosts(cluster)
    lines = run(cluster, "node", "list").stdout.splitlines()
    rows = [line.split()[:2] for line in lines]
    assert rows == [["HOST", "NODE"], *(list(each) for each in zip("aabbcc", NAMES, strict=True))]
    found = json.loads(run(cluster, "node", "list", "--json").stdout)
    assert [(each["host"], each["name"]) for each in found] == list(
        zip("aabbcc", NAMES, strict=True)
    )


NAMES = ("n0", "n3", "n1", "n4", "n2", "n5")


def test_the_members_of_a_host_restart_together(cluster: FakeCluster) -> None:
    of_hosts(cluster, ("n0", "n1", "n2"), ("n3", "n4", "n2"), ("n0",))
    result = run(cluster, "cluster", "restart-plan", "--json")
    steps = json.loads(result.stdout)["steps"]
    assert result.exit_code == 0
    assert [step["host"] for step in steps] == ["c", "a", "b"], "the leader's last"
    assert [[node["node"] for node in step["nodes"]] for step in steps] == [
        ["n5", "n2"],
        ["n0", "n3"],
        ["n4", "n1"],
    ]
    assert steps[2]["commands"] == [
        "samelog node maintenance --host b --for 15m",
        "samelog node transfer --from n1",
        "systemctl restart samelog-node@n4 samelog-node@n1    # on b; or kubectl delete pod n4 n1",
        "samelog node wait-ready n4 --timeout 600",
        "samelog node wait-ready n1 --timeout 600",
        "samelog node maintenance --host b --end",
    ]


def test_members_restart_alone_where_a_group_would_lose_its_majority(cluster: FakeCluster) -> None:
    """Group 1 has two of its three replicas on host a: an operator placed them by hand."""
    of_hosts(cluster, ("n0", "n3", "n1"), ("n1", "n2"))
    result = run(cluster, "cluster", "restart-plan", "--json")
    steps = json.loads(result.stdout)["steps"]
    nodes = [[node["node"] for node in step["nodes"]] for step in steps]
    assert nodes == [["n5", "n2"], ["n0"], ["n3"], ["n4", "n1"]]
    assert steps[1]["commands"][0] == "samelog node maintenance n0 --for 15m"
    assert steps[1]["commands"][1].startswith("systemctl restart samelog-node@n0 ")
    text = run(cluster, "cluster", "restart-plan").stdout
    assert text.count("alone, as group 1 would have no majority") == 2


def test_members_of_the_only_host_restart_one_after_the_other(cluster: FakeCluster) -> None:
    for node in cluster.nodes:
        says(cluster, node.name, [structs.replace(each, host="a") for each in LIVE])
    steps = json.loads(run(cluster, "cluster", "restart-plan", "--json").stdout)["steps"]
    assert [[node["node"] for node in step["nodes"]] for step in steps] == [["n2"], ["n0"], ["n1"]]
    assert steps[0]["alone_because"].startswith("group 0 would have no majority")


def replacing(cluster: FakeCluster, nodes: list[NodeInfo]) -> list[AddNode]:
    """What is asked of a cluster in which every node that is added votes at once."""
    added = list[AddNode]()

    def answer(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, AddNode):
            added.append(request)
            nodes[:] = [each for each in nodes if each.name != request.replaces]
            number = 6 + len(added)
            new = structs.replace(pair(number, "d"), name=request.node, address=request.address)
            nodes.append(new)
            return NodeAdded(request.node, number)
        return Status("fake", "n0", "n1", 3, 7, tuple(nodes), (), ())

    for node in cluster.nodes:
        node.answer = answer
    return added


def test_the_nodes_of_a_host_are_replaced_one_after_the_other(cluster: FakeCluster) -> None:
    added = replacing(cluster, nodes := list(THREE_HOSTS))
    words = ("n6", "h:6", "n7", "h:7")
    result = run(cluster, "node", "replace", "--host", "b", *words)
    assert result.exit_code == 0, result.output
    assert [(each.node, each.address, each.replaces) for each in added] == [
        ("n6", "h:6", "n4"),
        ("n7", "h:7", "n1"),
    ], "the leader last"
    assert not [each for each in nodes if each.host == "b"]
    again = run(cluster, "node", "replace", "--host", "b", *words)
    assert (again.exit_code, len(added)) == (0, 2)
    assert "the nodes of b are replaced already" in again.stderr


def test_a_replacement_that_was_interrupted_continues(cluster: FakeCluster) -> None:
    added = replacing(cluster, list(THREE_HOSTS))
    run(cluster, "node", "replace", "n4", "n6", "h:6")
    result = run(cluster, "node", "replace", "--host", "b", "n6", "h:6", "n7", "h:7")
    assert result.exit_code == 0, result.output
    assert [(each.node, each.replaces) for each in added] == [("n6", "n4"), ("n7", "n1")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "x", "n6", "h:6"], "no node is on a host called 'x': the hosts are a, b, c"),
        (["--host", "b", "n6", "h:6"], "b has 2 nodes, n4, n1: name as many new ones, not 1"),
        (["--host", "b", "n0", "h:6", "n7", "h:7"], "n0 at h:0 is a member already"),
        (["--host", "b", "n6"], "name each new node once, with its address"),
        (["--host", "b", "n6", "h:6", "n6", "h:7"], "name each new node once, with its address"),
        (["n1", "n6"], "name OLD, NAME and ADDRESS"),
    ],
)
def test_a_replacement_that_does_not_fit_is_refused(
    cluster: FakeCluster, words: list[str], said: str
) -> None:
    added = replacing(cluster, list(THREE_HOSTS))
    result = run(cluster, "node", "replace", *words)
    assert result.exit_code in (1, 2)
    assert (said in result.stderr, added) == (True, []), result.stderr


def test_a_plan_is_not_begun_while_a_member_is_not_ready(cluster: FakeCluster) -> None:
    says(cluster, "n2", n2=SYNCING)
    result = run(cluster, "cluster", "restart-plan", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["waits_for"] == ["n2: the node catches up"]
    assert "do not begin yet, n2: the node catches up" in result.stderr
