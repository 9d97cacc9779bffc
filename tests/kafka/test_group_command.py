"""`samelog group` against a real cluster, as an operator types it."""

from __future__ import annotations

from contextlib import ExitStack

from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.http import asking
from tests.kafka.test_groups import Member
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S


def joined_at_the_leader(world: World, stack: ExitStack) -> Member:
    """A member of a group; at another node, when leadership has moved meanwhile."""
    members: list[Member] = []

    def joins() -> bool:
        kafka = world.leader().kafka
        assert kafka is not None
        members.append(Member(stack.enter_context(Wire(kafka))))
        members[-1].session_timeout_ms = 120_000  # it sends no heartbeats while commands run
        return bool(members[-1].try_join().error_code == 0)

    wait_for(joins, "a member joins at the leader")
    return members[-1]


def _check_lag_before_the_first_commit(world: World, group: str, member: str) -> None:
    """Every place that shows lag counts the assigned partition from its first record on."""
    config = ("--config", world.cluster.client_file)
    assert [each["lag"] for each in as_json("group", "list", *config)] == [20]
    [partition] = as_json("group", "describe", group, *config)["partitions"]
    shown = [partition[key] for key in ("topic", "begin", "end", "committed", "lag", "member_id")]
    assert shown == ["flights", 0, 20, None, 20, member]
    [top] = as_json("top", "--once", *config)["groups"]
    assert top["lag_records"] == 20
    for node in world.cluster.nodes:
        found = asking.get(node.http, f"/groups/{group}")
        assert found["members"][0]["partitions"] == [["flights", 0]]
        assert [(each["committed"], each["lag"]) for each in found["partitions"]] == [(-1, 20)]
        metric = f'samelog_group_lag_records{{group="{group}",partition="0",topic="flights"}} 20.0'
        assert metric in asking.get(node.http, "/metrics")


def test_a_group_is_listed_described_and_reset(world: World) -> None:
    config = ("--config", world.cluster.client_file)
    with world.publisher("s", "flights") as publisher:
        for number in range(20):
            publisher.append(str(number).encode(), timestamp=1_700_000_000_000 + 1000 * number)
        publisher.wait_merged(timeout=PATIENCE_S)
    with ExitStack() as stack:
        member = joined_at_the_leader(world, stack)
        assigned = b"\0\1\0\0\0\1\0\x07flights\0\0\0\1\0\0\0\0\0\0\0\0"
        mine = [{"member_id": member.member_id, "assignment": assigned}]
        member.ask(14, 0, {"assignments": mine})
        _check_lag_before_the_first_commit(world, member.group, member.member_id)
        assert member.commit(5, topic="flights", partition=0) == 0

        listed = as_json("group", "list", *config)
        assert [(each["group"], each["state"]) for each in listed] == [(member.group, "Stable")]
        found = as_json("group", "describe", member.group, *config)
        [partition] = found["partitions"]
        shown = [partition[key] for key in ("topic", "begin", "end", "committed", "lag")]
        assert shown == ["flights", 0, 20, 5, 15]
        assert partition["member_id"] == member.member_id
        assert found["members"][0]["partitions"] == [["flights", 0]]

        reset = ("group", "reset", member.group, "--topic", "flights", *config, "--to")
        refused = samelog(*reset, "latest")
        assert refused.returncode == 1
        assert "has members" in refused.stderr
        member.ask(13, 0, {})
        assert as_json(*reset, "latest")["partitions"][0]["lag"] == 0
        assert as_json(*reset, "7")["partitions"][0]["committed"] == 7
        assert "0 to 20" in samelog(*reset, "21").stderr
        where = reset[:-1]

        def moved(*options: str) -> int:
            found: int = as_json(*where, *options)["partitions"][0]["committed"]
            return found

        assert moved("--shift-by", "-3") == 4
        assert moved("--shift-by", "100") == 20
        assert moved("--to-datetime", "2023-11-14T22:13:25") == 5
        assert moved("--to-datetime", "2023-11-14T23:13:25.500+01:00") == 6
        assert moved("--to-datetime", "2030-01-01") == 20
        assert samelog(*where).returncode == 2
        assert samelog(*where, "--to", "3", "--shift-by", "1").returncode == 2
        assert samelog(*where, "--to-datetime", "soon").returncode == 2
        table = samelog(*reset, "earliest").stdout.splitlines()
        assert table[-1].split() == ["flights", "0", "0", "20", "0", "20"]
    assert "no group 'x'" in samelog("group", "describe", "x", *config).stderr
    assert (
        "no topic 'x'"
        in samelog("group", "reset", "g", "--topic", "x", "--to", "3", *config).stderr
    )
    fresh = ("group", "reset", "fresh", "--topic", "flights", "--shift-by", "1", *config)
    assert "committed nothing" in samelog(*fresh).stderr
    assert samelog(*reset, "sometime").returncode == 2
