"""Control messages between the nodes of a cluster (role RAFT), beside Raft's own.

Invariant: as in `samelog.wire.messages`.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from samelog.format.names import check_session_name
from samelog.format.numbers import Unsigned32
from samelog.placement.tasks import GroupOrder
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
from samelog.wire.holds import HeldParts, TopicIds

ORDERS_MOST = 500
PIECE_BYTES = 32 << 10
READERS_MOST = 16
PIECES_MOST = 1 << 15


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


class PartitionFiles(NamedTuple):
    """What a node has of a partition, by its number: where its history of archived files ends, the
    newest compaction of which it has all segments, and where its index of keys ends.
    """

    partition: Unsigned32
    archived: Place63
    compacted: Unsigned32
    indexed: Place63


class Report(Message, frozen=True, tag=40):
    """A node's durable positions, merged-durable offsets, checksum samples: what has changed."""

    boot: Place63
    positions: tuple[InputPosition, ...] = ()
    merged: tuple[PartitionOffset, ...] = ()
    samples: tuple[PartitionChecksum, ...] = ()
    health: Health | None = None
    files: tuple[PartitionFiles, ...] = ()


class Cursors(Message, frozen=True, tag=41):
    """From the leader: what a majority has merged-durable of each partition."""

    merged: tuple[PartitionOffset, ...] = ()


class Forward(Message, frozen=True, tag=42):
    """Propose these commands for me, in one entry: the sender does not lead."""

    id: Place63
    commands: bytes


class CommandRefused(NamedTuple):
    """Why a command changed nothing; both are empty if it did."""

    code: ShortText = ""
    message: Text = ""


class Forwarded(Message, frozen=True, tag=43):
    """The answer: the entry's index (None: not the leader, ask again), and what became of each."""

    id: Place63
    index: Place63 | None
    refused: tuple[CommandRefused, ...] = ()


class RunEnded(Message, frozen=True, tag=44):
    """To the leader: a sender connected here has finished this run. A message has `ENDS_TOLD` of
    its ends at most.
    """

    session: str
    run_id: Identifier
    ends: tuple[RunEnd, ...] = ()
    count: Unsigned32 = 0
    """The number of all ends of the run."""

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
    """These, as records of the history file (docs/formats.md). `lacks`: files behind that offset
    are archived as the sender knows, and its own history has none of them.
    """

    partition: Unsigned32
    records: bytes
    lacks: bool = False


class KeysAsked(Message, frozen=True, tag=100):
    """To a replica of `group`, from one of the group `asker`: which entries of a partition's index
    of keys follow `behind`, of records below an offset?
    """

    group: Unsigned32
    asker: Unsigned32
    partition: Unsigned32
    behind: bytes
    below: Place63


class KeysTold(Message, frozen=True, tag=101):
    """To a replica of `group`: these, as a MessagePack list of [key, offset], which covers all up
    to the key `reach`.
    """

    group: Unsigned32
    partition: Unsigned32
    behind: bytes
    below: Place63
    entries: bytes
    reach: bytes
    is_last: bool


class KeysCovered(Message, frozen=True, tag=102):
    """To the leader of a group that a partition comes to: the sender's replica knows all keys of it
    below an offset.
    """

    partition: Unsigned32
    offset: Place63


class Forgotten(Message, frozen=True, tag=48):
    """To a node that introduced itself: it has forgotten something. `boot` and `incarnation` are of
    its life that is known here and that it does not know; 0 and empty: there is none.
    """

    reason: Text
    boot: Place63 = 0
    incarnation: OptionalIdentifier = ""


class Superseded(Message, frozen=True, tag=151):
    """To a node that introduced itself: a site was promoted since its cluster had the id that it
    said. `cluster_id`: the one of now; `stays`: it is a member there, too, and goes on with that.
    """

    cluster_id: Identifier
    stays: bool


class MemberState(Message, frozen=True, tag=49):
    """A member's own word of itself, once a second and when it changes: what it does, why it is not
    ready (empty: it is), what is wrong with it, the newest feature level that it supports.
    `is_cut_off`: it has heard no leader of group 0 for two election timeouts.
    """

    state: Literal["offline", "initializing", "syncing", "live"]
    not_ready: Text
    detail: Text
    role: ShortText
    boot: Place63
    applied_index: Place63
    level: Unsigned32
    is_cut_off: bool


class LacksLibraries(Message, frozen=True, tag=149):
    """A member's own word that it lacks these libraries, so that it could not check records; once a
    second, if it lacks any.
    """

    names: Annotated[tuple[ShortText, ...], msgspec.Meta(max_length=8)]


class InGroup(Message, frozen=True, tag=60):
    """What a replica of a data group says to another one: one of the messages above, as its
    MessagePack bytes.
    """

    group: Unsigned32
    sender: Unsigned32
    receiver: Unsigned32
    message: bytes


class Beat(Message, frozen=True, tag=61):
    """I live, and lead what has this digest, of all that rests between us."""

    number: Place63
    digest: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class BeatAnswer(Message, frozen=True, tag=62):
    """I follow the same. Or not: then this is what I follow, and in which terms."""

    number: Place63
    agrees: bool
    followed: tuple[tuple[Unsigned32, Place63], ...] = ()


