"""An operator of data groups in a simulated cluster: drains nodes, moves partitions, cancels and
pauses tasks, and sets default numbers of copies, at any time; in the end it takes everything back,
and recovers groups that no node can give a leader.

Invariant: at the end nothing is under way, and each partition is in the group that the table names,
open, and in no other one. A group is recovered only where the product allows it: no majority of
voters is up and sure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from samelog.consensus import Busy, NotLeader
from samelog.placement import operations
from samelog.placement.changes import AnyChange, PauseTasks, SetDefaultCopies, WantGroup
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused, TaskState
from samelog.placement.values import PassStage, Placement
from samelog.sequencer.admin.placement import other_copies
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import ChangePlacement, PlaceTopic
from samelog.sequencer.state.types import State
from tests.cluster_sim.group_checker import PLACED
from tests.cluster_sim.process import Process

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

PARTITIONS = 4
CONVERTS_SHARE = 0.5
MOST_COPIES = 5
"""Where topics are deleted, too: more than many of these clusters have members."""
TOPIC = "f" * 32
LEADERLESS_S = 20.0
"""So long a group has no leader before the operator recovers it."""


class Operator:
    """Of one world."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._defaults = random.Random(f"defaults {world.options.seed}")
        self._leaderless: dict[int, float] = {}
        """Group -> since when none of its replicas knows a leader."""

    def ask(self, node: Node, process: Process) -> None:
        """Ask the leader of group 0 for something, which may be refused or lost."""
        if self._world.options.converts and self._chance.random() < CONVERTS_SHARE:
            self._world.loop.call_in(process, 0.0, self._change, node, self._convert)
            return
        if TOPIC not in node.cluster.topics.by_id:
            self._world.loop.call_in(process, 0.0, self._place, node)
            return
        what: list[Callable[[Node], Sequence[AnyChange]]] = [
            self._drain,
            self._drain,
            self._stop_draining,
            self._cancel,
            self._cancel,
            self._move,
            self._move,
            self._move,
            lambda _: operations.balance(),
            lambda _: [PauseTasks(are_paused=self._chance.random() < 0.3)],
        ]
        self._world.loop.call_in(process, 0.0, self._change, node, self._chance.choice(what))

    def _change(self, node: Node, plan: Callable[[Node], Sequence[AnyChange]]) -> None:
        with suppress(NotLeader, Busy, PlacementRefused):
            changes = list(plan(node))
            if changes:
                self._world.data_groups.plans(changes)
                node.raft.group.propose([ChangePlacement(-1, changes)])

    def set_default(self) -> None:
        """Ask the leader of group 0 to give topics another number of copies by default, or none."""
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is not None and process is not None and node.raft.group.is_leader:
                self._world.loop.call_in(process, 0.0, self._change, node, self._default)

    def _default(self, node: Node) -> Sequence[AnyChange]:
        most = min(MOST_COPIES, len(node.cluster.members.by_number))
        return [SetDefaultCopies(self._defaults.randint(0, most))] if node.level else []

    def _place(self, node: Node) -> None:
        table, level = node.cluster.placement, node.cluster.members.level
        if not table.groups:  # they may end, where topics are converted
            return
        groups = self._chance.choices(sorted(table.groups), k=PARTITIONS)
        command = PlaceTopic(table.version, TOPIC, PLACED, {}, level, [], groups)
        with suppress(NotLeader, Busy):
            node.raft.group.propose([command])

    def _drain(self, node: Node) -> Sequence[AnyChange]:
        table = node.placing.look()
        name = self._any(table)
        return operations.drain(table, node.placing.states(), name)

    def _stop_draining(self, node: Node) -> Sequence[AnyChange]:
        table = node.placing.look()
        return operations.stop_draining(table, self._any(table))

    def _any(self, table: PlacementTable) -> str:
        return table.members[self._chance.choice(sorted(table.members))].name

    def _cancel(self, node: Node) -> Sequence[AnyChange]:
        table = node.placing.look()
        tasks = sorted(table.placement.tasks)
        return operations.cancel(table, self._chance.choice(tasks)) if tasks else []

    def _move(self, node: Node) -> Sequence[AnyChange]:
        table = node.cluster.placement
        partition = self._chance.choice(sorted(table.partitions))
        return [WantGroup(partition, self._chance.choice(sorted(table.groups)))]

    def _convert(self, node: Node) -> Sequence[AnyChange]:
        """A topic that was made on every node gets another number of copies."""
        topics = [each for each in node.cluster.topics.by_id.values() if each.topic_id != TOPIC]
        if not topics:
            return []
        topic = self._chance.choice(sorted(topics, key=lambda each: each.name))
        options, members = self._world.options, len(node.cluster.members.by_number)
        most = MOST_COPIES if options.recreates else min(3, members)
        copies = self._chance.randint(1, most)
        able = self._world.data_groups.able(node)
        now_ms = node.member.clock.wall_ms()
        asked = topic.partition_numbers, copies, now_ms
        return other_copies(node.cluster, able.__contains__, *asked)

    # --- at the end -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Ask the leader of group 0 to undo everything the operator asked for, and to cancel tasks
        that give a replica to a node that stays away: such a task waits for `replace_after_s`, much
        longer than the world runs.
        """
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is None or process is None or not node.raft.group.is_leader:
                continue
            placement = node.cluster.placement
            draining = [
                each for each in placement.draining if each in node.cluster.members.by_number
            ]
            is_asked = draining or placement.are_paused or placement.declined
            if is_asked or self._stuck_tasks(placement):
                self._world.loop.call_in(process, 0.0, self._change, node, self._as_it_was)
            for number in self._without_leader(placement):
                recover = partial(self._recover, number)
                self._world.loop.call_in(process, 0.0, self._change, node, recover)

    def _without_leader(self, placement: Placement) -> list[int]:
        """Return the groups that have had no leader for long."""
        now = self._world.loop.time()
        for number in placement.groups:
            replicas = self._replicas(number).values()
            if any(each.raft.raft.leader is not None for each in replicas):
                self._leaderless.pop(number, None)
            else:
                self._leaderless.setdefault(number, now)
        return [
            number
            for number, since in self._leaderless.items()
            if now - since >= LEADERLESS_S and number in placement.groups
        ]

    def _replicas(self, group: int) -> dict[str, DataReplica]:
        """Return the replicas of a group by the names of their nodes."""
        nodes = [actor.node for actor in self._world.nodes if actor.node is not None]
        return {
            node.member.config.name: node.data_groups.replicas[group]
            for node in nodes
            if group in node.data_groups.replicas
        }

    def _recover(self, group: int, node: Node) -> Sequence[AnyChange]:
        """Continue a group with its newest replica, as `samelog recover group` does."""
        replicas = self._replicas(group)
        logs = {name: each.raft.raft.log for name, each in replicas.items()}
        if not logs:
            return []
        newest = max(logs, key=lambda name: (logs[name].last_term, logs[name].last_index))
        suspect = [name for name, each in replicas.items() if not each.raft.raft.may_vote]
        return operations.recover(node.placing.look(), newest, group, suspect)

    def _stuck_tasks(self, placement: Placement) -> list[int]:
        """Return the tasks that give a replica to a node that stays away."""
        number_of = self._world.membership.number_of
        away = {number_of(actor) for actor in self._world.nodes if actor.stays_away}
        return [
            number
            for number, task in placement.tasks.items()
            if task.gets in away and task.state is not TaskState.CANCELLING
        ]

    def _as_it_was(self, node: Node) -> Sequence[AnyChange]:
        table = node.placing.look()
        changes: list[AnyChange] = [PauseTasks(are_paused=False), *operations.allow()]
        for number in table.placement.draining:
            if number in table.members:  # others were removed since
                changes += operations.stop_draining(table, table.members[number].name)
        for number in self._stuck_tasks(table.placement):
            changes += operations.cancel(table, number)
        return changes

    def waits_for(self) -> str:
        """What is not as it must be at the end; empty: nothing."""
        nodes = [actor.node for actor in self._world.nodes if actor.node is not None]
        newest = max(nodes, key=lambda node: node.cluster.placement.version)
        table = newest.cluster.placement
        draining = [each for each in table.draining if each in newest.cluster.members.by_number]
        if table.tasks or draining or table.are_paused or table.declined:
            return f"tasks are under way: {table.tasks}, {newest.placing.waits}"
        if table.resetting:
            return f"groups have yet to restart their logs: {table.resetting}"
        for node in nodes:
            if left := _left_behind(node, table):
                return f"{node.member.config.name}: {left}"
            for number, replica in node.data_groups.replicas.items():
                own = replica.group_replica.logs.machine.state
                if waits := _misplaced(node.cluster, number, own):
                    return f"{node.member.config.name}: {waits}"
        return ""


def _left_behind(node: Node, table: Placement) -> str:
    """What group 0 has open of what the table has elsewhere, or on its way there."""
    own = node.cluster.transfers.passing
    if own is not None and own.stage is PassStage.SEALED and _exists(node.cluster, own.partition):
        return f"group 0 has sealed partition {own.partition}"
    left = node.logs.merging.partitions.keys() & table.partitions.keys()
    return f"group 0 has partitions {sorted(left)}" if left else ""


def _exists(cluster: State, partition: int) -> bool:
    """Whether the topic of a partition was not deleted: what a group's state says of the pass of
    another partition stays until the next pass.
    """
    return any(partition in topic.partition_numbers for topic in cluster.topics.by_id.values())


def _misplaced(cluster: State, group: int, own: State) -> str:
    """What one group has, or lacks, against the table."""
    table, passing, partitions = cluster.placement, own.transfers.passing, own.partitions.by_number
    wanted = {each.number for each in table.partitions.values() if each.group == group}
    if wanted != set(partitions):
        return f"group {group} has partitions {sorted(partitions)}, not {sorted(wanted)}"
    stages = PassStage.COPYING, PassStage.SEALED
    if passing and passing.stage in stages and _exists(cluster, passing.partition):
        return f"group {group} is {passing.stage.name} for partition {passing.partition}"
    return ""
