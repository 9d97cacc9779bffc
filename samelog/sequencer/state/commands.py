"""The commands that Raft orders: everything the replicated state machine can be told.

An entry's payload is a MessagePack list of commands, so that one round of consensus carries as many
as are ready. Commands hold no payload bytes of records, only names, positions and verdicts, and
every merge instruction is fully resolved: applying it needs no clock, no file and no choice
(docs/state-machine.md).

Invariant: decoding what `encode_commands` wrote gives equal commands; field order is the format.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.compaction import CompactionCommand
from samelog.consensus import MalformedMessage, decode_configuration, is_configuration
from samelog.format.numbers import Unsigned32
from samelog.format.transactions import MARKER_BYTES
from samelog.sequencer.levels import OtherVersion
from samelog.sequencer.state.access_commands import AccessCommand
from samelog.sequencer.state.command_base import Command
from samelog.sequencer.state.group_commands import GroupCommand
from samelog.sequencer.state.judging.commands import ForgetRefused
from samelog.sequencer.state.key_commands import TellKeys
from samelog.sequencer.state.mirrors.commands import MirrorCommand
from samelog.sequencer.state.placement.commands import PlacementCommand
from samelog.sequencer.state.reset_commands import ResetCommand
from samelog.sequencer.state.schema_commands import SchemaCommand
from samelog.sequencer.state.setting_commands import SettingCommand
from samelog.sequencer.state.sites.commands import SiteCommand
from samelog.sequencer.state.telling.commands import NoteElection
from samelog.sequencer.state.transactions.commands import (
    Begin,
    End,
    SpanningCommand,
    TransactionCommand,
)
from samelog.sequencer.state.views.commands import ViewCommand
from samelog.wire.refusals import RefusedBatch


class Verdict(IntEnum):
    """What the leader decides about a range of session bytes."""

    TAKE = 0
    DUPLICATE = 1
    OUT_OF_ORDER = 2
    FENCED = 3
    SLICE = 4
    INVALID_TRANSACTION = 5
    LEAVE_OUT = 6
    REFUSED = 7


class CommandError(OtherVersion):
    """A Raft entry's payload that no version of samelog known here has written."""


class CreateTopicCommand(Command, frozen=True, tag=1):
    """Bind a new topic id to a name that no living topic has."""

    topic_id: str
    name: str
    partitions: Unsigned32
    settings: dict[str, str]
    at_ms: int


class DeleteTopicCommand(Command, frozen=True, tag=2):
    """End a topic: its inputs are let go, its name is free again."""

    topic_id: str


class OpenRunCommand(Command, frozen=True, tag=3):
    """Claim a run number for a run id; the first claim wins, later ones get the next free one."""

    session: str
    session_id: str
    identity: str
    number: Unsigned32
    run_id: str
    dedup_id: str | None
    dedup_base: int | None
    stage: str | None = None


class OpenInputCommand(Command, frozen=True, tag=4):
    """Give a session's part of one partition its input number."""

    session: str
    topic_id: str
    partition: Unsigned32


class CloseRun(Command, frozen=True, tag=5):
    """End a session's open run where it is merged: later bytes of that run never count."""

    session: str
    run_id: str
    at_ms: int = -1


