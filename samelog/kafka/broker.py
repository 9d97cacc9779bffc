"""What the API handlers know of the node they run in, in Kafka's words.

The partition leader that clients are told is the Raft leader, and its term the leader epoch, for
all partitions; but every node takes what clients send it, and serves what it has.

Invariant: what is said of topics is replicated state; offsets that are promised to exist were
committed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from samelog.admin.answers import NodeState
from samelog.archiver.policy import Policy
from samelog.format.names import EVENTS_TOPIC
from samelog.format.steps import StepWork
from samelog.kafka.access.acls import CLUSTER, EVERYTHING, AclDecisions, AclOperation, AclResource
from samelog.kafka.any_broker import (
    AnyBroker,
    BatchLog,
    BrokerEndpoint,
    KafkaClient,
    WatchedLog,
)
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.primitives import ELEMENTS_MAX
from samelog.kafka.groups.driver import GroupDriver
from samelog.kafka.groups.patterns import TopicPatterns
from samelog.kafka.placed import PlacedPartitions
from samelog.kafka.producer_log import ProducerLog
from samelog.kafka.state_topics.topics import MAY, RESERVED, StateTopics, is_reserved
from samelog.kafka.transactions.coordinator import TransactionCoordinator
from samelog.kafka.views import KafkaViews
from samelog.placement.defaults import copies_of_new, goal_of_topic
from samelog.placement.tasks import PlacementRefused
from samelog.runtime.slices import paced
from samelog.sequencer.admin.new_topics import create
from samelog.sequencer.admin.openings import until_open
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.judging import libraries
from samelog.sequencer.merge.merged_partition import MergedPartition
from samelog.sequencer.parts import LogParts, MemberParts, PeerParts, RaftParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.places import all_topics, base_topic
from samelog.sequencer.state.tables.access import AccessTable
from samelog.sequencer.state.tables.feeds import STATE_NUMBERS
from samelog.sequencer.state.tables.topics import CreateTopicCommand, Topic
from samelog.sequencer.state.topic_settings import MAX_MESSAGE_BYTES

PRODUCER_SESSION = "kafka"
"""The session that a grant to publish has to name for Kafka producers."""
ANSWER_S = 3.0
"""How long a question to the cluster may take before the client is told to ask again."""


LISTED_S = 10.0
"""How long a node that is down is listed: Kafka's broker.session.timeout.ms is 9 s."""


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of a node that serve its Kafka clients."""

    member: MemberParts
    logs: LogParts
    raft: RaftParts
    peers: PeerParts
    archive_policy: Callable[[], Policy | None]
    """The archiving policy as it is now."""
    data_groups: DataGroups
    groups: GroupDriver
    """Whoever made it starts and closes it."""
    batches: ProducerLog


class Broker(AnyBroker):
    """One node, as Kafka clients see it."""

    def __init__(self, parts: BrokerParts) -> None:
        member = parts.member
        super().__init__(parts.peers.number, member.config.cluster, member.clock)
        self.parts = parts
        self.config = member.config
        self.machine = parts.logs.machine
        """The replicated state."""
        self.sent = member.measures.sent
        self.groups = parts.groups
        self.transactions: TransactionCoordinator = TransactionCoordinator(
            parts.raft, self.machine, self.clock, parts.data_groups
        )
        self.patterns = TopicPatterns(lambda: self.machine.state)
        name, number = member.config.name, parts.peers.number
        self.batches: ProducerLog = parts.batches
        self.state_topics = StateTopics(self.machine)
        self.placed = PlacedPartitions(name, number, self.machine, parts.data_groups, self.batches)
        self.views = KafkaViews(self.machine, member.filters, member.rights)
        self.defaults = self.config.kafka.defaults
        """What counts for topics that set nothing."""
        self._merging = parts.logs.merging
        self._acls = AclDecisions(lambda: self.access)

    @property
    def access(self) -> AccessTable:
        """What administrators set over the Kafka protocol."""
        return self.machine.state.access

    # --- the cluster ------------------------------------------------------------------------------

    @property
    def leader(self) -> int | None:
        """The node that leads every partition; None if none is known."""
        return self.parts.raft.group.raft.leader

    @property
    def leads(self) -> bool:
        """Whether this node leads, and has executed all that was committed before."""
        return self.parts.raft.group.is_leader

    @property
    def epoch(self) -> int:
        """The leader epoch of every partition."""
        return self.parts.raft.group.raft.term + self.machine.state.epochs.base

    @property
    def majority(self) -> int:
        """How many nodes a record is on before it is acknowledged."""
        return len(self.parts.raft.group.raft.voters) // 2 + 1

    def nodes(self) -> list[int]:
        """The numbers of all members."""
        return sorted(self.parts.peers.members.all)

    def endpoints(self, listener: str) -> list[BrokerEndpoint]:
        """Nodes that went are listed for a while, as Kafka does: a client that loses the leader
        from its list and learns of the next one at once forgets both for a second (librdkafka).
        """
        now = self.clock.now()
        return [
            BrokerEndpoint(number, known.host, known.port, known.rack or None)
            for number, listeners in sorted(self.machine.state.members.listeners.items())
            for known in listeners
            if known.name == listener and self.parts.peers.presence.was_there(number, now, LISTED_S)
        ]

    @property
    def is_syncing(self) -> bool:
        """Whether this node copies what others have; a leader has nobody to send clients to."""
        is_syncing = self.parts.member.status.state is NodeState.SYNCING
        return is_syncing and self.leader not in (None, self.number)

    @property
    def elements_max(self) -> int:
        return min(ELEMENTS_MAX, self.machine.state.elements_max)

    def is_there(self, number: int) -> bool:
        """Whether this node knows another node to be up."""
        return self.parts.peers.presence.is_there(number)

    def may_hold(self, number: int) -> bool:
        """Whether a node may begin a replica of a new group."""
        return self.parts.peers.may_hold(number, self.machine.state, self.clock.now())

    def nearest(self, client: KafkaClient, rack: str, topic: Topic, index: int) -> int:
        """The node that a client in a rack had better read a partition from (KIP-392); -1: this
        one. Only the leader sends clients elsewhere: whom it sent stays there.
        """
        leads = self.leader_of(topic, index) == self.number
        if not rack or not leads or self._is_in(rack, self.number, self.config.kafka.rack):
            return -1
        whole = set(self.nodes_of(topic, index)) - set(self.behind(topic, index))
        known = (end for end in self.endpoints(client.listener) if end.number in whole)
        near = [end.number for end in known if self._is_in(rack, end.number, end.rack or "")]
        near = [*filter(self._is_live, near)]
        return near[index % len(near)] if near else -1

    def _is_in(self, rack: str, number: int, own: str) -> bool:
        """Whether a node, whose rack is `own`, is in this rack, site, or `site/rack`."""
        where = self.machine.state.rack_of(number)
        return own == rack or f"{where}/".startswith(f"{rack}/")

    def _is_live(self, number: int) -> bool:
        """By its own word."""
        said, _ = self.parts.peers.presence.said(number, self.clock.now())
        return said.state == NodeState.LIVE.value

    async def catch_up(self) -> None:
        """Wait until what was committed before this call is applied here. Raises ApiError."""
        with self._answered():
            async with asyncio.timeout(ANSWER_S):
                await self.parts.raft.proposer.catch_up()

    @staticmethod
    @contextmanager
    def _answered() -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            text = "no leader has answered: ask again"
            raise ApiError(ErrorCode.leader_not_available, text) from error

    async def propose(self, command: AnyCommand, raft: RaftParts | None = None) -> None:
        """Have the cluster, or a group, do something. Raises ApiError."""
        try:
            outcome = await (raft or self.parts.raft).proposer.propose(command)
        except TimeoutError as error:
            raise ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED) from error
        if isinstance(outcome, Rejection):
            raise _error_of(outcome)

    async def propose_all(
        self, commands: Sequence[AnyCommand], wait_s: float
    ) -> list[ApiError | None]:
        """Have the cluster do several things at once: why each is not done, if it is not. Those
        that are not known to be done within `wait_s` may be done later.
        """
        try:
            async with asyncio.timeout(wait_s):
                outcomes = await self.parts.raft.proposer.propose_all(commands, longer_s=wait_s)
        except TimeoutError:
            return [ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED)] * len(commands)
        return [_error_of(each) if isinstance(each, Rejection) else None for each in outcomes]

    # --- topics -----------------------------------------------------------------------------------

    def topics(self) -> Iterable[Topic]:
        """All topics of the cluster, and views as topics."""
        return all_topics(self.machine.state)

    def topic(self, key: str | UUID) -> Topic | None:
        """A topic by its name or its id."""
        if isinstance(key, UUID):
            return self.machine.state.topics.of_log(key.hex) or self.views.topic(key)
        return self.machine.state.topics.named(key) or self.views.topic(key)

    def listed(self) -> Iterable[Topic]:
        return chain(self.topics(), self.state_topics.listed())

    def shown(self, key: str | UUID) -> Topic | None:
        if isinstance(key, UUID):
            found = self.machine.state.topics.of_log(key.hex)
        else:
            found = self.machine.state.topics.named(key)
        return found or self.views.topic(key) or self.state_topics.topic(key)

    def partition(self, topic: Topic, index: int) -> WatchedLog | None:
        """A partition as this node has it. Raises ApiError if a data group has it elsewhere."""
        numbers = topic.partition_numbers
        if not 0 <= index < len(numbers):
            return None
        there = self._merging.partitions.get(numbers[index])
        if there is not None and not topic.is_placed:
            return there
        if numbers[index] >= STATE_NUMBERS:
            return self.state_topics.stream(topic, index)
        view = self.views.of(topic)
        base = base_topic(self.machine.state, topic)
        merged, number = self._merged(base, index), base.partition_numbers[index]
        if view is None:
            return merged
        return self.views.partition(view, merged, self.machine_of(base, index), number)

    def _merged(self, topic: Topic, index: int) -> MergedPartition:
        number = topic.partition_numbers[index]
        if topic.is_placed:
            return self.placed.here(topic, index).logs.merging.partition(number)
        return self._merging.partition(number)

    def files_of(self, topic: Topic, index: int) -> MergedPartition:
        """A partition as this node has it on its disk; it is not opened for that. Raises ApiError
        if a data group has it elsewhere.
        """
        logs = self.placed.here(topic, index).logs if topic.is_placed else self.parts.logs
        return logs.merging.look(topic.partition_numbers[index])

    def partition_number(self, key: str | UUID, index: int) -> int | None:
        """The cluster-wide number of a partition; None if there is none."""
        topic = self.topic(key)
        if topic is None or not 0 <= index < topic.partitions:
            return None
        return topic.partition_numbers[index]

    def committed(self, topic: Topic, index: int) -> int:
        """The offset behind everything that is committed in a partition, executed here or not."""
        machine = self.machine_of(topic, index) if topic.is_placed else self.machine
        known = machine.state.partitions.by_number.get(topic.partition_numbers[index])
        if known is None and topic.is_generated:
            return self.state_topics.end(topic, index)
        if known is None and self.views.of(topic) is not None:
            return self.committed(base_topic(self.machine.state, topic), index)
        return 0 if known is None else known.next_offset

    def machine_of(self, topic: Topic, index: int) -> StateMachine:
        """The state of the group that has a partition. Raises ApiError."""
        return self.placed.here(topic, index).logs.machine if topic.is_placed else self.machine

    def stable(self, topic: Topic, index: int) -> int:
        """The offset below which every transaction is decided, with its marker committed."""
        topic = base_topic(self.machine.state, topic)
        state = self.machine_of(topic, index).state
        number, committed = topic.partition_numbers[index], self.committed(topic, index)
        stable = state.open_transactions.stable_offset(number, committed)
        first_open = state.mirrors.first_open(number)
        stable = stable if first_open is None else min(stable, first_open)
        return max(stable, self.log_start(topic, index))

    def log_start(self, topic: Topic, index: int) -> int:
        """The offset below which a partition is archived."""
        topic = base_topic(self.machine.state, topic)
        known = self.machine_of(topic, index).state.partitions.by_number.get(
            topic.partition_numbers[index]
        )
        return 0 if known is None else known.log_start

    # --- partitions of data groups ----------------------------------------------------------------

    def leader_of(self, topic: Topic, index: int) -> int | None:
        if not topic.is_placed:
            return self.leader
        known = self.placed.leader(base_topic(self.machine.state, topic), index)
        return None if known is None else known[1]

    def epoch_of(self, topic: Topic, index: int) -> int:
        if not topic.is_placed:
            bases = self.machine.state.epochs.by_partition
            return (
                self.epoch + bases.get(topic.partition_numbers[index], 0) if bases else self.epoch
            )
        topic = base_topic(self.machine.state, topic)
        known = self.placed.leader(topic, index)
        return -1 if known is None else known[0] + self.placed.epoch_base(topic, index)

    def check_libraries(self, settings: Mapping[str, str], topic: Topic | None = None) -> None:
        """Raises ApiError if a member could not check records that nodes are to check."""
        presence = self.parts.peers.presence
        why = libraries.why_not_from_now_on(presence, self.machine.state, settings, topic)
        if why:
            raise ApiError(ErrorCode.invalid_config, f"{why}: {libraries.REMEDY}")

    def majority_of(self, topic: Topic) -> int:
        """How many nodes each record of a topic is on before it is acknowledged."""
        if not topic.is_placed:
            return self.majority
        table, base = self.machine.state.placement, base_topic(self.machine.state, topic)
        groups = {table.group_of(number) for number in base.partition_numbers}
        copies = [len(table.groups[each].in_order) for each in groups if each in table.groups]
        return min(copies, default=1) // 2 + 1

    def goal_of(self, topic: Topic) -> int:
        """How many copies a topic is to have; 0: one on every node."""
        table, base = self.machine.state.placement, base_topic(self.machine.state, topic)
        return goal_of_topic(table, base.partition_numbers)

    def nodes_of(self, topic: Topic, index: int) -> Sequence[int]:
        base = base_topic(self.machine.state, topic)
        return self.placed.members(base, index) if topic.is_placed else self.nodes()

    def behind(self, topic: Topic, index: int) -> Collection[int]:
        base = base_topic(self.machine.state, topic)
        return self.placed.behind(base, index) if topic.is_placed else ()

    def batches_of(self, topic: Topic, index: int) -> BatchLog:
        self.views.refuse_writes(topic)
        return self.placed.batches(topic, index) if topic.is_placed else self.batches

    async def catch_up_with(self, asked: Iterable[tuple[str | UUID, int]]) -> None:
        await self.catch_up()
        placed = await paced(self._placed_of(asked))
        if placed:
            with self._answered():
                async with asyncio.timeout(ANSWER_S):
                    await self.placed.catch_up(placed)

    def _placed_of(
        self, asked: Iterable[tuple[str | UUID, int]]
    ) -> StepWork[list[tuple[Topic, int]]]:
        """Those partitions that data groups have, once each."""
        found: dict[tuple[str, int], tuple[Topic, int]] = {}
        for key, index in asked:
            topic = self.topic(key)
            if topic is not None and topic.is_placed and 0 <= index < topic.partitions:
                base = base_topic(self.machine.state, topic)
                found[base.topic_id, index] = base, index
            yield
        return [*found.values()]

    def raft_of(self, topic: Topic, index: int) -> RaftParts:
        """The group that has a partition. Raises ApiError."""
        return self.placed.here(topic, index).raft if topic.is_placed else self.parts.raft

    def groups_with_settings(self) -> list[str]:
        """The groups that have settings of their own."""
        return sorted(self.access.groups)

    @property
    def longest_batch(self) -> int:
        """How long a record batch of any topic may be, with its header."""
        return self.parts.logs.intake.longest_batch()

    def max_message_bytes(self, topic: Topic | None) -> int:
        """How long one of the topic may be."""
        longest = self.parts.logs.intake.longest_batch()  # asked for each batch: no call more
        by_default = self.defaults.message_max_bytes or longest
        given = by_default if topic is None else topic.settings.get(MAX_MESSAGE_BYTES, by_default)
        return min(longest, int(given))

    @property
    def auto_creates(self) -> bool:
        """Whether asking for a topic makes it."""
        given = self.defaults.auto_create
        return self.config.auto_create_topics if given is None else given

    async def create_topic(
        self, name: str, topic_id: UUID, partitions: int, settings: dict[str, str]
    ) -> None:
        """Create a topic, and wait until this node knows it. Raises ApiError."""
        now_ms, state = self.clock.wall_ms(), self.machine.state
        command = CreateTopicCommand(topic_id.hex, name, partitions, settings, now_ms)
        copies = copies_of_new(state.placement, None, len(self.nodes()))
        try:
            outcome = await create(self.parts.raft, self.parts.peers, command, copies)
        except TimeoutError as error:
            raise ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED) from error
        except PlacementRefused as error:
            raise ApiError(ErrorCode.invalid_replication_factor, str(error)) from error
        if isinstance(outcome, Rejection):
            raise _error_of(outcome)

    async def until_open(self, partitions: Collection[int], over_at: float) -> list[int]:
        """Wait until leaders have opened these partitions, by number; return those that they have
        not opened at `over_at`, by the clock of the event loop.
        """
        return await until_open(self.parts.data_groups, partitions, over_at)

    async def create_by_default(self, name: str) -> None:
        """Create a topic because a client asked for its metadata. Raises ApiError."""
        over_at = asyncio.get_running_loop().time() + ANSWER_S
        await self.create_topic(name, uuid.uuid4(), self.defaults.num_partitions, {})
        topic = self.topic(name)
        await self.until_open(() if topic is None else topic.partition_numbers, over_at)

    # --- rights: by the file's grants, or else by ACLs --------------------------------------------

    def may_read(self, client: KafkaClient, topic: str) -> bool:
        """Whether a client may fetch from a topic."""
        rights, who = self.parts.member.rights, client.identity
        granted = rights.may_subscribe(who, topic)
        if granted and topic in RESERVED:  # it tells of all groups
            granted = rights.may_use_group(who, EVERYTHING)
        return granted or self._acls_allow(client, AclOperation.READ, AclResource.TOPIC, topic)

    def may_write(self, client: KafkaClient, topic: str) -> bool:
        """Whether it may produce to it."""
        if topic == EVENTS_TOPIC or (topic in RESERVED and is_reserved(topic, self.machine)):
            return False
        rights = self.parts.member.rights
        granted = rights.may_publish(client.identity, PRODUCER_SESSION, topic)
        return granted or self._acls_allow(client, AclOperation.WRITE, AclResource.TOPIC, topic)

    def may_use_transactions(self, client: KafkaClient, transactional_id: str) -> bool:
        """Whether it may be the producer of this transactional id. ACLs about the id decide, if
        there are any; else its owner may, and while it has none, every client that may publish as
        Kafka's producers do.
        """
        decided = self._decision_about(client, transactional_id)
        if decided is not None:
            return decided
        known = self.machine.state.transactions.by_id.get(transactional_id)
        if known is not None and known.owner not in ("", client.identity):
            return False
        return self.parts.member.rights.may_push(client.identity, PRODUCER_SESSION)

    def is_granted_transactions(self, client: KafkaClient, transactional_id: str) -> bool:
        return bool(self._decision_about(client, transactional_id))

    def _decision_about(self, client: KafkaClient, transactional_id: str) -> bool | None:
        """What administrators have decided about a client and a transactional id."""
        if self.may_administer(client):
            return True
        who, about = (client.identity, client.host), AclResource.TRANSACTIONAL_ID
        return self._acls.decision(who, AclOperation.WRITE, (about, transactional_id))

    def may_use_group(self, client: KafkaClient, group: str) -> bool:
        """Whether it may be a member of a group, commit to it, and look at it."""
        granted = self.parts.member.rights.may_use_group(client.identity, group)
        return granted or self._acls_allow(client, AclOperation.READ, AclResource.GROUP, group)

    def may_administer(self, client: KafkaClient) -> bool:
        """Whether it may change everything, by the grants of the configuration file."""
        return self.parts.member.rights.is_admin(client.identity)

    def may(
        self,
        client: KafkaClient,
        operation: AclOperation,
        kind: AclResource = AclResource.CLUSTER,
        name: str = CLUSTER,
    ) -> bool:
        """Whether it may do something with a topic, a group or the cluster."""
        if kind is AclResource.TOPIC and operation not in MAY and is_reserved(name, self.machine):
            return False
        granted = super().may(client, operation, kind, name)
        return granted or self._acls_allow(client, operation, kind, name)

    def granted_topic(self, client: KafkaClient, topic: str) -> tuple[bool, bool]:
        """Whether the configuration file lets it read a topic, and write to it."""
        writes = self.parts.member.rights.may_publish(client.identity, PRODUCER_SESSION, topic)
        if topic in RESERVED:
            return self.may_read(client, topic), writes
        return self.parts.member.rights.may_subscribe(client.identity, topic), writes

    def _acls_allow(
        self, client: KafkaClient, operation: AclOperation, kind: AclResource, name: str
    ) -> bool:
        return self._acls.allow((client.identity, client.host), operation, (kind, name))


def _error_of(refusal: Rejection) -> ApiError:
    return ApiError(REJECTED.get(refusal.code, ErrorCode.unknown_server_error), refusal.message)


NOT_CONFIRMED = "no leader has confirmed it"
REJECTED = {
    "TOPIC_EXISTS": ErrorCode.topic_already_exists,
    "UNKNOWN_TOPIC": ErrorCode.unknown_topic_or_partition,
    "INVALID_TOPIC": ErrorCode.invalid_partitions,
    "INVALID_CONFIG": ErrorCode.invalid_config,
    "MIRROR": ErrorCode.policy_violation,
    "RESERVED_TOPIC": ErrorCode.invalid_topic_exception,
    "INVALID_PARTITIONS": ErrorCode.invalid_partitions,
    "LEVEL_TOO_LOW": ErrorCode.unsupported_version,
    "TOO_LARGE": ErrorCode.policy_violation,
    "TOO_MANY": ErrorCode.policy_violation,
    "VIEWS_STAND": ErrorCode.policy_violation,
    "PLACEMENT_MOVED": ErrorCode.not_controller,
}
