"""Damage at rest is found and mended while a node runs, in growing and in sealed segments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from samelog.config.tables.node import Scrub
from samelog.format.directory_files import ScrubFile, encode_directory_file
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import ManualClock
from samelog.sequencer.admin.status import trouble
from samelog.sequencer.cluster.scrubber import Scrubber, ScrubPace
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.node import Node
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import write_json_file
from samelog.store.merged.log import MergedLog
from samelog.store.merged.scrub import check_piece
from tests.sequencer.cluster import RunWith, Session, batch, merged, offset, taken, until
from tests.sequencer.test_closed_parts import opened
from tests.sequencer.test_data_groups import led, make_groups, place

T = TypeVar("T")
COUNT = 30


async def publish(nodes: list[Node]) -> bytes:
    """Some batches of 1,000 bytes, in three segments; the merged bytes."""
    session = Session("a")
    for number in range(COUNT):
        if number in (10, 20):
            for node in nodes:
                node.logs.merging.partitions[1].log.roll()
        await session.send(nodes, batch(bytes([number]) * 1_000))
        if number in (9, 19, 29):
            await until(lambda: {offset(node) for node in nodes} == {number + 1}, "merged")  # noqa: B023
    return merged(nodes[0])


def logs_of(node: Node) -> list[Path]:
    """A node's segments, in order."""
    return sorted(Path(node.member.config.data, "merged", "t-0").glob("*.log"))


def spoil(file: Path, *positions: int) -> None:
    data = bytearray(file.read_bytes())
    for position in positions:
        data[position] ^= 1
    with file.open("r+b") as same:  # the file stays the one that is open
        same.write(data)


