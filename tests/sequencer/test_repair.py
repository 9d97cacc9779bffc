"""What is damaged on every node comes back, batch by batch, as long as one node has it."""

from __future__ import annotations

from pathlib import Path

from samelog.sequencer.node import Node
from tests.sequencer.cluster import Session, batch, merged, offset, run_with, until


def test_damage_on_all_nodes_in_different_places_costs_nothing(tmp_path: Path) -> None:
    count = 30

    async def write(nodes: list[Node]) -> None:
        session = Session("a")
        for number in range(count):
            await session.send(nodes, batch(bytes([number]) * 1_000))
            await until(lambda number=number: offset(nodes[0]) == number + 1, "merged")  # type: ignore[misc]
        await until(lambda: all(offset(node) == count for node in nodes), "merged everywhere")
        whole.append(merged(nodes[0]))
        for node in nodes:  # so that nothing is merged again from session bytes
            await node.raft.snapshotter.take()

    async def read(nodes: list[Node]) -> None:
        await until(lambda: all(offset(node) == count for node in nodes), "all is back")
        assert {merged(node) for node in nodes} == set(whole)

    whole: list[bytes] = []
    run_with(tmp_path, 3, write)
    size = len(whole[0]) // count
    logs = sorted(tmp_path.glob("*/data/merged/t-0/*.log"))
    assert len(logs) == 3
    for number, log in enumerate(logs):
        spoilt = bytearray(log.read_bytes())
        spoilt[(5 + 7 * number) * size + 100] ^= 1
        log.write_bytes(spoilt)
        (log.parent / "marks").unlink()
    run_with(tmp_path, 3, read)
