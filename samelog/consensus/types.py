"""The values that cross the border of the consensus core.

They are msgspec structs because the same objects are held in the log, sent to peers and written to
disk.

Invariant: values are never changed after they were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

import msgspec

NodeId = int
SaveToken = int

MAX_NUMBER = 2**62
"""Terms, indexes and counters stay below: no sum of two of them passes a signed 64-bit integer."""
MAX_U32 = (1 << 32) - 1
NO_NODE = MAX_U32
"""On disk: nobody, where a node's number stands."""
MAX_NODE_ID = MAX_U32 - 1
"""No number is used twice in the life of a group: a new member must not inherit votes."""
ENTRY_OVERHEAD_BYTES = 32
"""What an entry is taken to cost beside its data, in messages and in memory."""

Number = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
NodeNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_NODE_ID)]


class Role(Enum):
    """What a node is in its term. A learner is a follower that never becomes anything else."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One entry of the replicated log; `data == b""` is the no-op of an election."""

    index: Number
    term: Number
    data: bytes


class HardState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node must never forget: its term and its vote in it. `commit` may lag behind the
    truth.
    """

    term: int
    vote: int | None
    commit: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine's state after entry `last_index`, and the membership at that point.

    With empty `data` it is a mark only: it says where the log begins and cannot be sent to anybody.
    """

    last_index: int
    last_term: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class FileOwner:
    """Whose a file of the log or a snapshot is; all numbers are u32.

    `replica` numbers the replicas that a group has ever had; 0 until there are several groups.
    """

    cluster: str
    group: int
    node: int
    replica: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Times in seconds, sizes in bytes. Raises ValueError for values that cannot work."""

    heartbeat_s: float = 0.1
    election_timeout_s: float = 0.4
    """Drawn from [1, 2) times this value for each wait, more while a node is late itself. A
    node's configuration says another one."""
    max_append_bytes: int = 60 << 10
    """A message with an entry that is longer is the only one under way to a follower: such messages
    take another way (docs/protocol.md, bulk), and what follows must not come before them."""
    max_inflight: int = 64
    """Append messages under way to one follower."""
    snapshot_chunk_bytes: int = 256 << 10
    max_uncommitted_bytes: int = 64 << 20
    hold_back_s: float = 1.0
    """So long entries are kept that wait for bytes; then the leader has to send them again."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.election_timeout_s:
            raise ValueError("heartbeat_s must be above 0 and below election_timeout_s")
        sizes = (
            self.max_append_bytes,
            self.max_inflight,
            self.snapshot_chunk_bytes,
            self.max_uncommitted_bytes,
        )
        if min(sizes) < 1:
            raise ValueError("sizes and counts must be at least 1")
