"""What the replicated state machine holds: one value, whose MessagePack encoding is the body of a
snapshot.

Invariant: fields are only ever added at the end, with a default, so that older snapshots can be
read; what a feature level brings has its default until the cluster has that level, so that builds
that know less can read what newer ones wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

from samelog.archiver.compaction import HasCompactions
from samelog.format.errors import InvariantError
from samelog.format.numbers import Unsigned32
from samelog.format.positions import SessionPosition
from samelog.placement.values import PlacedPartition, Placement
from samelog.sequencer.state.access_state import AccessState
from samelog.sequencer.state.commands import (
    Member,
    Merge,
    OpenRunCommand,
    Range,
    RecordEvent,
    Sequence5,
    Verdict,
    VoidRecordsCommand,
)
from samelog.sequencer.state.feeds.feed import STATE_NUMBERS
from samelog.sequencer.state.group_state import Groups
from samelog.sequencer.state.keys.key_state import KeyedPartition, has_keys
from samelog.sequencer.state.mirrors.state import Mirrors
from samelog.sequencer.state.placement.commands import OpenPartition, OpenPlacedInput
from samelog.sequencer.state.schemas import Schemas, SchemaVersion
from samelog.sequencer.state.setting_commands import Advertised
from samelog.sequencer.state.telling.values import ToldEvents
from samelog.sequencer.state.transactions.state import Transactions
from samelog.sequencer.state.views.view import View
from samelog.typed.enforcing import is_judged
from samelog.wire.refusals import RefusedBatch

STATE_VERSION = 6
"""Nothing that wrote another one was released."""
EVENTS_REMEMBERED = 256
ELEMENTS_FEW = 10_000
"""Elements that a request may always have."""
ELEMENTS_EACH = 8
"""Elements of a request for each thing there is, which it may name by several."""
RUNS_REMEMBERED = 64
"""Closed runs kept per session, so that a late sender learns where its run ended."""
_VERDICTS = frozenset(Verdict)


class Topic(msgspec.Struct):
    """A living topic; `partition_numbers[i]` is the cluster-wide number of partition i."""

    topic_id: str
    name: str
    settings: dict[str, str]
    created_ms: int
    partition_numbers: list[Unsigned32]
    present_log: str = ""
    """The id of its log; empty: that of the topic, whose log was never restarted."""
    former_logs: list[str] = []
    """The ids that its log had before each hard reset."""
    schemas: list[SchemaVersion] = []
    """The versions of its schema, from version 1 on."""
    is_placed: bool = False
    """Its partitions are in data groups."""

    @property
    def log_id(self) -> str:
        """The id of its merged log: what readers go by."""
        return self.present_log or self.topic_id

    @property
    def is_generated(self) -> bool:
        """Whether it is told of the state, and has no log."""
        return bool(self.partition_numbers) and self.partition_numbers[0] >= STATE_NUMBERS

    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""
        return len(self.partition_numbers)


class Partition(HasCompactions, msgspec.Struct, gc=False):
    """One merged log: what comes next in it, and its last agreed checksum. There are many, most of
    which nothing was written to: these share their empty tuples.
    """

    number: Unsigned32
    topic_id: str
    index: int
    next_offset: int = 0
    segment_bytes: int = 0
    segment_started_ms: int = 0
    append_ms: int = -1
    checked_offset: int = 0
    checked_sum: int | None = 0
    """None: records were given up since. Then `checked_offset` is up to where the log was planned:
    what was sampled up to there may be of what was given up.
    """
    voids: tuple[VoidRecordsCommand, ...] = ()
    """Records that no node had any more, as given up."""
    log_start: int = 0
    """Records below this offset are archived."""
    start_segment: int = 0
    """The first segment that is kept: it holds `log_start`."""
    start_checksum: int = 0
    """The running checksum where it begins."""
    rolls: tuple[tuple[int, int], ...] = ()
    """(base offset, append time in ms of its first instruction) of the later segments, in order."""
    schema_since: tuple[tuple[int, int], ...] = ()
    """(offset, version): from there on, that version of the topic's schema was in force."""
    came: Unsigned32 = 0
    """The task that moved it into this group, where it may have been before; 0: it was created in
    it. Files of its earlier stays are not files of this one.
    """

    def begin_version(self, version: int) -> None:
        """A version of the topic's schema is in force from the next offset on."""
        since = self.schema_since
        if since and since[-1][0] == self.next_offset:
            since = since[:-1]  # no record has it
        self.schema_since = (*since, (self.next_offset, version))


