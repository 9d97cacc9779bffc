"""What an administrator can ask about consumer groups, and the answers.

Invariant: as for all messages, tag, order and types are the wire format (docs/protocol.md,
"Administration").
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated, NamedTuple

import msgspec

from samelog.format.names import check_topic_name
from samelog.wire.bounds import LastStart, Message, Partition, Place63, Signed64, Text, Unsigned32

GroupId = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


@unique
class ResetTo(IntEnum):
    """Where a group is set to go on."""

    EARLIEST = 0
    LATEST = 1
    OFFSET = 2
    TIME = 3
    """The first record whose timestamp is `offset`, in ms, or later; the end if there is none."""
    SHIFT = 4
    """By `offset` from where it is, but no further than the log."""


class GroupInfo(NamedTuple):
    """A group; `state` is Kafka's name of it, `protocol_type` is empty if nobody ever joined."""

    group: GroupId
    state: Text
    protocol_type: Text
    protocol: Text
    members: Unsigned32
    generation: Unsigned32


class MemberInfo(NamedTuple):
    """One member; `assignment` is what a member by the classic protocol was given, in its clients'
    own encoding; `partitions` what one by the consumer protocol has.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: bytes
    partitions: tuple[tuple[str, Partition], ...] = ()


class GroupPartition(NamedTuple):
    """What a group committed in a partition, of whose records the offsets [begin, end) are there;
    `committed` is -1 if it never did, `lag` how many records it has not committed.
    """

    topic: Text
    partition: Partition
    begin: Place63
    end: Place63
    committed: LastStart
    lag: Place63
    committed_at_ms: LastStart
    metadata: str


class ListGroups(Message, frozen=True, tag=20):
    """All groups; answered by Groups."""


class DescribeGroup(Message, frozen=True, tag=21):
    """One group; answered by GroupDescription."""

    group: GroupId


class ResetGroup(Message, frozen=True, tag=22):
    """Set a group without members to another place of a topic, in all partitions or one; answered
    by GroupDescription.
    """

    group: GroupId
    topic: str
    partition: Partition | None
    to: ResetTo
    offset: Signed64 = 0

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class Groups(Message, frozen=True, tag=20):
    """All groups."""

    groups: tuple[GroupInfo, ...]


class GroupDescription(Message, frozen=True, tag=21):
    """One group, its members, and where it stands in every partition it committed or subscribes
    to.
    """

    group: GroupInfo
    members: tuple[MemberInfo, ...]
    partitions: tuple[GroupPartition, ...]


GroupRequest = ListGroups | DescribeGroup | ResetGroup
GroupResponse = Groups | GroupDescription
