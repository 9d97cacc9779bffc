"""Hosts that went down while nodes ran with `fsync=interval`: who may still elect a leader."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from samelog.config.tables.node import Fsync
from samelog.sequencer.admin.status import trouble
from samelog.sequencer.cluster.node_dir import HostBoot, NodeDirectory, read_record, write_record
from samelog.sequencer.node import Node
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.cluster import RunWith, plain_config, until


def begin(path: Path, host_boot: str, fsync: Fsync = Fsync.INTERVAL) -> NodeDirectory:
    config = plain_config(path, fsync=fsync)
    chance = random.Random()
    return NodeDirectory.open(
        OsFileSystem(), config, bootstrap=True, wall_s=1, chance=chance, host_boot=host_boot
    )


def boot(path: Path, host_boot: str, *, fsync: Fsync = Fsync.INTERVAL, clean: bool = False) -> bool:
    """One life of a node: whether it began in doubt."""
    directory = begin(path, host_boot, fsync)
    doubtful = directory.record.doubtful
    if clean:
        directory.stopped_cleanly()
    directory.close()
    return doubtful


def test_only_an_unclean_end_of_the_host_is_doubtful(tmp_path: Path) -> None:
    assert not boot(tmp_path, "a")
    assert not boot(tmp_path, "a", clean=True)
    assert not boot(tmp_path, "b")
    assert boot(tmp_path, "c")


def test_doubt_lasts_until_it_is_over(tmp_path: Path) -> None:
    boot(tmp_path, "a")
    assert boot(tmp_path, "b", clean=True)
    assert boot(tmp_path, "b", clean=True)
    directory = begin(tmp_path, "", Fsync.ALWAYS)
    directory.is_whole_again()
    directory.close()
    assert not boot(tmp_path, "b")


def test_what_is_synced_before_it_is_acknowledged_is_never_in_doubt(tmp_path: Path) -> None:
    boot(tmp_path, "a", fsync=Fsync.ALWAYS)
    assert not boot(tmp_path, "b", fsync=Fsync.ALWAYS)


def test_a_node_knows_whether_its_host_was_started_since(tmp_path: Path) -> None:
    lost = []
    for host_boot in ("a", "a", "b", "b", "", "b"):
        directory = begin(tmp_path, host_boot, Fsync.ALWAYS)
        lost.append(directory.lost_power)
        directory.has_compared_bytes()
        directory.close()
    assert lost == [True, False, True, False, True, True]


def test_a_start_that_ends_early_leaves_the_loss_to_the_next_one(tmp_path: Path) -> None:
    """It would take what was lost for rot of acknowledged bytes."""
    lost = []
    for host_boot, compares in (("a", True), ("b", False), ("b", True), ("b", False)):
        directory = begin(tmp_path, host_boot, Fsync.ALWAYS)
        lost.append(directory.lost_power)
        if compares:
            directory.has_compared_bytes()
        directory.close()
    assert lost == [True, True, True, False]
    directory = begin(tmp_path, "b", Fsync.ALWAYS)
    directory.has_lost_writes()
    directory.has_compared_bytes()
    directory.close()
    again = begin(tmp_path, "b", Fsync.ALWAYS)
    assert again.lost_power, "what was written since may be gone"
    again.close()


def test_a_failed_sync_is_as_a_loss_of_power_to_the_next_life(tmp_path: Path) -> None:
    """What it lost looked like rot of acknowledged bytes, and entries that name it were kept and
    acknowledged (world 880000673).
    """
    boot(tmp_path, "a")
    directory = begin(tmp_path, "a", Fsync.INTERVAL)
    directory.has_lost_writes()
    directory.close()
    after = begin(tmp_path, "a", Fsync.INTERVAL)
    assert (after.lost_power, after.record.doubtful) == (True, True)
    after.has_compared_bytes()
    after.close()
    again = begin(tmp_path, "a", Fsync.INTERVAL)
    assert not again.lost_power
    again.close()


def lose_power(path: Path, numbers: Iterable[int]) -> None:
    """What a node finds when its host went down in a life with fsync=interval."""
    for number in numbers:
        data = str(path / f"rt-sequencer-{number}" / "data")
        record = read_record(OsFileSystem(), data)
        write_record(OsFileSystem(), data, replace(record, host=HostBoot("another boot", True)))


async def nothing(nodes: list[Node]) -> None:
    """A life in which nothing happens."""


def test_doubt_of_a_minority_passes_without_a_word(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await until(lambda: not nodes[2].member.directory.record.doubtful, "no doubt is left")
        assert nodes[0].raft.replica.machine.state.events.remembered == []

    run_with(tmp_path, 3, nothing)
    lose_power(tmp_path, [2])
    run_with(tmp_path, 3, body)


def test_doubt_of_all_is_over_when_all_have_voted_and_leaves_a_record(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await until(
            lambda: not any(node.member.directory.record.doubtful for node in nodes), "no doubt"
        )
        events = nodes[0].raft.replica.machine.state.events.remembered
        await until(lambda: [event.kind for event in events] == ["possible-loss"], "the event")
        assert trouble(nodes[0]) == ""

    run_with(tmp_path, 3, nothing)
    lose_power(tmp_path, range(3))
    run_with(tmp_path, 3, body)
