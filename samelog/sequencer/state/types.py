"""What the replicated state machine holds: one value, whose MessagePack encoding is the body of a
snapshot.

Invariant: fields are only ever added at the end, with a default, so that older snapshots can be
read; what a feature level brings has its default until the cluster has that level, so that builds
that know less can read what newer ones wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat

import msgspec
from msgspec.structs import force_setattr

from samelog.placement.values import PlacedPartition, Placement
from samelog.sequencer.state.tables.access import AccessTable
from samelog.sequencer.state.tables.epochs import EpochsTable
from samelog.sequencer.state.tables.events import EventsTable
from samelog.sequencer.state.tables.feeds import Feeds
from samelog.sequencer.state.tables.groups import GroupsTable
from samelog.sequencer.state.tables.keys import KeyedPartition, KeysTable, has_keys
from samelog.sequencer.state.tables.members import MembersTable
from samelog.sequencer.state.tables.mirrors import Mirror, MirrorsTable
from samelog.sequencer.state.tables.open_transactions import OpenTransactionsTable
from samelog.sequencer.state.tables.partitions import Partition, PartitionsTable
from samelog.sequencer.state.tables.placement import OpenPartition
from samelog.sequencer.state.tables.producers import ProducersTable
from samelog.sequencer.state.tables.resets import ResetsTable
from samelog.sequencer.state.tables.schemas import SchemasTable
from samelog.sequencer.state.tables.sessions import SessionsTable
from samelog.sequencer.state.tables.stages import StagesTable
from samelog.sequencer.state.tables.table import PartitionTable
from samelog.sequencer.state.tables.topics import Topic, TopicsTable
from samelog.sequencer.state.tables.transactions import TransactionsTable
from samelog.sequencer.state.tables.transfers import TransfersTable
from samelog.sequencer.state.tables.views import View, ViewsTable
from samelog.sequencer.state.tables.watermarks import WatermarksTable
from samelog.typed.enforcing import is_judged

STATE_VERSION = 8
"""Nothing that wrote another one was released."""


ELEMENTS_FEW = 10_000
"""Elements that a request may always have."""
ELEMENTS_EACH = 8
"""Elements of a request for each thing there is, which it may name by several."""


class State(msgspec.Struct):
    """Everything replicated. Its MessagePack encoding is the body of a snapshot."""

    version: int = STATE_VERSION
    partitions: PartitionsTable = msgspec.field(default_factory=PartitionsTable)
    sessions: SessionsTable = msgspec.field(default_factory=SessionsTable)
    producers: ProducersTable = msgspec.field(default_factory=ProducersTable)
    watermarks: WatermarksTable = msgspec.field(default_factory=WatermarksTable)
    open_transactions: OpenTransactionsTable = msgspec.field(default_factory=OpenTransactionsTable)
    epochs: EpochsTable = msgspec.field(default_factory=EpochsTable)
    keys: KeysTable = msgspec.field(default_factory=KeysTable)
    mirrors: MirrorsTable = msgspec.field(default_factory=MirrorsTable)
    transfers: TransfersTable = msgspec.field(default_factory=TransfersTable)
    copy_targets: list[str] = []
    """Where copies of archived segments are; histories name them by their place here."""
    members: MembersTable = msgspec.field(default_factory=MembersTable)
    topics: TopicsTable = msgspec.field(default_factory=TopicsTable)
    schemas: SchemasTable = msgspec.field(default_factory=SchemasTable)
    views: ViewsTable = msgspec.field(default_factory=ViewsTable)
    groups: GroupsTable = msgspec.field(default_factory=GroupsTable)
    transactions: TransactionsTable = msgspec.field(default_factory=TransactionsTable)
    stages: StagesTable = msgspec.field(default_factory=StagesTable)
    feeds: Feeds = msgspec.field(default_factory=Feeds)
    """What is told of groups and transactions as topics."""
    access: AccessTable = msgspec.field(default_factory=AccessTable)
    placement: Placement = msgspec.field(default_factory=Placement)
    """Which data groups there are, and what is in them."""
    resets: ResetsTable = msgspec.field(default_factory=ResetsTable)
    events: EventsTable = msgspec.field(default_factory=EventsTable)

    def share_names(self) -> None:
        """Have one string for a topic or a session, and one number for a partition, wherever they
        are named: what was decoded has one for each place.
        """
        names = {name: name for name in (*self.topics.by_id, *self.sessions.by_name)}
        numbers = {number: number for number in self.partitions.by_number}
        placed = self.placement.partitions
        self.placement.partitions = {numbers.get(n, n): each for n, each in placed.items()}
        numbered: tuple[Partition | PlacedPartition, ...]
        numbered = (*self.partitions.by_number.values(), *placed.values())
        for each in numbered:
            force_setattr(each, "topic_id", names.get(each.topic_id, each.topic_id))
            force_setattr(each, "number", numbers.get(each.number, each.number))
        for topic in self.topics.by_id.values():
            topic.partition_numbers = [numbers.get(n, n) for n in topic.partition_numbers]
        for entry in self.sessions.inputs.values():
            entry.session = names.get(entry.session, entry.session)

    @property
    def elements_max(self) -> int:
        """How many elements a request may have that names what exists."""
        exist = len(self.topics.by_id) + len(self.partitions.by_number)
        exist += len(self.placement.partitions)
        exist += len(self.views.by_id) + len(self.groups.by_id)
        exist += len(self.sessions.by_name) + len(self.sessions.inputs)
        return ELEMENTS_FEW + ELEMENTS_EACH * exist

    def partition_of(self, topic_id: str, index: int) -> Partition | None:
        """Return the partition of a living topic, if there is one and it is in this group."""
        topic = self.topics.by_id.get(topic_id)
        if topic is None or not 0 <= index < topic.partitions:
            return None
        return self.partitions.by_number.get(topic.partition_numbers[index])

    def reindex(self) -> None:
        """Rebuild what is derived from the tables, after changes that it did not follow."""
        self.sessions.reindex()
        self.topics.reindex()
        self.feeds.moved()

    def has_here(self, number: int) -> bool:
        """Whether a partition is in this group: of others group 0 knows that they are."""
        return number in self.partitions.by_number and number not in self.placement.partitions

    def schema_texts(self, topic_id: str, newest: int) -> tuple[str, ...]:
        """The texts of a topic's schema, from version 1 up to `newest`."""
        versions = self.topics.by_id[topic_id].schemas[:newest]
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
        is_placed = self.topics.by_id[view.base_id].is_placed
        settings: dict[str, str] = {}
        made = view.topic_id, view.name, settings, view.created_ms, view.partition_numbers
        return Topic(*made, view.log_id, view.former_logs, schemas, is_placed)

    @property
    def hosts(self) -> int:
        """How many hosts have members that may hold replicas that vote; at least one."""
        able = filter(self.placement.may_hold, self.members.by_number)
        return max(1, len(set(map(self.members.host_of, able))))

    def rack_of(self, number: int) -> str:
        """Where a member says that it is: its site, and then the rack there."""
        rack = next((each.rack for each in self.members.listeners.get(number, ()) if each.rack), "")
        site = self.placement.sites.members.get(number, "")
        is_within = not site or rack == site or rack.startswith(f"{site}/")
        return rack if is_within else f"{site}/{rack}".rstrip("/")

    def open_partition(self, command: OpenPartition) -> None:
        """A partition of a topic is here, in a data group; the others of the topic may not be."""
        topic = self.topics.by_id.get(command.topic_id)
        if topic is None:
            topic = Topic(command.topic_id, command.name, {}, command.at_ms, [])
            topic.is_placed = True
            self.topics.by_id[command.topic_id] = topic
            self.topics.by_name[command.name] = command.topic_id
        topic.settings, topic.partition_numbers = command.settings, command.numbers
        self.follow_enforcing(topic)
        if command.number not in self.partitions.by_number:
            self.add_empty(topic, command.number, command.numbers.index(command.number))
            if command.source is not None:
                made = Mirror(command.source, command.at_ms)
                self.mirrors.begin(topic.topic_id, made, (command.number,))

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Give a topic more partitions, with numbers that none ever had."""
        first = topic.partitions
        self._add_empty(topic, self.number_partitions(topic, count), first)

    def number_partitions(self, topic: Topic, count: int) -> list[int]:
        """Give a topic more numbers, which no partition ever had; its views get as many of their
        own.
        """
        given: list[int] = []
        views = self.views.of_topic(topic.topic_id)
        for step in repeat(1, count) if views else (count,):  # views have numbers in between
            first = self.partitions.next_number
            given += range(first, first + step)
            self.partitions.next_number += step
            for view in views:
                self.views.number(view, self.partitions.next_number)
                self.partitions.next_number += 1
        topic.partition_numbers += given
        return given

    def add_empty(self, topic: Topic, number: int, index: int) -> None:
        """A topic has a partition of that number here."""
        self._add_empty(topic, [number], index)

    def _add_empty(self, topic: Topic, numbers: Sequence[int], first: int) -> None:
        """Thousands come in one command: no function is called for each."""
        topic_id, known = topic.topic_id, self.partitions
        made = {number: Partition(number, topic_id, at) for at, number in enumerate(numbers, first)}
        known.by_number |= made
        known.next_number = max(known.next_number, max(numbers, default=0) + 1)
        self._begin_versions(topic, numbers)
        if has_keys(topic.settings):
            self.keys.by_partition |= {number: KeyedPartition() for number in numbers}

    def _begin_versions(self, topic: Topic, numbers: Iterable[int]) -> None:
        """The newest version of a topic's schema is in force in logs that are empty."""
        for number in numbers if topic.schemas else ():
            self.partitions.by_number[number].begin_version(len(topic.schemas))

    @property
    def partition_tables(self) -> Mapping[str, PartitionTable]:
        """Everything that a group knows of its partitions, in the order in which its tables
        learn what happens to one.
        """
        return {
            "partitions": self.partitions,
            "sessions": self.sessions,
            "producers": self.producers,
            "watermarks": self.watermarks,
            "open_transactions": self.open_transactions,
            "epochs": self.epochs,
            "keys": self.keys,
            "mirrors": self.mirrors,
            "transfers": self.transfers,
        }

    def drop_partitions(self, numbers: Collection[int]) -> None:
        """These partitions are not in this group any more."""
        for table in self.partition_tables.values():
            table.drop(numbers)

    def restart_logs(self, moved: Mapping[int, int]) -> None:
        """The logs of partitions are empty again, under other numbers, which their topics have."""
        for table in self.partition_tables.values():
            table.renumber(moved)
        known = self.partitions.by_number
        for number in moved.values():
            self._begin_versions(self.topics.by_id[known[number].topic_id], (number,))
