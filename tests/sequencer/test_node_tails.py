"""A node keeps the newest bytes of its logs in memory, if it is told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.config.tables.node import ConnectionLimits
from tests.sequencer.cluster import InLoop, Session, batch, make_node, offset, until

LIMIT = 1 << 20


@pytest.mark.parametrize(("limit", "is_kept"), [(LIMIT, True), (0, False)])
def test_readers_that_are_current_are_served_from_memory(
    tmp_path: Path, limit: int, is_kept: bool, in_loop: InLoop
) -> None:
    async def main() -> None:
        node = make_node(tmp_path, 1, 0, limits=ConnectionLimits(tail_bytes=limit))
        await node.start()
        await until(lambda: node.member.status.state is NodeState.LIVE, "Live")
        await Session("a").send([node], batch(b"1", b"2"))
        await until(lambda: offset(node) == 2, "2 records")
        (partition,) = node.logs.merging.partitions.values()
        whole = partition.log.read(0, 0, LIMIT)
        assert len(whole) == partition.log.end()[1]
        tails = node.member.memory.tails
        assert bool(tails.reads) is is_kept
        assert bool(tails.held_bytes) is is_kept
        assert tails.held_bytes <= limit
        await node.stop()

    in_loop(main())