@pytest.mark.parametrize("segment", [0, 1, 2])
def test_a_damaged_batch_is_mended_from_a_peer(
    tmp_path: Path, segment: int, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        whole = await publish(nodes)
        size = len(whole) // COUNT
        file = logs_of(nodes[0])[segment]
        spoil(file, 100, 3 * size + 7, 9 * size + 16, 9 * size + 20)  # bytes, an offset, a magic
        assert merged(nodes[0]) != whole
        await nodes[0].care.scrubber.scrub()
        assert merged(nodes[0]) == whole
        assert trouble(nodes[0]) == ""
        assert len(list(file.parent.glob("*quarantined*"))) == 3

    run_with(tmp_path, 3, body)


def test_what_nobody_has_is_a_trouble_until_somebody_has_it(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        whole = await publish(nodes)
        size = len(whole) // COUNT
        spoil(logs_of(nodes[0])[0], 4 * size + 100)
        for node in nodes[1:]:
            spoil(logs_of(node)[0], 4 * size + 300)
        await nodes[0].care.scrubber.scrub()
        assert f"at byte {4 * size}" in trouble(nodes[0])
        spoil(logs_of(nodes[2])[0], 4 * size + 300)  # right again
        await nodes[0].care.scrubber.scrub()
        assert trouble(nodes[0]) == ""
        assert merged(nodes[0]) == whole

    run_with(tmp_path, 3, body)


def test_an_undamaged_log_is_left_alone(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        whole = await publish(nodes)
        await nodes[0].care.scrubber.scrub()
        assert merged(nodes[0]) == whole
        assert not list(logs_of(nodes[0])[0].parent.glob("*quarantined*"))

    run_with(tmp_path, 1, body)


def test_a_changed_leader_epoch_is_noticed_in_a_sealed_segment(
    tmp_path: Path, run_with: RunWith
) -> None:
    """No CRC of a batch covers it, the log's running checksum does."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes)
        spoil(logs_of(nodes[0])[1], 15)
        await nodes[0].care.scrubber.scrub()
        assert "a leader epoch has changed" in trouble(nodes[0])

    run_with(tmp_path, 1, body)


class OneThread:
    """Runs what may wait for a disk at once, and counts the segments' pieces that are read."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    async def __call__(self, work: Callable[..., T], /, *arguments: Any) -> T:
        if work is check_piece:
            self.pieces.append(arguments[1])
        return work(*arguments)


def scrubber_of(node: Node, clock: ManualClock, read: OneThread) -> Scrubber:
    """Another scrubber of a node, as after a restart; one GB/s, every 100 s."""
    return Scrubber(
        OsFileSystem(),
        node.logs.merging,
        node.logs.repair.pieces,
        path=str(Path(node.member.config.data, "kept.json")),
        pace=ScrubPace(Scrub(bytes_per_s=1 << 30, interval_s=100)),
        in_thread=read,
        clock=clock,
        at_work=AtWork(),
    )


async def starts_a_round(node: Node, clock: ManualClock) -> bool:
    """Whether a node that begins now reads its segments at once."""
    read = OneThread()
    running = asyncio.ensure_future(scrubber_of(node, clock, read).run())
    for _ in range(100):  # all that happens before it sleeps happens in these turns
        await asyncio.sleep(0)
    running.cancel()
    return bool(read.pieces)


def test_when_it_was_done_last_is_kept_across_restarts(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes)
        clock = ManualClock(now=0.0, wall_ms=1_000_000)
        assert not await starts_a_round(nodes[0], clock)
        clock.advance(60.0)
        assert not await starts_a_round(nodes[0], clock)
        clock.advance(60.0)
        assert await starts_a_round(nodes[0], clock)
        await scrubber_of(nodes[0], clock, OneThread()).scrub()
        assert not await starts_a_round(nodes[0], clock)

    run_with(tmp_path, 1, body)


def test_a_round_goes_on_behind_the_last_segment_that_was_read(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes)
        clock, read = ManualClock(now=0.0, wall_ms=1_000_000), OneThread()
        scrubber = scrubber_of(nodes[0], clock, read)
        kept = ScrubFile(done_ms=1_000_000, partition=1, base_offset=10)
        write_json_file(OsFileSystem(), scrubber._path, kept)
        assert await starts_a_round(nodes[0], clock)
        write_json_file(OsFileSystem(), scrubber._path, kept)
        await scrubber.scrub()
        assert {Path(path) for path in read.pieces} == set(logs_of(nodes[0])[2:])
        assert not await starts_a_round(nodes[0], clock)

    run_with(tmp_path, 1, body)


def test_a_round_begins_at_once_where_a_bit_of_the_progress_has_turned(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await publish(nodes)
        clock = ManualClock(now=0.0, wall_ms=1_000_000)
        scrubber = scrubber_of(nodes[0], clock, OneThread())
        data = encode_directory_file(ScrubFile(done_ms=1_000_000))
        turned = data.replace(b"1000000", b"3000000")
        OsFileSystem().write_atomically(scrubber._path, turned)
        assert await starts_a_round(nodes[0], clock)

    run_with(tmp_path, 1, body)


def test_a_segment_that_a_reader_complains_of_is_looked_at_without_a_wait(
    tmp_path: Path, run_with: RunWith
) -> None:
    """A node's own scrubber: its next round is a day away."""

    async def body(nodes: list[Node]) -> None:
        whole = await publish(nodes)
        size = len(whole) // COUNT
        spoil(logs_of(nodes[0])[1], size + 100)
        nodes[0].logs.merging.partitions[1].suspect(10)
        await until(lambda: merged(nodes[0]) == whole, "mended")
        assert nodes[0].logs.merging.partitions[1].suspects == set()

    run_with(tmp_path, 3, body)


def test_all_replicas_of_a_member_are_read_at_one_rate() -> None:
    pace = ScrubPace(Scrub(bytes_per_s=1000, interval_s=1))
    assert [pace.spend(500, now) for now in (0.0, 0.0, 0.25)] == [0.5, 1.0, 1.25]


async def write_to_group(nodes: list[Node]) -> list[MergedLog]:
    """Batches in a partition of a data group: the copies of its log."""
    states = [n.data_groups.replicas[1].group_replica.logs.machine.state for n in nodes]
    await until(lambda: all("f" * 32 in state.topics.by_id for state in states), "the topic")
    intakes = [
        RoutedIntake(n.logs.intake, n.logs.machine, n.data_groups, n.peers.presence) for n in nodes
    ]
    inputs = [await opened(intake, 0) for intake in intakes]
    byte = 0
    for number in range(COUNT):
        data = batch(bytes([number]) * 1_000)
        for intake, each in zip(intakes, inputs, strict=True):
            await taken(intake.append(each.input, 0, 0, byte, data))
        byte += len(data)
    number = nodes[0].cluster.topics.by_id["f" * 32].partition_numbers[0]
    opened_here = [n.data_groups.replicas[1].group_replica.logs.merging.partitions for n in nodes]
    await until(lambda: all(number in each for each in opened_here), "opened")
    logs = [each[number].log for each in opened_here]
    await until(lambda: all(log.next_offset == COUNT for log in logs), "merged")
    return logs


def test_damage_in_a_data_group_is_mended_from_its_members(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0, 1, 2])
        await until(lambda: led(nodes, 1) == [nodes[0]], "led")
        await place(nodes[0], 1)
        logs = await write_to_group(nodes)
        files = [Path(log.path, f"{0:020d}.log") for log in logs]
        assert files[2].is_relative_to(Path(nodes[2].member.config.data, "groups", "1"))
        size = len(logs[2].read(0, 0, 1 << 20))
        whole = files[2].read_bytes()[:size]
        scrubber = nodes[2].data_groups.replicas[1].group_replica.care.scrubber
        spoil(files[2], 100, size // 2)
        await scrubber.scrub()
        assert files[2].read_bytes()[:size] == whole
        assert not list(scrubber.troubles)
        for file in files:
            spoil(file, 100)
        await scrubber.scrub()
        assert len(list(scrubber.troubles)) == 1

    run_with(tmp_path, 3, body)
