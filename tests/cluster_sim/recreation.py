"""Worlds in which topics are deleted and created again under their names, and nothing else is
special: an administrator deletes topics while publishers write to them, and sometimes decides that
held records continue.

What is merged where depends on when a publisher learns of a deletion, so these worlds are checked
by content, not by positions: every record that was written is in a log of its topic at the end,
whichever id that log has; nothing is removed before that; each log has each session's records once
and in order.

Invariant: every topic that was deleted is created again.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from samelog.config.tables.client import OnRecreate
from samelog.consensus import Busy, NotLeader
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.progress import LostRange
from samelog.sequencer.node import Node
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from tests.cluster_sim.checker import Checker
from tests.cluster_sim.history import Name, Written
from tests.cluster_sim.lineage import Lineage
from tests.cluster_sim.options import FORGETTING, Options, converting, from_seed
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.publisher import PublisherActor
    from tests.cluster_sim.world import World

STEP_S = 1.0
LOSSY = ("power_loss_publisher", "fuse_publisher", "stale_publisher", "full_disk", "failing_sync")


def recreating(seed: int) -> Options:
    """The world of a seed in which topics are created again."""
    options = from_seed(seed - seed % 10 + 1 + seed % 9)
    kinds = tuple(kind for kind in options.kinds if kind not in (*FORGETTING, *LOSSY))
    return replace(
        options,
        seed=seed,
        recreates=True,
        kinds=kinds,
        subscribers=1 + seed % 2,
        resets=(),
        changes=(),
        upgrades=False,
        producers=0,
        keys=0,
        first_keys=0,
        misfits=0.0,
        copies=False,
        data_groups=0,
        stagers=0,
        retention_bytes=-1,
        minority_stays_away=False,
        safety_s=min(options.safety_s, 16.0),
    )


def recreating_in_groups(seed: int) -> Options:
    """The world of a seed in which topics are created again, and their partitions move into data
    groups meanwhile; an operator asks for more copies than there are members, too.
    """
    options = converting(seed)
    return replace(
        options,
        recreates=True,
        kinds=tuple(kind for kind in options.kinds if kind not in LOSSY),
        subscribers=0,
        upgrades=False,
        producers=0,
        stagers=0,
        misfits=0.0,
        copies=False,
    )


class Recreation:
    """The administrator of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"recreation {world.options.seed}")
        self.deleted = 0

    def plan(self) -> None:
        """Begin to delete topics."""
        if self._world.options.recreates:
            self._world.later(STEP_S, self._step)

    def _step(self) -> None:
        world = self._world
        world.create_topics()
        for publisher in world.publishers:
            if world.is_healed or self._chance.random() < 0.2:
                self._continue(publisher)
        if not world.is_healed:
            self._delete(f"t{self._chance.randrange(world.options.topics)}")
        world.later(self._chance.expovariate(1 / STEP_S), self._step)

    def _continue(self, publisher: PublisherActor) -> None:
        client, process = publisher.client, publisher.process
        if client is not None and process is not None:
            recreation = client.beside.recreation
            held = {each.topic_id for each in recreation.held.values()}
            decide = partial(recreation.decide, OnRecreate.CONTINUE, held)
            self._world.loop.call_in(process, 0.0, decide)

    def _delete(self, name: str) -> None:
        """Ask the leader; a later step creates the topic again."""
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is None or process is None or not node.raft.group.is_leader:
                continue
            topic = node.raft.replica.machine.state.topics.named(name)
            if topic is not None:
                self.deleted += 1
                self._world.trace.event(actor.host, f"is asked to delete {name}")
                self._world.loop.call_in(process, 0.0, _propose, node, topic.topic_id)

    def waits_for(self) -> str:
        """What is held, or has yet to be created; empty: nothing."""
        if not self._world.options.recreates:
            return ""
        for publisher in self._world.publishers:
            client = publisher.client
            if client is not None and client.status.held:
                return f"{publisher.session} holds {list(client.status.held)}"
        return ""


def _propose(node: Node, topic_id: str) -> None:
    with suppress(NotLeader, Busy):
        node.raft.group.propose([DeleteTopicCommand(topic_id)])


class RecreatedLineage(Lineage):
    """The logs of topics that are created again: each topic id has its own."""

    def told(self, state: State) -> None:
        """Raft knows of these topics."""
        for topic in state.topics.by_id.values():
            known = self._ids.setdefault(topic.name, [])
            if topic.log_id not in known:
                known.append(topic.log_id)

    def _accepts(self, name: Name, log_id: str, session: str, number: int) -> None:
        """A node that lags merges into a topic that was deleted, too."""

    def holds(self, name: Name, session: str, number: int) -> bool:
        """Whether any log that a partition has had has a record."""
        return any(
            log.end_of(session, number) is not None
            for log in self.logs.values()
            if (log.topic, log.partition) == name
        )


class RecreationChecker(Checker):
    """Watches such a world."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.lineage: RecreatedLineage = RecreatedLineage(world.history)

    def _merge_committed(self, actor: NodeActor, part: Range) -> None:
        """Do nothing: positions belong to one topic id; records are compared instead."""

    def _check_committed(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> None:
        """As above."""

    def publisher_lost(self, actor: PublisherActor, lost: tuple[LostRange, ...]) -> None:
        """A run was closed without an input, perhaps because the topic was deleted: what is known
        to be lost then is held once that is known.
        """

    def _check_merged(
        self, actor: PublisherActor, name: InputName, append: Written, path: str
    ) -> None:
        for number in append.numbers:
            if not self.lineage.holds(name, actor.session, number):
                text = f"{path} goes, {actor.session} {number} is nowhere merged"
                raise Violation("removed is merged", text)

    def check_end(self) -> None:
        """Every record that was written is merged. Raises Violation."""
        for (session, _, name), run in self.world.history.runs.items():
            for append in run.appends:
                for number in append.numbers:
                    if not self.lineage.holds(name, session, number):
                        raise Violation("all is merged", f"{session} {number} of {name} is lost")
        for actor in self.world.actors.values():
            if actor.is_up:
                self._looked_at.clear()
                actor.looked_when = ()
                actor.look()