class Run(msgspec.Struct):
    """One run of a session, under the number the cluster gave it."""

    run_id: str
    number: Unsigned32
    closed: bool = False
    dedup_id: str | None = None
    dedup_base: int | None = None
    ends: list[tuple[int, int, int]] = []
    """(input, roll, byte) per input, once closed."""
    asked: int = -1
    """The publisher's own number of it."""
    stage: str | None = None
    """What its records are staged for: nothing of it is merged before that is published."""
    published: bool = False

    def close(self, inputs: Iterable[Input]) -> None:
        """It ends where the session's inputs are now."""
        self.closed = True
        self.ends = [
            (entry.number, entry.roll, entry.byte) for entry in inputs if entry.run == self.number
        ]

    @property
    def is_held(self) -> bool:
        """Whether its records are staged, and not published."""
        return self.stage is not None and not self.published


class Session(msgspec.Struct):
    """A publisher's name, the directory that owns it, and its newest runs in number order."""

    name: str
    session_id: str
    identity: str
    runs: list[Run] = []
    retired: bool = False
    fenced_ids: list[str] = []
    forgotten: int = -1
    """The highest own number of a run of this directory that is not remembered any more."""
    next_run: int = 0
    """The lowest number the cluster may give the next run."""
    idle_since_ms: int = -1
    """When its last run was closed; -1: a run is open, or has expired."""

    def claim(self, command: OpenRunCommand) -> tuple[str, str] | None:
        """Why a directory may not speak for the session; it takes over a retired one."""
        if command.session_id in self.fenced_ids:
            return self.fence()
        if self.identity != command.identity:
            return "SESSION_CONFLICT", f"session {self.name!r} belongs to {self.identity}"
        if self.session_id == command.session_id:
            return None
        if not self.retired:
            text = f"another directory (id {self.session_id}) has the session {self.name!r}"
            return "SESSION_CONFLICT", text
        self.session_id, self.retired = command.session_id, False
        self.forgotten = -1  # another directory, with numbers of its own
        return None

    def fence(self) -> tuple[str, str]:
        """Why a retired directory may not speak for the session."""
        return "SESSION_FENCED", f"this directory of {self.name!r} was retired"

    def problem_with_run(self, command: OpenRunCommand) -> tuple[str, str] | None:
        """Why there can be no such run now; None if there can."""
        if command.number <= self.forgotten:
            return "RUN_FORGOTTEN", f"run {command.number} of {self.name!r} was closed long ago"
        if self.runs and (command.stage is not None or self.is_staged):
            text = f"session {self.name!r} has had a run: what is staged has one of its own"
            return "SESSION_CONFLICT", text
        if self.runs and not self.runs[-1].closed:
            return "RUN_OPEN", f"session {self.name!r} has an open run"
        return None

    @property
    def next_number(self) -> int:
        """The first that no run of it ever had."""
        return max(self.next_run, self.runs[-1].number + 1 if self.runs else 0)

    def begin(self, command: OpenRunCommand | OpenPlacedInput, number: int, asked: int) -> Run:
        """Its newest run, which the publisher calls `asked`; the oldest ones are forgotten."""
        run = Run(
            run_id=command.run_id,
            number=number,
            dedup_id=command.dedup_id,
            dedup_base=command.dedup_base,
            asked=asked,
            stage=command.stage,
        )
        self.runs.append(run)
        self.idle_since_ms = -1
        for old in self.runs[:-RUNS_REMEMBERED]:
            self.forgotten = max(self.forgotten, old.asked)
        del self.runs[:-RUNS_REMEMBERED]
        return run

    def retire(self) -> None:
        """Fence its directory."""
        if not self.retired:
            self.retired = True
            self.fenced_ids.append(self.session_id)

    @property
    def is_staged(self) -> bool:
        """Whether its newest run is, or was, staged: then all are."""
        return bool(self.runs) and self.runs[-1].stage is not None


class Stage(msgspec.Struct):
    """The last batch that was published of what is staged under one name, and whose it was."""

    writer: str
    batch: int
    at_ms: int
    unit: int = 0
    """The unit of work that it was; 0: it was in one group."""


class Input(msgspec.Struct):
    """A session's part of one partition, merged up to (run, roll, byte)."""

    number: Unsigned32
    session: str
    partition: Unsigned32
    run: Unsigned32 = 0
    roll: int = 0
    byte: int = 0
    last_id: int | None = None
    refused: list[RefusedBatch] = []
    """What its publisher has not said yet that it has kept, oldest first."""

    @property
    def place(self) -> SessionPosition:
        """The merged position."""
        return SessionPosition(self.run, self.roll, self.byte)


