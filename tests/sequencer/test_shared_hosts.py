"""A member that shares its host takes its share of the host's memory and disk."""

from __future__ import annotations

from pathlib import Path

from samelog.config.tables.node import ConnectionLimits, NodePlaces, Quotas
from samelog.sequencer.node import Node
from tests.sequencer.cluster import InLoop, make_node

MIB = 1 << 20


def test_budgets_are_divided_and_thresholds_are_not(tmp_path: Path, in_loop: InLoop) -> None:
    limits = ConnectionLimits(tail_bytes=64 * MIB, session_memory_bytes=8 * MIB)
    quotas = Quotas(unmerged_bytes=100 * MIB)

    async def main() -> None:
        whole, half = (
            make_node(
                tmp_path / f"{members}",
                1,
                0,
                place=NodePlaces(members_on_host=members),
                limits=limits,
                quotas=quotas,
                disk_stop_percent=90,
            )
            for members in (1, 2)
        )
        assert budgets(half) == [size // 2 for size in budgets(whole)]
        assert budgets(whole)[:3] == [64 * MIB, 8 * MIB, 100 * MIB]
        for node in (whole, half):
            node.group_replica.disk_measured(8_000, 10_000)
            assert node.logs.intake.stopped is None
            node.group_replica.disk_measured(9_100, 10_000)
            assert node.logs.intake.stopped
        assert not whole.member.shares.is_shared
        assert half.member.shares.is_shared

    in_loop(main())


def budgets(node: Node) -> list[int]:
    member = node.member
    return [
        member.memory.tails.limit_bytes,
        member.memory.sessions.limit_bytes,
        member.quotas.unmerged_limit,
        node.care.compactor._parts.memory_bytes,
    ]
