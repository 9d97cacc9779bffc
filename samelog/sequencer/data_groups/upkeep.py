"""What the leader of a data group does beside planning: the group's first configuration, the
cluster's feature level, suspects that may count again, and leadership for who shall have it.

Invariant: a configuration entry names the version that it follows; a suspect is let in only when it
has the log and the merged bytes, by an entry that is committed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress

import msgspec

from samelog.consensus import Busy, ChangePending, NotLeader
from samelog.placement.changes import AnyChange, ConfirmGroup, GroupBegunAnew, TopicsDropped
from samelog.placement.orders import ordered
from samelog.placement.tasks import Action, GroupOrder
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.runtime.clock import Clock
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.keeper_steps import KeeperStep, WantedGroup
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups.resets import begun_anew, opening, owed_reset
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.sites.leading import patience
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.mirrors import TellMirrors
from samelog.sequencer.state.tables.placement import (
    BeginAnew,
    ChangePlacement,
    DropTopics,
    LowerOffsets,
    SetReplicas,
)
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.topics import DeleteTopicCommand, Topic
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.mirrors import ending, mirror_states
from samelog.wire.bounds import Life

COMMANDS_AT_ONCE = 200
ROUND_S = 10.0
"""A replica is close if it has merged everything that is older than this many seconds."""


class DataGroupUpkeep:
    """One replica's; only the leader's acts. Implements group_keeper.KeptGroup."""

    round_s = ROUND_S

    def __init__(
        self,
        replica: GroupReplica,
        group: Callable[[], PlacedGroup],
        *,
        clock: Clock,
        presence: Presence,
        lives: Callable[[], Mapping[int, Life]],
        cluster: Callable[[], State],
        contents: Callable[[], Collection[int]],
    ) -> None:
        """`group`: as the table has it now; `lives`: of the members, as they introduced themselves;
        `cluster`: the state of group 0, as it is here; `contents`: the partitions that the table
        has in the group.
        """
        self._replica = replica
        self._raft = replica.raft.group
        self._group = group
        self._clock = clock
        self._presence = presence
        self._lives = lives
        self._cluster = cluster
        self._contents = contents
        self.keeper = GroupKeeper(
            self,
            group=self._raft,
            machine=replica.logs.machine,
            coordinator=replica.raft.coordinator,
            presence=presence,
            clock=clock,
            cluster=cluster,
            takes_in=lambda: replica.logs.intake.stopped is None,
        )
        self._proposed_at = 0
        """The entry by which topics were followed last."""
        self._whole: set[int] = set()
        """Replicas that were found to be whole."""

    @property
    def is_due(self) -> bool:
        """Whether the leader must propose a command, to its group or to group 0, or must yield."""
        state = self._replica.logs.machine.state
        is_behind = not state.placement.own or state.members.level < self._cluster().members.level
        is_owing = bool(self._behind_topics()) or bool(self.unconfirmed())
        must_yield = self.keeper.is_to_yield or self._presence.is_cut_off
        return is_behind or is_owing or must_yield

    def tick(self) -> None:
        """Take the next step, if there is one."""
        raft, sites = self._raft.raft, self._cluster().placement.sites
        raft.patience.weigh(patience(raft.node_id, sites))
        raft.gather_for(sites.who_only_read(raft.learners))
        if not self._raft.is_leader:
            return
        state = self._replica.logs.machine.state
        placed = self._group()
        if not state.placement.own:
            self._configure(0, list(placed.replicas))
        elif state.members.level < self._cluster().members.level:
            self._configure(state.placement.version, state.placement.own)
        else:
            self.keeper.tick()
            self._follow_topics()

    # --- what the keeper goes by ------------------------------------------------------------------

    def wanted(self) -> WantedGroup:
        """Who should lead, and who is about to go; tasks change the members."""
        placed, tasks = self._group(), self._cluster().placement.tasks.values()
        going = (each.goes for each in tasks if each.group == placed.number)
        return WantedGroup(
            (placed.preferred,), frozenset(each for each in going if each is not None)
        )

    @property
    def may_change(self) -> bool:
        """Never: tasks change the members of a data group, one after another."""
        return False

    def life(self, number: int) -> tuple[Life, bool] | None:
        """A member's life as it introduced itself: a replica is suspect only by what it forgot."""
        life = self._lives().get(number)
        return None if life is None else (life, True)

    def change(self, step: KeeperStep) -> None:
        """Raises ValueError: see `may_change`."""
        raise ValueError(f"a task is needed for {step}")

    # --- placement --------------------------------------------------------------------------------

    def carry_out(self, order: GroupOrder) -> None:
        """Take the next step of a task, if this leads and it may be taken."""
        if not self._raft.is_leader or order.member is None:
            return
        if order.action is Action.LEAD:
            self.keeper.hand_over(order.member)
            return
        known = self._group()
        table = self._replica.logs.machine.state.placement
        own = msgspec.structs.replace(
            known, replicas=tuple(table.own), version=table.version, readers=(), coming=()
        )
        replicas = ordered(order, own, known.replica_of(order.member), self._healthy())
        if replicas is not None:
            self._configure(own.version, list(replicas), str(order.task))

    def _healthy(self) -> list[int]:
        """Members whose replicas are up, and have all that there is now."""
        own = self._replica.logs.machine.state.placement.own
        return [
            each.member
            for each in own
            if self._presence.is_there(each.member) and self._is_whole(each) and self._is_near(each)
        ]

    def _is_near(self, replica: PlacedReplica) -> bool:
        """Whether it lacks only what came in just now: who was away for long counts, and lacks."""
        if replica.member == self._presence.number:
            return self.keeper.has_files(replica.member)
        return self.keeper.is_close(replica.member)

    def _is_whole(self, replica: PlacedReplica) -> bool:
        """Whether it has all that the others have; once it has, that is not asked again."""
        raft, is_own = self._raft.raft, replica.member == self._presence.number
        if replica.votes:
            return is_own or raft.counts(replica.member)
        if replica.replica in self._whole:
            return True
        if not self.keeper.is_close(replica.member):
            return False
        self._whole.add(replica.replica)
        return True

    def unconfirmed(self) -> list[AnyCommand]:
        """Tells group 0 what it does not know of this group, if this leads it."""
        change, dropped = self._unconfirmed(), self._dropped()
        changes: list[AnyChange] = [each for each in (change, dropped) if each is not None]
        lowered = [] if change is None else self._lowered()
        told = [*lowered, ChangePlacement(-1, changes)] if changes else []
        return [*told, *self._mirrors_told()]

    def _mirrors_told(self) -> list[TellMirrors]:
        """By committed entries of this group only, which every later leader has."""
        state = self._replica.logs.machine.state
        if not self._raft.is_leader or not (state.mirrors.places or state.mirrors.ended):
            return []
        states = mirror_states(self._group().number, state, self._cluster())[:COMMANDS_AT_ONCE]
        return [TellMirrors(states)] if states else []

    def _dropped(self) -> TopicsDropped | None:
        """By an entry of this group only, which every later leader has: none of the topics is there
        any more, and none is opened again.
        """
        own, known = self._replica.logs.machine.state.placement, self._group()
        if not self._raft.is_leader or not any(each.version <= own.dropped for each in known.owed):
            return None
        return TopicsDropped(known.number, own.dropped)

    def _unconfirmed(self) -> ConfirmGroup | GroupBegunAnew | None:
        here, known = self._replica.logs.machine.state, self._group()
        state = here.placement
        if not self._raft.is_leader or not state.own or state.version < known.version:
            return None
        if (begun := begun_anew(here, self._cluster(), known.number)) is not None:
            return begun
        replicas = tuple(
            msgspec.structs.replace(each, is_whole=self._is_whole(each)) for each in state.own
        )
        if state.version == known.version and {*replicas} <= {*known.replicas, *known.readers}:
            return None
        return ConfirmGroup(known.number, state.version, replicas)

    def _lowered(self) -> list[AnyCommand]:
        """What group 0 has to lower before it learns that this group went on alone. Of what the
        replica did not have, nothing is left.
        """
        own, known = self._replica.logs.machine.state.placement, self._group()
        went_on = known.is_recovering and own.recovered == known.recovered
        if own.ends is None or not went_on:
            return []
        ends = [(number, own.ends.get(number, 0)) for number in sorted(self._contents())]
        now_ms = self._replica.raft.proposer.clock.wall_ms()
        return [LowerOffsets(known.number, known.recovered, ends, now_ms)]

    def _configure(self, version: int, replicas: list[PlacedReplica], task: str = "") -> None:
        """Propose; whatever comes of it shows in the state."""
        level = self._cluster().members.level
        command = SetReplicas(self._group().number, level, version, task, replicas)
        with suppress(NotLeader, ChangePending):
            future = self._raft.propose_replicas(command)
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _follow_topics(self) -> None:
        commands = self._behind_topics()
        if commands and self._raft.applied_index >= self._proposed_at:
            with suppress(NotLeader, Busy):
                self._proposed_at = self._raft.propose(commands[:COMMANDS_AT_ONCE])

    def _behind_topics(self) -> list[AnyCommand]:
        """Open what the table says is in this group, with the settings that the topic has; let go
        of topics that are known to be deleted. What is not known to group 0 here stays.
        """
        here, cluster = self._replica.logs.machine.state, self._cluster()
        table, number = cluster.placement, self._group().number
        if (reset := self._owed_reset()) is not None:
            return [reset]  # what is opened before would be of the old logs
        commands: list[AnyCommand] = [*self._deletions(cluster)]
        for placed in filter(None, map(table.partitions.get, self._contents())):
            topic = cluster.topics.by_id[placed.topic_id]
            if placed.group == number and not _is_open(here, placed.number, topic):
                commands.append(opening(cluster, placed.number))
        return [*commands, *_new_versions(here, cluster), *ending(here, cluster)]

    def _deletions(self, cluster: State) -> Iterator[DeleteTopicCommand | DropTopics]:
        """What drops the topics that are known to be deleted. Those that group 0 asks for are named
        also where they are not known: what opens them may be on its way.
        """
        own = self._replica.logs.machine.state
        owed = [each for each in self._group().owed if each.version > own.placement.dropped]
        topics = {each.topic_id for each in owed}
        topics.update(
            each for each, topic in own.topics.by_id.items() if was_deleted(topic, cluster)
        )
        yield from map(DeleteTopicCommand, sorted(topics)[:COMMANDS_AT_ONCE])
        if owed and len(topics) < COMMANDS_AT_ONCE:
            yield DropTopics(cluster.placement.version)

    def _owed_reset(self) -> BeginAnew | None:
        here, cluster = self._replica.logs.machine.state, self._cluster()
        owed = owed_reset(here, cluster, self._group().number, self._contents())
        if owed is None:
            return None
        now_ms = self._replica.raft.proposer.clock.wall_ms()
        return BeginAnew(owed[0], now_ms, self._raft.raft.term, owed[1])


def _is_open(here: State, number: int, topic: Topic) -> bool:
    known = here.topics.by_id.get(topic.topic_id)
    is_same = known is not None and (known.settings, known.partition_numbers) == (
        topic.settings,
        topic.partition_numbers,
    )
    return is_same and number in here.partitions.by_number


def was_deleted(topic: Topic, cluster: State) -> bool:
    """Return whether group 0, as this member knows it, has created and deleted a topic: it has
    assigned the numbers of its partitions. A recovered group 0 may have lost some of them.
    """
    first, skipped = topic.partition_numbers[0], cluster.placement.skipped
    was_made = skipped.has_given("partition", first, cluster.partitions.next_number)
    return was_made and topic.topic_id not in cluster.topics.by_id


def _new_versions(here: State, cluster: State) -> Iterator[SetSchemaCommand]:
    """The next version of the schema of each topic that has more of them in group 0."""
    for topic_id, known in here.topics.by_id.items():
        topic = cluster.topics.by_id.get(topic_id)
        if topic is not None and len(topic.schemas) > len(known.schemas):
            newest = len(known.schemas)
            version = topic.schemas[newest]
            text = cluster.schemas.texts[version.fingerprint].text
            yield SetSchemaCommand(topic_id, newest, text, version.set_ms)