class NotQuiet(Message, frozen=True, tag=63):
    """These groups I do not lead, or they do not rest."""

    groups: tuple[Unsigned32, ...]


class Leads(Message, frozen=True, tag=64):
    """I lead these data groups: so clients can be sent here. For each its number, the term, and a
    number of partitions: those of the group that have a lower one are open in it.
    """

    groups: tuple[tuple[Unsigned32, Place63, Place63], ...]


class GroupOrders(Message, frozen=True, tag=65):
    """From the leader of group 0: what the data groups that you lead are to do for tasks."""

    orders: Annotated[tuple[GroupOrder, ...], msgspec.Meta(max_length=ORDERS_MOST)]


class PassAsked(Message, frozen=True, tag=68):
    """To the leader of a data group, the source of a task that moves a partition: what it knows of
    the partition, `is_sealed`: once it has sealed it.
    """

    task: Unsigned32
    partition: Unsigned32
    source: Unsigned32
    target: Unsigned32
    is_sealed: bool


class PassTold(Message, frozen=True, tag=69):
    """A piece of the answer, for the target: the piece at `place` of `count`; `checksum`: of the
    whole.
    """

    task: Unsigned32
    partition: Unsigned32
    group: Unsigned32
    is_sealed: bool
    checksum: Unsigned32
    place: Unsigned32
    count: Annotated[int, msgspec.Meta(ge=1, le=PIECES_MOST)]
    data: Annotated[bytes, msgspec.Meta(max_length=PIECE_BYTES)]


class PassReport(Message, frozen=True, tag=70):
    """To the leader of group 0: how far a data group that the sender leads is with a partition that
    a task moves, as placement.values.PassStage, 0: it has not begun; `is_whole`: its voters that
    are up, and a majority, have all that it knows of; `pauses`: it would compact the partition.
    """

    group: Unsigned32
    task: Unsigned32
    partition: Unsigned32
    stage: Annotated[int, msgspec.Meta(ge=0, le=6)]
    is_whole: bool
    pauses: bool


class PartOfRunClosed(Message, frozen=True, tag=67):
    """To the leader of group 0: a data group that the sender leads has closed its part of a run at
    these ends.
    """

    session: str
    run_id: Identifier
    ends: tuple[RunEnd, ...]

    def __post_init__(self) -> None:
        check_session_name(self.session)
        check_run_ends(self.ends)


class RunAsked(Message, frozen=True, tag=71):
    """From the leader of group 0: does a majority of a data group that you lead hold a staged run
    up to these ends (partition, roll, byte)?
    """

    id: Place63
    group: Unsigned32
    session: str
    run_id: Identifier
    ends: tuple[tuple[Unsigned32, Place63, Place63], ...]

    def __post_init__(self) -> None:
        check_session_name(self.session)


class RunHeld(Message, frozen=True, tag=72):
    """The answer."""

    id: Place63
    is_held: bool


class SiteLag(Message, frozen=True, tag=150):
    """A member's own word of how far it is behind, once a second where there are sites: for how
    long the oldest record has waited that it lacks, and how many it lacks.
    """

    lag_ms: Place63
    records: Place63


class PromotionAsked(Message, frozen=True, tag=152):
    """To the others of a site: agree that the sender is promoted, with this newest entry."""

    promotion: Identifier
    term: Place63
    entry: Place63


class PromotionTold(Message, frozen=True, tag=153):
    """The answer: why not; empty: the sender agrees, and to nobody else for a while."""

    promotion: Identifier
    refused: Text


class ReadersAsked(Message, frozen=True, tag=154):
    """Which subscribers read this topic at the receiver now? `question` is random."""

    question: Identifier
    topic: ShortText


class ReadersTold(Message, frozen=True, tag=155):
    """The answer: their identities, or the first of them."""

    question: Identifier
    readers: Annotated[tuple[Text, ...], msgspec.Meta(max_length=READERS_MOST)]


class LogsHeld(Message, frozen=True, tag=73):
    """A member shares the limit of its archiving policy, among several groups or with other members
    of its host, each of which counts as if it had as much: so many bytes in all; once a second.
    """

    size: Place63


class HoldsTold(Message, frozen=True, tag=74):
    """What the publisher of a session, which is connected to the sender, holds because topics were
    deleted; sent when that changes.
    """

    session: ShortText
    parts: HeldParts


class HoldsDecision(Message, frozen=True, tag=75):
    """An operator's decision about what a session holds, for the publisher that is connected to the
    receiver.
    """

    session: ShortText
    continues: bool
    topic_ids: TopicIds


PeerMessage: TypeAlias = (
    Report
    | Cursors
    | Forward
    | Forwarded
    | RunEnded
    | MemberList
    | HistoryAsked
    | HistoryTold
    | KeysAsked
    | KeysTold
    | KeysCovered
    | MemberState
    | LacksLibraries
    | SiteLag
    | PromotionAsked
    | PromotionTold
    | ReadersAsked
    | ReadersTold
    | LogsHeld
    | HoldsTold
    | HoldsDecision
    | InGroup
    | Beat
    | BeatAnswer
    | NotQuiet
    | Leads
    | PartOfRunClosed
    | GroupOrders
    | PassAsked
    | PassTold
    | PassReport
    | RunAsked
    | RunHeld
)
"""What a member says on the connections that it dialled."""