class MemberLives(NamedTuple):
    """Boot and id of a member's newest life, the id of the one that counts though it had forgotten
    something (empty: none), and the feature level that the newest supports (0: not known).
    """

    boot: int = 0
    incarnation: str = ""
    let_in: str = ""
    level: int = 0


class Epochs(NamedTuple):
    """`base` plus Raft's term is the leader epoch: it rises with every hard reset. The epochs of
    the present logs are at least `first`.
    """

    base: int = 0
    first: int = 0


class State(msgspec.Struct):
    """Everything replicated. Its MessagePack encoding is the body of a snapshot."""

    version: int = STATE_VERSION
    topics: dict[str, Topic] = {}
    names: dict[str, str] = {}
    partitions: dict[int, Partition] = {}
    sessions: dict[str, Session] = {}
    inputs: dict[int, Input] = {}
    producers: dict[int, dict[int, list[Sequence5]]] = {}
    """Producer id -> partition -> its last batches, oldest first."""
    watermarks: dict[str, dict[int, int]] = {}
    """Dedup id -> partition -> highest id merged."""
    cluster_id: str = ""
    """Empty until the first leader has written it down, with the members."""
    started: dict[int, MemberLives] = {}
    """By member; one that is missing never started."""
    members: dict[int, Member] = {}
    """Empty until the first leader has written down whom the configuration files name."""
    members_version: int = 0
    next_member: int = 0
    maintenance: dict[str, int] = {}
    events: list[RecordEvent] = []
    next_partition: int = 1
    next_input: int = 1
    producers_seen: dict[int, int] = {}
    """Producer id -> append time (ms) of its newest batch."""
    groups: Groups = msgspec.field(default_factory=Groups)
    listeners: dict[int, list[Advertised]] = {}
    """Member -> where Kafka clients reach it."""
    stages: dict[str, Stage] = {}
    epochs: Epochs = Epochs()
    resets: list[str] = []
    """The ids of the newest ones: one that is proposed twice is done once."""
    copy_targets: list[str] = []
    """Where copies of archived segments are; histories name them by their place here."""
    level: int = 0
    """The feature level; 0 until the first leader has written down what all members support."""
    access: AccessState = msgspec.field(default_factory=AccessState)
    """What administrators set over the Kafka protocol."""
    transactions: Transactions = msgspec.field(default_factory=Transactions)
    schemas: Schemas = msgspec.field(default_factory=Schemas)
    placement: Placement = msgspec.field(default_factory=Placement)
    """Which data groups there are, and what is in them."""
    keyed: dict[int, KeyedPartition] = {}
    """The partitions of topics whose keys count once."""
    told: ToldEvents = msgspec.field(default_factory=ToldEvents)
    """What is to be told as records of `__events`."""
    mirrors: Mirrors = msgspec.field(default_factory=Mirrors)

    def share_names(self) -> None:
        """Have one string for a topic or a session, and one number for a partition, wherever they
        are named: what was decoded has one for each place.
        """
        names = {name: name for name in (*self.topics, *self.sessions)}
        numbers = {number: number for number in self.partitions}
        placed = self.placement.partitions
        self.placement.partitions = {numbers.get(n, n): each for n, each in placed.items()}
        numbered: tuple[Partition | PlacedPartition, ...]
        numbered = (*self.partitions.values(), *placed.values())
        for each in numbered:
            force_setattr(each, "topic_id", names.get(each.topic_id, each.topic_id))
            force_setattr(each, "number", numbers.get(each.number, each.number))
        for topic in self.topics.values():
            topic.partition_numbers = [numbers.get(n, n) for n in topic.partition_numbers]
        for entry in self.inputs.values():
            entry.session = names.get(entry.session, entry.session)

    @property
    def elements_max(self) -> int:
        """How many elements a request may have that names what exists."""
        exist = len(self.topics) + len(self.partitions) + len(self.placement.partitions)
        exist += len(self.schemas.views) + len(self.groups.by_id)
        exist += len(self.sessions) + len(self.inputs)
        return ELEMENTS_FEW + ELEMENTS_EACH * exist

    def name_cluster(self, cluster_id: str) -> None:
        """The first name stays."""
        self.cluster_id = self.cluster_id or cluster_id

    def let_in(self, member: int, incarnation: str) -> None:
        """This life of a member counts, whatever it forgot."""
        known = self.started.get(member, MemberLives())
        self.started[member] = known._replace(let_in=incarnation)
        if not self.placement.own:
            self.placement.let_in(member)

    def has_here(self, number: int) -> bool:
        """Whether a partition is in this group: of others group 0 knows that they are."""
        return number in self.partitions and number not in self.placement.partitions

    def remember(self, event: RecordEvent) -> None:
        """Keep an event, and forget the oldest."""
        self.events.append(event)
        del self.events[:-EVENTS_REMEMBERED]

    def schema_texts(self, topic_id: str, newest: int) -> tuple[str, ...]:
        """The texts of a topic's schema, from version 1 up to `newest`."""
        versions = self.topics[topic_id].schemas[:newest]
        return tuple(self.schemas.texts[each.fingerprint].text for each in versions)

    def follow_enforcing(self, topic: Topic) -> None:
        """A topic is made, or has other settings."""
        if is_judged(topic.settings):
            self.schemas.enforced[topic.topic_id] = None
        else:
            self.schemas.enforced.pop(topic.topic_id, None)

    def topic_of_view(self, view: View) -> Topic:
        """A view as a topic: of its own name, log and numbers, without partitions in the state."""
        schemas = [] if view.schema is None else [view.schema]
        is_placed = self.topics[view.base_id].is_placed
        settings: dict[str, str] = {}
        made = view.topic_id, view.name, settings, view.created_ms, view.partition_numbers
        return Topic(*made, view.log_id, view.former_logs, schemas, is_placed)

    def rack_of(self, number: int) -> str:
        """Where a member says that it is: its site, and then the rack there."""
        rack = next((each.rack for each in self.listeners.get(number, ()) if each.rack), "")
        site = self.placement.sites.members.get(number, "")
        is_within = not site or rack == site or rack.startswith(f"{site}/")
        return rack if is_within else f"{site}/{rack}".rstrip("/")

    def open_partition(self, command: OpenPartition) -> None:
        """A partition of a topic is here, in a data group; the others of the topic may not be."""
        topic = self.topics.get(command.topic_id)
        if topic is None:
            topic = Topic(command.topic_id, command.name, {}, command.at_ms, [])
            topic.is_placed = True
            self.topics[command.topic_id] = topic
            self.names[command.name] = command.topic_id
        topic.settings, topic.partition_numbers = command.settings, command.numbers
        self.follow_enforcing(topic)
        if command.number not in self.partitions:
            self.add_empty(topic, command.number, command.numbers.index(command.number))

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Give a topic more partitions, with numbers that none ever had."""
        views = self.schemas.views_of(topic.topic_id)
        for step in repeat(1, count) if views else (count,):  # views have numbers in between
            numbers = [*range(self.next_partition, self.next_partition + step)]
            self._add_empty(topic, numbers, topic.partitions)
            topic.partition_numbers += numbers
            for view in views:
                self.schemas.number_view(view, self.next_partition)
                self.next_partition += 1

    def add_empty(self, topic: Topic, number: int, index: int) -> None:
        """A topic has a partition of that number here."""
        self._add_empty(topic, [number], index)

    def _add_empty(self, topic: Topic, numbers: Sequence[int], first: int) -> None:
        """Thousands come in one command: no function is called for each."""
        topic_id = topic.topic_id
        made = {number: Partition(number, topic_id, at) for at, number in enumerate(numbers, first)}
        if topic.schemas:
            for partition in made.values():
                partition.begin_version(len(topic.schemas))
        self.partitions |= made
        self.next_partition = max(self.next_partition, max(numbers, default=0) + 1)
        if has_keys(topic.settings):
            self.keyed |= {number: KeyedPartition() for number in numbers}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a command changed nothing: a stable code and a sentence."""

    code: str
    message: str


def follows(place: SessionPosition | Input, part: Range) -> bool:
    """Whether a range starts at `place`, or with a later file: those in between are empty."""
    if part.stop < part.start or part.verdict not in _VERDICTS:
        raise InvariantError(f"malformed range {part}")
    goes_on = (part.roll, part.start) == (place.roll, place.byte)
    return part.run == place.run and (goes_on or (part.roll > place.roll and part.start == 0))


GONE = Partition(0, "", 0, next_offset=-1)
"""Of a topic that was deleted."""


def not_next(partition: Partition, command: Merge) -> Rejection:
    """An instruction does not go on where its partition ends."""
    if partition is GONE:
        return Rejection("UNKNOWN_TOPIC", f"partition {command.partition} is gone")
    return Rejection("PRECONDITION", f"base offset {command.base_offset}")
