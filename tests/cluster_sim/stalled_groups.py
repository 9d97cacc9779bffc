"""Worlds in which a data group has no majority for long, while group 0 and other groups have one.
Publishers have inputs in all of them, end runs and begin new ones; an operator moves partitions.

Invariant: what a newer run writes to a group that has a majority is acknowledged within bounded
time, though older runs have bytes for the group that has none (rule sessions.60).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samelog.publisher.session_writer import SessionWriter
from tests.cluster_sim.history import Name, RunHistory
from tests.cluster_sim.options import Options, many_groups
from tests.cluster_sim.rhythm import Rhythm
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.publisher import PublisherActor
    from tests.cluster_sim.world import World

LOOK_S = 0.3
NODES, GROUPS, REPLICAS = 5, 3, 3
NOTICED_S = 4.0
"""By then, the members know that the group has no leader, and the others have one."""
WITHIN_S = 25.0
REST_S = 5.0


def stalling(seed: int) -> Options:
    """The world of a seed in which groups lose their majorities in turn, and publishers fail."""
    options = many_groups(seed)
    return replace(
        options,
        nodes=NODES,
        data_groups=GROUPS,
        replicas=REPLICAS,
        publishers=2,
        subscribers=min(1, options.subscribers),
        kinds=("kill_publisher", "power_loss_publisher", "fuse_publisher"),
        fault_every_s=25.0,
        rhythm=Rhythm(8.0, 1.0),
        append_every_s=0.2,
        changes=(),
        resets=(),
        stagers=0,
        producers=0,
        deaths_at_tasks=0.0,
        keys=0,
        first_keys=0,
        misfits=0.0,
        slow_chance=0.0,
        sync_s=min(options.sync_s, 0.02),
        latency_s=min(options.latency_s, 0.002),
        runs_remembered=4,
        safety_s=120.0,
        stalls_groups=True,
    )


@dataclass(slots=True)
class Probe:
    """What a newer run has written to a partition, and how many appends that were."""

    actor: PublisherActor
    writer: SessionWriter
    name: Name
    run: RunHistory
    appends: int


class StalledGroups:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(f"stalled groups {world.options.seed}")
        self._cut: list[int] = []
        """The members that hear no other one."""
        self.passed = 0
        """How many newer runs continued beside a group without a majority."""
        self.parted = 0
        """How often a part of a closed run was yet to come, when a newer run continued."""

    def plan(self) -> None:
        """Begin to cut members off."""
        if self._world.options.stalls_groups:
            self._world.later(LOOK_S, self._step)

    def _step(self) -> None:
        """Cut two members of a group off from all others."""
        world = self._world
        if world.is_healed:
            return
        table = world.data_groups.table()
        full = [members for members in table.values() if len(members) == REPLICAS]
        if len(full) < GROUPS or not world.spanning.places:
            world.later(LOOK_S, self._step)
            return
        self._cut = self._chance.sample(sorted(self._chance.choice(full)), 2)
        for actor in self._actors():
            for other in world.nodes:
                if other is not actor:
                    world.network.cuts |= {(actor.host, other.host), (other.host, actor.host)}
        world.trace.event("stall", " ".join(actor.host for actor in self._actors()))
        world.later(NOTICED_S, self._end_runs)

    def _actors(self) -> list[NodeActor]:
        number_of = self._world.membership.number_of
        return [actor for actor in self._world.nodes if number_of(actor) in self._cut]

    def _end_runs(self) -> None:
        """Publishers end their runs, and begin others in all groups."""
        probes = [probe for actor in self._world.publishers for probe in self._write(actor)]
        self._world.later(WITHIN_S, lambda: self._look(probes))

    def _write(self, actor: PublisherActor) -> Iterator[Probe]:
        world, writer = self._world, actor.writer
        if world.is_healed or writer is None or not actor.is_up:
            return
        if writer._run is not None:
            writer.end_run()
        for name in world.spanning.places:
            run = actor.append(writer, actor.session, name)
            if run is not None:
                yield Probe(actor, writer, name, run, len(run.appends))

    def _look(self, probes: list[Probe]) -> None:
        """All that was written where a majority is there must be acknowledged."""
        world = self._world
        if world.is_healed:
            return
        for probe in probes:
            is_same = probe.actor.is_up and probe.actor.writer is probe.writer
            if not is_same or not self._is_well(probe.name):
                continue
            if probe.run.acknowledged < probe.appends:
                text = f"{probe.actor.session} in {probe.name}: {probe.run}"
                world.violated(Violation("groups do not wait for each other", text))
                return
            self.passed += 1
        newest = max(
            (actor.node.cluster for actor in world.nodes if actor.node is not None),
            key=lambda state: state.placement.version,
        )
        self.parted += len(newest.sessions.index.parted)
        world.network.mend()
        world.later(REST_S, self._step)

    def _is_well(self, name: Name) -> bool:
        """Whether the group of a partition has a majority, and no task is about to move it."""
        world = self._world
        nodes = [actor.node for actor in world.nodes if actor.node is not None]
        for node in nodes:
            topic, table = node.cluster.topics.named(name[0]), node.cluster.placement
            if topic is None:
                return False
            number = topic.partition_numbers[name[1]]
            if number in table.moves or number in {each.partition for each in table.tasks.values()}:
                return False
            group = table.group_of(number)
            members = [{*table.groups[group].members}] if group in table.groups else []
            members += [
                {*each.data_groups.replicas[group].raft.raft.voters}
                for each in nodes
                if group in each.data_groups.replicas
            ]
            if any(len(those & {*self._cut}) * 2 >= len(those) for those in members):
                return False
        return True
