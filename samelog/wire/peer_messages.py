"""Control messages between the nodes of a cluster (role RAFT), beside Raft's own.

Invariant: as in `samelog.wire.messages`.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple, TypeAlias

from samelog.format.names import check_session_name
from samelog.format.numbers import Unsigned32
from samelog.wire.bounds import (
    Health,
    Identifier,
    Message,
    OptionalIdentifier,
    PartitionChecksum,
    Place63,
    RunEnd,
    ShortText,
    Text,
    check_run_ends,
)


class InputPosition(NamedTuple):
    """A position in an input, by the number that the replicated state gives it."""

    input: Unsigned32
    run: Unsigned32
    roll: Place63
    byte: Place63


class PartitionOffset(NamedTuple):
    """An offset in a merged partition, by the number that the replicated state gives it."""

    partition: Unsigned32
    offset: Place63


class Report(Message, frozen=True, tag=40):
    """A node's durable positions, merged-durable offsets, checksum samples: what has changed."""

    boot: Place63
    positions: tuple[InputPosition, ...] = ()
    merged: tuple[PartitionOffset, ...] = ()
    samples: tuple[PartitionChecksum, ...] = ()
    health: Health | None = None


class Cursors(Message, frozen=True, tag=41):
    """From the leader: what a majority has merged-durable of each partition."""

    merged: tuple[PartitionOffset, ...] = ()


class Forward(Message, frozen=True, tag=42):
    """Propose this command for me: the sender does not lead."""

    id: Place63
    command: bytes


class Forwarded(Message, frozen=True, tag=43):
    """The answer: the entry's index (None: not the leader, ask again), and a refusal's code."""

    id: Place63
    index: Place63 | None
    code: ShortText = ""
    message: Text = ""


class ForwardAll(Message, frozen=True, tag=58):
    """Propose these commands for me, in one entry: the sender does not lead."""

    needs: ClassVar[int] = 3
    id: Place63
    commands: bytes


class CommandRefused(NamedTuple):
    """Why a command changed nothing; both are empty if it did."""

    code: ShortText = ""
    message: Text = ""


class ForwardedAll(Message, frozen=True, tag=59):
    """The answer: the entry's index (None: not the leader, ask again), and what became of each."""

    needs: ClassVar[int] = 3
    id: Place63
    index: Place63 | None
    refused: tuple[CommandRefused, ...] = ()


class RunEnded(Message, frozen=True, tag=44):
    """To the leader: a sender connected here has finished this run."""

    session: str
    run_id: Identifier
    ends: tuple[RunEnd, ...] = ()

    def __post_init__(self) -> None:
        check_session_name(self.session)
        check_run_ends(self.ends)


class PeerMember(NamedTuple):
    """A member of the cluster, as the replicated state names it."""

    number: Unsigned32
    name: ShortText
    address: ShortText
    identity: Text
    voter: bool
    promote: bool
    replaces: Unsigned32 | None


class MemberList(Message, frozen=True, tag=45):
    """Who belongs to the cluster; of two lists the one with the higher version is newer."""

    version: Place63
    members: tuple[PeerMember, ...]


class HistoryAsked(Message, frozen=True, tag=46):
    """Which files of a partition, by its number, were archived from this offset on?"""

    partition: Unsigned32
    offset: Place63


class HistoryTold(Message, frozen=True, tag=47):
    """These, as records of the history file (docs/formats.md); none: nothing is known here."""

    partition: Unsigned32
    records: bytes


class Forgotten(Message, frozen=True, tag=48):
    """To a node that introduced itself: it has forgotten something. `boot` and `incarnation` are of
    its life that is known here and that it does not know; 0 and empty: there is none.
    """

    reason: Text
    boot: Place63 = 0
    incarnation: OptionalIdentifier = ""


class MemberState(Message, frozen=True, tag=49):
    """A member's own word of itself, once a second and when it changes: what it does, why it is not
    ready (empty: it is), what is wrong with it, the newest feature level that it supports.
    """

    state: Literal["offline", "initializing", "syncing", "live"]
    not_ready: Text
    detail: Text
    role: ShortText
    boot: Place63
    applied_index: Place63
    level: Unsigned32


PeerMessage: TypeAlias = (
    Report
    | Cursors
    | Forward
    | ForwardAll
    | Forwarded
    | ForwardedAll
    | RunEnded
    | MemberList
    | HistoryAsked
    | HistoryTold
    | MemberState
)
"""What goes from member to member once both know each other."""
