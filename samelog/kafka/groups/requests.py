"""What clients ask the group coordinator and what it answers.

Answers about groups have the field names of Kafka's descriptions, and are sent as they are.
Invariant: nothing here knows of versions or encodings of the Kafka protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from samelog.format.steps import StepWork
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.tables.groups import ConsumerMember


@dataclass(frozen=True, slots=True)
class Caller:
    """Who speaks: a member of a generation, or nobody in particular (-1, "", None)."""

    group: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `fresh_id` is the id that a new member gets; `needs_known_id`: from version 4 on a
    new member first gets its id; `may_skip_assignment`: it understands that answer (version 9).
    """

    caller: Caller
    fresh_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    needs_known_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to JoinGroup; `members` (id, instance id, metadata) are for the leader only."""

    error_code: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup; `assignments` (member id, bytes) are the leader's."""

    caller: Caller
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


class SyncGroupResponse(ResponseBody, frozen=True):
    """The answer to SyncGroup."""

    error_code: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """One partition's offset; `partition` is its cluster-wide number, None if there is none."""

    partition: int | None
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


def _nothing(pattern: str) -> Sequence[str] | None:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBeat:
    """ConsumerGroupHeartbeat; the caller's generation is its epoch: 0 joins, -1 leaves, -2 leaves
    for a while. `topics`, `pattern` and `owned` (partition numbers) are None where nothing has
    changed; `find` gives the topics that a pattern means and the client may read, sorted (None: it
    was not looked for).

    `identity` is that of one of samelog's own subscribers, None if it is none. Only those commit
    with their heartbeats, say that they leave with `leaves`, and when their application asked for
    more (`polled_ms`, by the wall clock; -1: not said).
    """

    caller: Caller
    client_id: str
    client_host: str
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    assignor: str | None = None
    owned: Sequence[int] | None = None
    pattern: str | None = None
    find: Callable[[str], Sequence[str] | None] = _nothing
    identity: str | None = None
    commits: Sequence[OffsetCommit] = ()
    leaves: bool = False
    polled_ms: int = -1


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer; `assigned` (partition numbers) is None where the member knows it."""

    error: ErrorCode
    member_id: str
    epoch: int
    assigned: tuple[int, ...] | None
    message: str | None = None
    not_committed: tuple[int, ...] = ()
    """Partitions of which it committed, and which it has not."""


class DescribedMember(Entity, frozen=True):
    """A member, as DescribeGroups tells it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class Described(Entity, frozen=True):
    """A classic group, as DescribeGroups tells it. One that does not exist is dead, and that is no
    error before version 6.
    """

    group_id: str
    error_code: ErrorCode = ErrorCode.none
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()
    error_message: str | None = None
    authorized_operations: int = -(1 << 31)
    """Told to who asks, by who knows what a client may."""


@dataclass(frozen=True, slots=True)
class DescribedConsumers:
    """A group of the consumer protocol: its members, each with the partitions it is to have."""

    error: ErrorCode
    group: str
    state: str = "Dead"
    epoch: int = 0
    assignor: str = ""
    members: tuple[tuple[ConsumerMember, tuple[int, ...]], ...] = ()


class Listed(Entity, frozen=True):
    """A group, as ListGroups tells it; `group_type` is `classic` or `consumer`."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


AnyAnswer = (
    Joined
    | SyncGroupResponse
    | Beaten
    | ErrorCode
    | tuple[ErrorCode, ...]
    | tuple[int, ...]
    | StepWork[list[Described]]
    | StepWork[list[DescribedConsumers]]
    | StepWork[list[Listed | None]]
)
