"""What is known of the data groups of one world, where they are followed entry by entry: committed
entries, what is committed and merged, and what hard resets leave of it.

The promises of docs/reliability.md are checked of every group as they are of group 0: a place in a
group has one entry; what is planned for merging is on the disks of a majority of the group's
voters; a file of a publisher goes only once such a majority has all of it merged.

Invariant: looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.compaction import CompactCommand
from samelog.consensus import Entry
from samelog.replicator.interfaces import InputName
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.placement import BeginAnew, OpenNewLog, SetReplicas
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from tests.cluster_sim.held_files import is_durable, is_set_aside
from tests.cluster_sim.new_kind import check_known
from tests.cluster_sim.process import ProcessDied
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.sequencer.node import Node
    from samelog.sequencer.raft.group import Applier
    from samelog.store.merged.log import MergedLog
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World


PLACED = "placed"
"""The topic that was made in data groups."""


class GroupChecker:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.are_followed = world.options.follows_groups
        """Whether publishers and subscribers use data groups, and all that these do is judged."""
        self._entries: dict[tuple[int, int], tuple[int, bytes]] = {}
        """(group, index) -> the entry that is committed there."""
        self._moved: set[InputName] = set()
        """Partitions of which another group had bytes once."""
        self._configured: dict[int, dict[int, frozenset[int]]] = {}
        """Group -> version of its configuration -> its voters."""
        self._epochs: dict[InputName, int] = {}
        """The highest leader epoch of each partition so far."""
        self._fenced: dict[InputName, int] = {}
        """Epochs of its present log are above this."""

    @property
    def converted(self) -> int:
        """How many partitions of topics that were made on every node have come to a data group."""
        return sum(topic != PLACED for topic, _ in self._moved)

    # --- what replicas do -------------------------------------------------------------------------

    def logs_of(self, node: Node) -> Iterator[MergedLog]:
        """The merged logs of the data groups of a node."""
        for replica in node.data_groups.replicas.values() if self.are_followed else ():
            for partition in replica.group_replica.logs.merging.partitions.values():
                yield partition.log

    def applying(self, actor: NodeActor, group: int, entry: Entry) -> None:
        """An entry is committed, as this replica believes."""
        said = entry.term, bytes(entry.data)
        if self._entries.setdefault((group, entry.index), said) != said:
            text = f"{actor.host} has another entry {entry.index} in group {group}"
            raise Violation("committed stays", text)

    def applied(
        self, group: int, state: State, commands: Sequence[Any], outcomes: Sequence[Any]
    ) -> None:
        """A replica's state machine has taken an entry."""
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(outcome, Rejection):
                continue
            if isinstance(command, Merge):
                for part in command.ranges:
                    self._merge_committed(group, state, command.epoch, part)
            elif isinstance(command, SetReplicas):
                self._configured_as(group, command)
            elif isinstance(command, CompactCommand):
                self._world.checker.ordered(f"group {group}", state, command)
            elif isinstance(command, ArchiveCommand):
                is_majority = partial(self.is_majority, group)
                folder = f"/data/groups/{group}"
                self._world.checker.archived(folder, is_majority, state, command)
            else:
                self._log_changed(state, command)

    def recovered(self, state: State) -> None:
        """A group continues with all that one replica holds, which is committed now."""
        for entry in state.sessions.inputs.values():
            runs = state.sessions.by_name[entry.session].runs
            run_id = next((run.run_id for run in runs if run.number == entry.run), None)
            if run_id is None or entry.partition not in state.partitions.by_number:
                continue
            key = entry.session, run_id, _name_of(state, entry.partition)
            committed, place = self._world.checker.committed, (entry.roll, entry.byte)
            committed[key] = max(committed.get(key, (-1, 0)), place)

    def died_applying(self, state: State, commands: Sequence[Any]) -> None:
        """It ended while it told others what its state machine has taken."""
        for command in commands:
            if isinstance(command, BeginAnew) and command.reset_id in state.resets.ids:
                self._log_changed(state, command)

    def _configured_as(self, group: int, command: SetReplicas) -> None:
        voters = frozenset(each.member for each in command.replicas if each.votes)
        self._configured.setdefault(group, {})[command.version] = voters

    def _log_changed(self, state: State, command: Any) -> None:
        if isinstance(command, PassPartition) and command.partition in state.partitions.by_number:
            self._moved.add(_name_of(state, command.partition))
        elif (
            isinstance(command, OpenNewLog) and command.opening.number in state.partitions.by_number
        ):
            self._begun_anew(_name_of(state, command.opening.number), command.log_id)
        elif isinstance(command, BeginAnew):
            new = {each.topic_id: each.log_id for each in command.logs}
            for number, partition in state.partitions.by_number.items():
                if partition.topic_id in new:
                    self._begun_anew(_name_of(state, number), new[partition.topic_id])

    def _begun_anew(self, name: InputName, log_id: str) -> None:
        checker = self._world.checker
        if checker.lineage.begun_anew(name, log_id, checker.committed):
            self._fenced[name] = self._epochs.get(name, 0)
            self._world.trace.event("group", f"restarts {name} as {log_id}")

    def _merge_committed(self, group: int, state: State, epoch: int, part: Range) -> None:
        entry = state.sessions.inputs.get(part.input)
        if entry is None or entry.partition not in state.partitions.by_number:
            return
        if entry.place < (part.run, part.roll, part.stop):
            return  # rejected
        runs = state.sessions.by_name[entry.session].runs
        run_id = next((run.run_id for run in runs if run.number == part.run), None)
        name, committed = _name_of(state, entry.partition), self._world.checker.committed
        if run_id is None:
            return
        key = (entry.session, run_id, name)
        if committed.get(key, (-1, 0)) < (part.roll, part.stop):
            committed[key] = (part.roll, part.stop)
            self._check_epoch(name, epoch)
            self._check_durable(group, entry.session, name, part)

    def _check_epoch(self, name: InputName, epoch: int) -> None:
        """Epochs of a log that was restarted are above those of the log before."""
        if epoch <= self._fenced.get(name, -1):
            raise Violation("resets fence", f"{name} has epoch {epoch}, as before its reset")
        self._epochs[name] = max(self._epochs.get(name, 0), epoch)

    # --- majorities -------------------------------------------------------------------------------

    def is_majority(self, group: int, holds: Callable[[NodeActor], bool]) -> bool:
        """Whether a majority of the group holds something, of the voters of its newest two
        configurations, or those that any replica goes by.
        """
        actor_of = self._world.membership.actor_of
        return any(
            sum(holds(actor) for actor in map(actor_of, voters) if actor is not None) * 2
            > len(voters)
            for voters in set(self._voters(group))
        )

    def _voters(self, group: int) -> Iterator[frozenset[int]]:
        told = self._configured.get(group, {})
        yield from (told[version] for version in sorted(told)[-2:])
        for actor in self._world.nodes:
            replica = None if actor.node is None else actor.node.data_groups.replicas.get(group)
            if replica is not None:
                yield frozenset(replica.raft.raft.voters)

    def _check_durable(self, group: int, session: str, name: InputName, part: Range) -> None:
        """What is planned for merging is on the disks of a majority of the group."""
        if name in self._moved:
            return  # what was written before may be in the files of another group
        folder = f"/data/groups/{group}/sessions/{session}/{name[0]}-{name[1]}"
        path = f"{folder}/log.{part.run}.{part.roll}"

        def holds(node: NodeActor) -> bool:
            is_held = is_durable(node, path, part.stop)
            return node.forgot or is_held or is_set_aside(node, path, part.stop)

        if not self.is_majority(group, holds):
            holders = [node.host for node in self._world.nodes if holds(node)]
            text = f"{path} up to {part.stop} is durable on {holders} only"
            raise Violation("durable before commit", text)

    def is_merged(self, name: InputName, base: int, size: int) -> bool:
        """Whether a majority has merged durably what is in the segment `base` of a partition up to
        this byte: of the members, or of the group that has the partition, or had it just now.
        """
        file = f"merged/{name[0]}-{name[1]}/{base:020d}.log"
        if self._world.membership.is_majority(_keeps(f"/data/{file}", size)):
            return True  # a topic that was just placed is there until the group has it
        is_placed = self._world.checker.lineage.is_placed(name[0])
        return (is_placed or name in self._moved) and any(
            self.is_majority(group, _keeps(f"/data/groups/{group}/{file}", size))
            for group in self._configured
        )