class Range(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes [start, stop) of `log.<run>.<roll>` of one input, and what to do with them.

    `records` and `size` are of the output (0 unless taken or sliced); `digest` is the batch digest
    of the input bytes (docs/formats.md); `detail` is the offset a duplicate repeats (-1 unknown),
    or the records to drop of a sliced batch, or the place in `left_out` of a range of which some
    records are left out, or that in `refused` of a batch that was refused.
    """

    input: Unsigned32
    run: Unsigned32
    roll: int
    start: int
    stop: int
    records: int
    size: int
    digest: int
    verdict: int = 0
    detail: int = -1


class Sequence5(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One batch of an idempotent producer, as remembered to recognise its repetition."""

    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int


class Mirrored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an instruction for a mirror says of its ranges, whose batches have their offsets and
    keep them, with `keeps_epochs` their leader epochs, too, of which `top_epoch` is the highest.

    `sums` are the CRC-32C of each range's bytes, headers included, which no digest covers. Behind
    the ranges, `crc` is that of the last batch, and `checksum` the running checksum (None: not
    known). `begins` (producer id, epoch, offset) and `ends` (producer ids) are of transactions of
    the source.
    """

    sums: list[int]
    crc: int
    checksum: int | None
    keeps_epochs: bool
    top_epoch: int
    begins: list[tuple[int, int, int]]
    ends: list[int]


class MergeExtras(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a merge instruction has beyond a plain one, which encodes all of it as one byte.

    `begins` are transactions that begin in batches of the ranges; `ends` become markers behind the
    ranges. `left_out` has, for each range with the verdict LEAVE_OUT, which records stay
    (`format.batch.leave_out`), so that applying it depends on no filter. `version` of the schema
    counted (0: the topic has none; None: records are not checked), and `refused` lists every batch
    with records that do not fit: those of a publisher are left out, a batch of a Kafka client is
    refused as a whole. `stamp` puts `append_ms` into the batches (the topic's
    message.timestamp.type at that moment). `mirrored`: the partition is one of a mirror.
    """

    begins: list[Begin] = msgspec.field(default_factory=list)
    ends: list[End] = msgspec.field(default_factory=list)
    left_out: list[list[int]] = msgspec.field(default_factory=list)
    version: int | None = None
    refused: list[RefusedBatch] = msgspec.field(default_factory=list)
    stamp: bool = False
    mirrored: Mirrored | None = None


NO_EXTRAS = MergeExtras()
"""Those of a plain instruction."""


class Merge(Command, frozen=True, tag=6):
    """Append ranges to one partition at `base_offset`: a merge instruction.

    `epoch` is the leader epoch put into the batches (the planner's term), `append_ms` never falls
    within a partition, `roll` starts a new segment first. `sequences` and `watermarks` (dedup id,
    highest id merged) and `unwrapped` (input, last full dedup id) are what dedup learns from these
    ranges. A plain instruction has no `extras`.
    """

    partition: Unsigned32
    base_offset: int
    epoch: int
    append_ms: int
    roll: bool
    ranges: list[Range]
    sequences: list[Sequence5] = msgspec.field(default_factory=list)
    watermarks: list[tuple[str, int]] = msgspec.field(default_factory=list)
    unwrapped: list[tuple[int, int]] = msgspec.field(default_factory=list)
    extras: MergeExtras | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """Bytes this instruction adds to the merged log, and the partition's next offset then."""
        markers = 0 if self.extras is None else len(self.extras.ends)
        size, offset = MARKER_BYTES * markers, self.base_offset + markers
        for part in self.ranges:
            size += part.size
            offset += part.records
        return size, offset

    @property
    def size(self) -> int:
        """Bytes this instruction adds to the merged log."""
        return self.extent[0]

    @property
    def next_offset(self) -> int:
        """The partition's next offset once this is executed."""
        return self.extent[1]


class Checkpoint(Command, frozen=True, tag=7):
    """Checksums that a majority agrees on: (partition, offset, running checksum up to it)."""

    values: list[tuple[int, int, int]]


class RetireSessionCommand(Command, frozen=True, tag=8):
    """Fence a session's directory `session_id` (empty: the present one) and close its runs: another
    directory may take the name over.
    """

    session: str
    session_id: str = ""
    at_ms: int = -1


class NodeStarted(Command, frozen=True, tag=9):
    """A node's life: its durable boot counter and the random id of this start, so that a copy of
    its directory, or another one, is recognised; and the newest feature level that it supports.
    """

    node: str
    boot: int
    number: Unsigned32
    incarnation: str
    level: Unsigned32


class LetIn(Command, frozen=True, tag=45):
    """This life of a node counts from here on, whatever it forgot: this entry was committed without
    it.
    """

    number: Unsigned32
    incarnation: str


class Member(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One node of the cluster, under a number that no other node ever has.

    `promote`: a learner that becomes a voter when it has caught up; `replaces`: the number of the
    node that is removed after that, None if none.
    """

    number: Unsigned32
    name: str
    address: str
    identity: str
    voter: bool
    promote: bool = True
    replaces: Unsigned32 | None = None


class SetMembers(Command, frozen=True, tag=10):
    """All members; always the state machine's share of a configuration entry of Raft, whose voters
    and learners are these.
    """

    members: list[Member]
    cluster_id: str = ""
    """Of the first one: what tells this cluster from any other of its name."""


class SetMaintenanceCommand(Command, frozen=True, tag=11):
    """A node is worked on until a time (wall clock, ms), and not failed; 0 ends that."""

    node: str
    until_ms: int


class RaiseLevel(Command, frozen=True, tag=17):
    """The cluster's feature level is `level` from here on, if it was `since` and all members
    support it.
    """

    since: Unsigned32
    level: Unsigned32
    at_ms: int


class RecordEvent(Command, frozen=True, tag=12):
    """Something an operator must be able to read years later, such as what a recovery may have
    lost.
    """

    at_ms: int
    kind: str
    text: str


class VoidRecordsCommand(Command, frozen=True, tag=13):
    """Offsets [base_offset, next_offset) of a partition are filled with void batches, in the
    segment that begins at `segment`, with the epoch and highest timestamp of the batch before: no
    node has the records that committed instructions put there.
    """

    partition: Unsigned32
    base_offset: int
    next_offset: int
    segment: int
    epoch: int
    timestamp: int
    at_ms: int

    @property
    def records(self) -> int:
        """How many records are given up."""
        return self.next_offset - self.base_offset


class Expire(Command, frozen=True, tag=14):
    """Forget idle producer ids (with their newest append time) and the runs and inputs of idle
    sessions (with the time their last run was closed): those that are still as old as that.
    """

    producers: list[tuple[int, int]]
    sessions: list[tuple[str, int]]


class PublishStageCommand(Command, frozen=True, tag=16):
    """Publish what was staged as `stage` for one batch of a writer: the open runs (session, run id)
    that hold it are merged by these instructions, all of them or none, and closed.
    """

    stage: str
    writer: str
    batch: int
    runs: list[tuple[str, str]]
    merges: list[Merge]
    at_ms: int


class PinStage(Command, frozen=True, tag=83):
    """A group is prepared to publish its part of unit `number`: the held runs (session, run id)
    stay open, whatever happens, until it is carried out; these ranges of them are published then,
    by partition.
    """

    number: int
    stage: str
    runs: list[tuple[str, str]]
    ranges: list[tuple[Unsigned32, list[Range]]]


class EndStage(Command, frozen=True, tag=84):
    """A group carries out what was decided of unit `number`: it merges what it has pinned, by these
    instructions, or none of it, and closes the runs. `over`: units that group 0 has done with.
    """

    number: int
    is_commit: bool
    runs: list[tuple[str, str]]
    merges: list[Merge]
    over: list[int]
    at_ms: int


AnyCommand = (
    CreateTopicCommand
    | DeleteTopicCommand
    | OpenRunCommand
    | OpenInputCommand
    | CloseRun
    | Merge
    | Checkpoint
    | RetireSessionCommand
    | NodeStarted
    | LetIn
    | SetMembers
    | SetMaintenanceCommand
    | RaiseLevel
    | RecordEvent
    | VoidRecordsCommand
    | Expire
    | ArchiveCommand
    | PublishStageCommand
    | PinStage
    | EndStage
    | SpanningCommand
    | SettingCommand
    | SiteCommand
    | AccessCommand
    | SchemaCommand
    | MirrorCommand
    | ViewCommand
    | PlacementCommand
    | ResetCommand
    | GroupCommand
    | TransactionCommand
    | CompactionCommand
    | TellKeys
    | ForgetRefused
    | NoteElection
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyCommand])


def encode_commands(commands: Sequence[AnyCommand]) -> bytes:
    """The payload of one Raft entry."""
    return _encoder.encode(list(commands))


def decode_commands(data: bytes) -> list[AnyCommand]:
    """The commands of one Raft entry, a configuration's share included. Raises CommandError."""
    if not data:
        return []
    try:
        if is_configuration(data):
            return decode_commands(decode_configuration(data).context)
        return _decoder.decode(data)
    except (MalformedMessage, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandError(f"unreadable Raft entry: {error}") from error
