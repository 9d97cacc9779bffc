"""Archiving by policy with real processes, from the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog import Subscriber, log_history
from samelog.cli.local_cluster import ClusterOptions, LocalCluster
from samelog.subscriber import OffsetOutOfRange
from tests.e2e.commands import as_json, samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

RECORD = b"x" * 30_000


@pytest.fixture
def archiving(tmp_path: Path, starts_nodes: None) -> Iterator[World]:
    """Three nodes with a policy that archives nothing, segments of 64 KiB, rounds every 0.2 s."""
    (tmp_path / "policy.json").write_text('{"time": 0}')
    options = ClusterOptions(segment_bytes=1 << 16)
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.prepare()
        for node in cluster.nodes:
            file = Path(node.config_file)
            text = file.read_text().replace("interval_s = 10.0", "interval_s = 0.2")
            policy = f"policy = {json.dumps(str(tmp_path / 'policy.json'))}"
            file.write_text(text.replace("[archive]", f"[archive]\n{policy}"))
        cluster.start()
        yield World(cluster, tmp_path)


def write(world: World, count: int) -> None:
    with world.publisher("p") as publisher:
        for _ in range(count):
            publisher.append(RECORD)
            publisher.wait_merged(PATIENCE_S)


def sizes(directory: str | Path) -> list[int]:
    """The bytes of every segment."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    return [os.path.getsize(os.path.join(directory, name)) for name in names]


def on_nodes(world: World) -> list[list[int]]:
    return [sizes(os.path.join(node.data, "merged", "t-0")) for node in world.cluster.nodes]


def test_a_changed_policy_archives_everywhere(archiving: World) -> None:
    world, policy = archiving, archiving.directory / "policy.json"
    config = ("--config", world.cluster.client_file)
    write(world, 20)
    world.wait_offset(20)
    with world.subscriber() as subscriber:
        assert len(subscriber.batch(max_records=20, timeout=PATIENCE_S)) > 0
        subscriber.wait_caught_up(PATIENCE_S)
        assert as_json("archive", "plan", *config)["planned"] == []
        policy.write_text('{"time": 0, "limit": "100Ki", "disk": 100}')
        copy = world.directory / "subscribers" / "s" / "t-0"
        wait_for(
            lambda: all(sum(each) <= 100 << 10 for each in [*on_nodes(world), sizes(copy)]),
            "archived on all nodes, and in the copy",
        )
    wait_for(lambda: len({*map(tuple, on_nodes(world))}) == 1, "the same files everywhere")
    assert on_nodes(world)[0][0] == 0
    policy.write_text('{"time": 0, "limit": -3}')

    def complains() -> bool:
        found = as_json("archive", "plan", *config)
        return "limit is -3" in found["problem"] and "102400" in found["policy"]

    wait_for(complains, "the plan says what is wrong, and what counts")
    assert "limit is -3" in samelog("status", *config).stdout
    copies = [os.path.join(node.data) for node in world.cluster.nodes]
    verified = as_json("verify", *copies, str(copy.parent))
    assert verified["verified"]
    assert len({each["checksum"] for each in verified["copies"]}) == 1
    with (
        pytest.raises(OffsetOutOfRange) as caught,
        Subscriber(
            "t",
            directory=str(world.directory / "late"),
            config=world.cluster.client_file,
            start=3,
            auto_offset_reset="error",
        ) as late,
    ):
        late.batch(max_records=1, timeout=PATIENCE_S)
    check_history(world, on_nodes(world)[0])
    assert caught.value.earliest == verified["copies"][0]["start_offset"]


def check_history(world: World, sizes_now: list[int]) -> None:
    """Every file there ever was, from the command line and in Python."""
    found = list(log_history(world.cluster.client_file, "t"))
    archived = [file for file in found if file.archived_ms >= 0]
    assert len(found) == len(sizes_now)
    assert len(archived) == sizes_now.count(0)
    assert [file.size_bytes for file in found if file.archived_ms < 0] == [
        s for s in sizes_now if s
    ]
    assert [file.first_offset for file in found] == [0, *(file.next_offset for file in found[:-1])]
    for file in archived:
        assert (file.reason, len(file.sha256)) == ("limit", 64)
        assert 0 < file.first_ms <= file.last_ms <= file.archived_ms
        assert 0 < file.rolled_ms <= file.archived_ms
        assert file.size_bytes > 0
    config = ("--config", world.cluster.client_file)
    lines = samelog("log-history", "t", *config, "--json").stdout.splitlines()
    assert [json.loads(line)["sha256"] for line in lines] == [file.sha256 for file in found]
    table = samelog("log-history", *config).stdout
    assert f"{0:020d}.log" in table
    unknown = samelog("log-history", "nothing", *config)
    assert (unknown.returncode, "no topic 'nothing'" in unknown.stderr) == (1, True)


def test_settings_of_topics_are_altered(archiving: World) -> None:
    world = archiving
    config = ("--config", world.cluster.client_file)
    write(world, 6)
    altered = as_json("topic", "alter", "t", "--set", "retention.bytes=70000", *config)
    assert altered["settings"] == {"retention.bytes": "70000"}
    wait_for(lambda: all(sum(each) < 140_000 for each in on_nodes(world)), "archived")
    altered = as_json("topic", "alter", "t", "--unset", "retention.bytes", *config)
    assert altered["settings"] == {}
    for bad, reason in (("retention.ms=-2", "retention.ms"), ("retention.days=1", "unknown")):
        refused = samelog("topic", "alter", "t", "--set", bad, *config)
        assert (refused.returncode, reason in refused.stderr) == (1, True)
    nothing = samelog("topic", "alter", "t", *config)
    assert nothing.returncode == 2


def test_a_node_that_was_down_comes_back_to_the_same(archiving: World) -> None:
    """The others archive without it; what went meanwhile it neither has nor needs."""
    world, policy = archiving, archiving.directory / "policy.json"
    write(world, 5)
    world.wait_offset(5)
    away = world.followers()[0]
    there = [n for n, node in enumerate(world.cluster.nodes) if node is not away]
    away.kill()
    policy.write_text('{"time": 0, "limit": "100Ki", "disk": 100}')
    with world.publisher("other", roll_bytes=1 << 17) as publisher:
        for _ in range(40):
            publisher.append(RECORD)
            publisher.wait_merged(PATIENCE_S)  # what is merged at once goes into one segment
    wait_for(
        lambda: all(sum(on_nodes(world)[n]) <= 100 << 10 for n in there), "archived without it"
    )
    away.start()
    world.wait_live(away)
    write(world, 3)
    world.wait_offset(48)

    def is_same() -> bool:
        left = [[size for size in each if size] for each in on_nodes(world)]
        return all(each == left[0] and sum(each) <= 100 << 10 for each in left)

    wait_for(is_same, "the same files everywhere")
    data = [node.data for node in world.cluster.nodes]
    verified = as_json("verify", *data)
    assert verified["verified"]
    assert len({(each["start_offset"], each["checksum"]) for each in verified["copies"]}) == 1
    found = list(log_history(world.cluster.client_file, "t"))
    assert (found[0].first_offset, found[-1].next_offset) == (0, 48)
