"""How large groups may be and how long they may take, under Kafka's own names.

Invariant: everything a client can put into the replicated state through a group is bounded here.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP_ID_MAX = 1024
NEW_MEMBER_TIMEOUT_S = 300.0
"""How long a member that waits for its first generation is kept (Kafka's NewMemberJoinTimeoutMs)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """`group_bytes`: what all members' metadata, or all assignments, of a group may take together,
    because they travel in one Raft entry.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 1_000
    group_bytes: int = 8 << 20
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets stay that nobody uses."""
        return self.offsets_retention_minutes * 60_000
