"""How large consumer groups may be and how long they may take, under Kafka's own names.

Invariant: everything a client can put into the replicated state through a group is bounded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """`group_bytes`: what all members of a group, or all their assignments, may take together: a
    group travels in one Raft entry, and that in one frame between nodes.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 1_000
    group_bytes: int = 2 << 20
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets stay that nobody uses."""
        return self.offsets_retention_minutes * 60_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which field a setting is, and which values make sense."""

    field: str
    least: int
    most: int


SETTINGS: Mapping[str, Bounds] = {
    "group.min.session.timeout.ms": Bounds("min_session_timeout_ms", 1, 1 << 31),
    "group.max.session.timeout.ms": Bounds("max_session_timeout_ms", 1, 1 << 31),
    "group.initial.rebalance.delay.ms": Bounds("initial_rebalance_delay_ms", 0, 1 << 31),
    "group.max.size": Bounds("max_size", 1, 10_000),
    "group.consumer.session.timeout.ms": Bounds("consumer_session_timeout_ms", 100, 1 << 31),
    "group.consumer.heartbeat.interval.ms": Bounds("consumer_heartbeat_interval_ms", 10, 1 << 31),
    "offset.metadata.max.bytes": Bounds("offset_metadata_max_bytes", 0, 4_096),
    "offsets.retention.minutes": Bounds("offsets_retention_minutes", 1, 1 << 31),
    "offsets.retention.check.interval.ms": Bounds(
        "offsets_retention_check_interval_ms", 1, 1 << 31
    ),
}
"""By Kafka's names."""
