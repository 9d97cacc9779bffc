"""Damage at rest is found and mended while a node runs, in growing and in sealed segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.sequencer.admin.status import trouble
from samelog.sequencer.node import Node
from tests.sequencer.cluster import Session, batch, merged, offset, run_with, until

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
def test_a_damaged_batch_is_mended_from_a_peer(tmp_path: Path, segment: int) -> None:
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


def test_what_nobody_has_is_a_trouble_until_somebody_has_it(tmp_path: Path) -> None:
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


def test_an_undamaged_log_is_left_alone(tmp_path: Path) -> None:
    async def body(nodes: list[Node]) -> None:
        whole = await publish(nodes)
        await nodes[0].care.scrubber.scrub()
        assert merged(nodes[0]) == whole
        assert not list(logs_of(nodes[0])[0].parent.glob("*quarantined*"))

    run_with(tmp_path, 1, body)


def test_a_changed_leader_epoch_is_noticed_in_a_sealed_segment(tmp_path: Path) -> None:
    """No CRC of a batch covers it, the log's running checksum does."""

    async def body(nodes: list[Node]) -> None:
        await publish(nodes)
        spoil(logs_of(nodes[0])[1], 15)
        await nodes[0].care.scrubber.scrub()
        assert "a leader epoch has changed" in trouble(nodes[0])

    run_with(tmp_path, 1, body)