def _keeps(path: str, size: int) -> Callable[[NodeActor], bool]:
    return lambda node: node.forgot or is_durable(node, path, size)


def _name_of(state: State, number: int) -> InputName:
    partition = state.partitions.by_number[number]
    return state.topics.by_id[partition.topic_id].name, partition.index


class GroupRecorder:
    """Sees what a replica applies before anybody can act on it. Implements group.Applier."""

    def __init__(self, actor: NodeActor, replica: DataReplica, applier: Applier) -> None:
        self._actor = actor
        self._group = replica.number
        self._logs = replica.group_replica.logs
        self._applier = applier

    @property
    def level(self) -> int:
        return self._applier.level

    def apply(self, entry: Entry) -> list[Any]:
        world = self._actor.world
        groups = world.checker.groups
        check_known(entry.data, self._actor.build)
        world.judge(groups.applying, self._actor, self._group, entry)
        commands = decode_commands(entry.data) if entry.data else []
        try:
            outcomes = self._applier.apply(entry)
        except ProcessDied:
            world.judge(groups.died_applying, self._logs.machine.state, commands)
            raise
        if commands:
            state = self._logs.machine.state
            world.judge(groups.applied, self._group, state, commands, outcomes)
        return outcomes

    def install(self, snapshot: Any) -> None:
        text = f"installs {snapshot.last_index} of group {self._group}"
        self._actor.world.trace.event(self._actor.host, text)
        self._applier.install(snapshot)

    def role_changed(self) -> None:
        self._applier.role_changed()


def record_groups(actor: NodeActor, node: Node) -> None:
    """Have every replica that begins on a node tell what it applies, from its first entry on."""
    keeper = node.data_groups._keeper
    begin, start = keeper._make, DataReplica.start

    def started(replica: DataReplica) -> None:
        group = replica.raft
        group._applier = GroupRecorder(actor, replica, group._applier)
        if replica.placed.recovered:
            actor.world.checker.groups.recovered(replica.group_replica.logs.machine.state)
        start(replica)

    def begin_recorded(number: int) -> None:
        with patch.object(DataReplica, "start", started):
            begin(number)

    keeper._make = begin_recorded
