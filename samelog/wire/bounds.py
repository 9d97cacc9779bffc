"""The types of fields on the wire, with their bounds; and the base of all messages.

Invariant: a decoded field is within its bounds, so no reader has to check a number or a text
again.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

import msgspec

from samelog.format import numbers
from samelog.format.names import check_session_name, check_topic_name

MAX_UNSIGNED_32 = (1 << 32) - 1
MAX_SIGNED_64 = (1 << 63) - 1
METADATA_GROUP = 0
"""The group that every member belongs to."""

Handle = Annotated[int, msgspec.Meta(ge=0, le=MAX_UNSIGNED_32)]
"""Number that the client of a connection gives to what it opens; its own from then on."""
ChannelNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_UNSIGNED_32)]
"""Number that the client of a connection gives to one of the conversations that share it."""
Place63 = Annotated[int, msgspec.Meta(ge=0, le=MAX_SIGNED_64)]
"""A file number, a byte position, an offset: anything that counts up from 0."""
Signed64 = Annotated[int, msgspec.Meta(ge=-MAX_SIGNED_64 - 1, le=MAX_SIGNED_64)]
LastStart = Annotated[int, msgspec.Meta(ge=-1, le=MAX_SIGNED_64)]
Unsigned32 = numbers.Unsigned32
Partition = numbers.PartitionIndex
Identifier = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z-]{1,64}\Z")]
"""A random id: of a run, a session's directory, a topic."""
OptionalIdentifier = Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z-]{0,64}\Z")]
UNDECIDED = "-"
"""A cluster's id that is named by an entry which may yet be replaced."""
LIVES_TOLD = 64
"""How many of the lives before this one a node remembers."""
REPLICAS_TOLD = 20_000
"""Replicas in one introduction, which has to fit a frame."""
Text = Annotated[str, msgspec.Meta(max_length=1024)]
"""Words for a human; whoever logs or shows them escapes them."""
TEXT_LIMIT_CHARACTERS = 1000
"""What is longer is cut: below what a `Text` may hold."""
ShortText = Annotated[str, msgspec.Meta(max_length=256)]

FilterText = Annotated[str, msgspec.Meta(max_length=8192)]
ColumnName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Message(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="tag"
):
    """Base of all messages: a MessagePack array of the tag and the fields in their order."""

    needs: ClassVar[int] = 1
    """The feature level that a cluster must have before its members send this to each other."""


class Health(NamedTuple):
    """A node's disk, less what is archived and not truncated yet, its wall clock, and its archiving
    policy as text (empty: none).
    """

    disk_used: Place63
    disk_total: Place63
    wall_ms: Place63
    policy: ShortText = ""


class ReplicaEnd(NamedTuple):
    """What is durable of the Raft log of a member's replica of a data group."""

    group: Unsigned32
    replica: Unsigned32
    term: Place63
    last_index: Place63
    last_term: Place63


class Life(NamedTuple):
    """One life of a node's process, as it introduces itself: its boot, a random id of this life and
    those of the lives before it (the newest last), whether it is sure to have forgotten nothing,
    the cluster's id (empty: it has none yet; or UNDECIDED), and what of Raft is durable there: of
    group 0, and of the replicas of groups that the receiver shares, as far as they are sure.
    """

    boot: Place63
    incarnation: Identifier
    predecessors: Annotated[tuple[Identifier, ...], msgspec.Meta(max_length=LIVES_TOLD)]
    is_sure: bool
    cluster_id: OptionalIdentifier
    term: Place63
    last_index: Place63
    last_term: Place63
    replicas: Annotated[tuple[ReplicaEnd, ...], msgspec.Meta(max_length=REPLICAS_TOLD)] = ()


class PartitionChecksum(NamedTuple):
    """Running checksum of a merged partition's bytes up to `offset`."""

    partition: Unsigned32
    offset: Place63
    checksum: Unsigned32


ENDS_TOLD = 200
"""In one EndRun or RunEnded; taking more would be a long turn of a node's loop."""


ACKS_TOLD = 1000
"""In one Acks; decoding more would take a long turn of a process."""
MEMBERS_REACHED = 1000


class Ack(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How far the receiver is with a handle of a session: durable there; acknowledged and merged by
    the cluster.
    """

    channel: ChannelNumber
    handle: Handle
    durable_roll: Place63
    durable_byte: Place63
    acknowledged_roll: Place63
    acknowledged_byte: Place63
    merged_roll: Place63
    merged_byte: Place63


class RunEnd(NamedTuple):
    """Where one partition's part of a run ends: byte `byte` of file `roll`."""

    topic: ShortText
    partition: Partition
    roll: Place63
    byte: Place63


class AbortedPart(NamedTuple):
    """What an aborted transaction has in a partition: from its first record to its marker."""

    producer_id: Place63
    first_offset: Place63
    last_offset: Place63


class Holder(NamedTuple):
    """A node that has a partition: its name, where other nodes reach it, and its rack."""

    name: ShortText
    address: ShortText
    rack: ShortText


class RowsAsked(NamedTuple):
    """What of a partition a subscriber wants: rows that meet a condition ("": all), their columns
    (none: all), read by a version of the schema (0: records, whose values are not looked into).
    With `skips_unread` what cannot be read does not come; with `is_committed` only what is decided.
    """

    where: FilterText
    columns: Annotated[tuple[ColumnName, ...], msgspec.Meta(max_length=1000)]
    version: Unsigned32
    skips_unread: bool = False
    is_committed: bool = False


def check_run_ends(ends: tuple[RunEnd, ...]) -> None:
    """Raises InvalidName for the first topic name that none may have."""
    for topic in {end.topic for end in ends}:
        check_topic_name(topic)


def check_optional_session_name(name: str | None) -> None:
    """Raises InvalidName unless there is no name or a session could have it."""
    if name is not None:
        check_session_name(name)
