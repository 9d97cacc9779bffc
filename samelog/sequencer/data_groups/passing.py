"""Partitions that move between groups: what the leaders of both do when group 0's leader asks.

The target's leader gets what the source knows of the partition from the source's leader, in pieces.
How far each group is, its leader tells whoever asked.

Invariant: an order is carried out by an entry of the group that it is for, so asking twice does the
same as asking once; what the target opens is what was sealed, for it does not change after that. No
partition leaves a group that has yet to get parts of runs in it (rule sessions.60).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.consensus import Busy, NotLeader
from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.placement.tasks import Action, GroupOrder
from samelog.placement.values import PassStage
from samelog.runtime.log import log_event
from samelog.sequencer.data_groups.ending import come_in_between, parts_to_come
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.raft.views import NO_FILES
from samelog.sequencer.state.tables.transfers import PassPartition
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units.moves import carry
from samelog.wire.peer_messages import PIECE_BYTES, PassAsked, PassReport, PassTold, PeerMessage

log = logging.getLogger(__name__)

_IS_DONE: Mapping[Action, tuple[PassStage, ...]] = {
    Action.COPY_PARTITION: (PassStage.OPEN, PassStage.GONE),
    Action.HOLD_PARTITION: (
        PassStage.HELD,
        PassStage.SEALED,
        PassStage.GONE,
        PassStage.FORBIDDEN,
    ),
    Action.SEAL_PARTITION: (PassStage.SEALED, PassStage.GONE, PassStage.FORBIDDEN),
    Action.OPEN_PARTITION: (PassStage.OPEN, PassStage.GONE),
    Action.DROP_PARTITION: (PassStage.GONE, PassStage.OPEN),
    Action.FORBID_SEAL: (PassStage.FORBIDDEN, PassStage.SEALED, PassStage.GONE),
}


class GroupsHere(Protocol):
    """The replicas of this member."""

    def replica_of(self, group: int) -> GroupReplica | None:
        """Its replica of a group."""

    def leader(self, group: int) -> tuple[int, int] | None:
        """(term, member) of who leads a group."""


@dataclass(slots=True)
class _Asked:
    """What was asked for by the leader of group 0, and what it was told."""

    by: int
    task: int
    partition: int
    told: PassReport | None = None


class PartitionPasses:
    """One member's."""

    def __init__(
        self,
        own: int,
        groups: GroupsHere,
        *,
        cluster: Callable[[], State],
        is_there: Callable[[int], bool],
        send: Callable[[int, PeerMessage], bool],
        on_report: Callable[[PassReport], None],
    ) -> None:
        """`own`: this member's number; `cluster`: the state of group 0; `on_report`: if this member
        asks itself.
        """
        self._own = own
        self._groups = groups
        self._cluster = cluster
        self._is_there = is_there
        self._send = send
        self._on_report = on_report
        self._asked: dict[tuple[int, int], _Asked] = {}
        """(group, task) -> what was asked for last."""
        self._pieces: dict[tuple[int, bool, int], dict[int, bytes]] = {}
        """(task, sealed, checksum of the whole) -> what came of it."""

    @property
    def groups(self) -> set[int]:
        """Those that were asked for something that is not over."""
        return {group for group, _ in self._asked}

    # --- orders -----------------------------------------------------------------------------------

    def carry_out(self, asker: int, order: GroupOrder) -> None:
        """Take the next step of a move, if this leads the group, and say how far that is."""
        replica, partition = self._groups.replica_of(order.group), order.partition
        if replica is None or partition is None or not replica.raft.group.is_leader:
            return
        stage = replica.logs.machine.state.transfers.pass_of(order.task)
        if stage not in _IS_DONE[order.action]:
            self._step(replica, order, partition)
        asked = self._asked[order.group, order.task] = _Asked(asker, order.task, partition)
        self._report(replica, order.group, asked)

    def tick(self) -> None:
        """Say what is different now. To be called some times a second."""
        for (group, task), asked in tuple(self._asked.items()):
            replica = self._groups.replica_of(group)
            is_over = task not in self._cluster().placement.tasks
            if is_over or replica is None or not replica.raft.group.is_leader:
                del self._asked[group, task]
            else:
                self._report(replica, group, asked)

    def _step(self, replica: GroupReplica, order: GroupOrder, partition: int) -> None:
        task = self._cluster().placement.tasks.get(order.task)
        if task is None or task.target is None:
            return
        if order.action is Action.SEAL_PARTITION and parts_to_come(self._cluster(), partition):
            return
        if order.action in (Action.COPY_PARTITION, Action.OPEN_PARTITION):
            is_sealed = order.action is Action.OPEN_PARTITION
            self._ask(PassAsked(order.task, partition, task.group, task.target, is_sealed))
        elif order.action is not Action.DROP_PARTITION or self._may_drop(order, partition):
            _propose(replica, PassPartition(order.task, order.action, partition, b""))

    def _may_drop(self, order: GroupOrder, partition: int) -> bool:
        """Whether this member knows, too, that the group has not, or has no more, what it drops."""
        return self._cluster().placement.group_of(partition) != order.group

    def _report(self, replica: GroupReplica, group: int, asked: _Asked) -> None:
        stage = replica.logs.machine.state.transfers.pass_of(asked.task)
        number = 0 if stage is None else stage.value
        is_whole = stage is not None and self._is_whole(replica, asked.partition)
        is_whole = is_whole and not come_in_between(self._cluster(), group, asked.partition)
        pauses = stage is PassStage.HELD and _is_compacted(replica, asked.partition)
        report = PassReport(group, asked.task, asked.partition, number, is_whole, pauses)
        if report == asked.told:
            return
        asked.told = report
        if asked.by == self._own:
            self._on_report(report)
        else:
            self._send(asked.by, report)

    def _is_whole(self, replica: GroupReplica, partition: int) -> bool:
        """Whether all voters that are up have what is known of a partition durably, its keys, and
        its history of archived files: a majority.
        """
        voters = replica.raft.group.raft.voters
        if partition not in replica.logs.machine.state.partitions.by_number:
            return False
        has = {each for each in voters if self._has_all(replica, partition, each)}
        is_lacking = any(self._is_there(each) for each in voters if each not in has)
        return not is_lacking and len(has) * 2 > len(voters)

    def _has_all(self, replica: GroupReplica, partition: int, voter: int) -> bool:
        """Whether one voter has it. What was archived it learns when the partition is opened."""
        state, view = replica.logs.machine.state, replica.raft.coordinator.views[voter]
        known, merged = state.partitions.by_number[partition], view.merged_durable
        if voter == self._own:
            merged = replica.logs.merging.merged_durable([partition])
        archived = 0 if state.transfers.is_coming(partition) else known.start_segment
        kept, is_keyed = view.files.get(partition, NO_FILES), partition in state.keys.by_partition
        if merged.get(partition, 0) < known.next_offset or kept.archived < archived:
            return False
        has_covered = replica.care.keys.coverage.has_covered
        return not is_keyed or has_covered(voter, partition, known.next_offset)

    # --- what the target needs --------------------------------------------------------------------

    def _ask(self, question: PassAsked) -> None:
        leader = self._groups.leader(question.source)
        if leader is None:
            return
        if leader[1] == self._own:
            self.answer(self._own, question)
        else:
            self._send(leader[1], question)

    def answer(self, asker: int, question: PassAsked) -> None:
        """Tell what this member's replica of the source knows of a partition."""
        replica = self._groups.replica_of(question.source)
        if replica is None:
            return
        state = replica.logs.machine.state
        stage = state.transfers.pass_of(question.task)
        wanted = PassStage.SEALED if question.is_sealed else PassStage.HELD
        if question.partition not in state.partitions.by_number or stage is not wanted:
            return
        history = _history(replica, question.partition) if question.is_sealed else b""
        if history is None:
            return
        data = carry(state, question.partition, is_sealed=question.is_sealed, history=history)
        whole, count = kernels.crc32c(data, 0), -(-len(data) // PIECE_BYTES)
        for place in range(count):
            piece = data[place * PIECE_BYTES : (place + 1) * PIECE_BYTES]
            told = PassTold(
                question.task,
                question.partition,
                question.target,
                question.is_sealed,
                whole,
                place,
                count,
                piece,
            )
            if asker == self._own:
                self.hear(told)
            else:
                self._send(asker, told)

    def hear(self, told: PassTold) -> None:
        """A piece of what the source knows: with the last one, the target can go on."""
        key = told.task, told.is_sealed, told.checksum
        pieces = self._pieces.setdefault(key, {})
        pieces[told.place] = told.data
        if len(pieces) < told.count:
            return
        self._pieces.clear()
        replica = self._groups.replica_of(told.group)
        data = b"".join(pieces[place] for place in sorted(pieces))
        if replica is None or kernels.crc32c(data, 0) != told.checksum:
            return
        action = Action.OPEN_PARTITION if told.is_sealed else Action.COPY_PARTITION
        stage = replica.logs.machine.state.transfers.pass_of(told.task)
        if stage not in _IS_DONE[action] and replica.raft.group.is_leader:
            _propose(replica, PassPartition(told.task, action, told.partition, data))


def _is_compacted(replica: GroupReplica, partition: int) -> bool:
    state = replica.logs.machine.state
    known = state.partitions.by_number.get(partition)
    policy = (
        "" if known is None else state.topics.by_id[known.topic_id].settings.get(CLEANUP_POLICY, "")
    )
    return is_compacted(policy)


def _history(replica: GroupReplica, partition: int) -> bytes | None:
    """Of what was archived; None: it cannot be read here, now."""
    try:
        return replica.care.archive.history.whole(partition)
    except LogFormatError as error:
        log_event(log, logging.WARNING, "no history to pass on", partition=partition, error=error)
        return None


def _propose(replica: GroupReplica, command: PassPartition) -> None:
    """What comes of it shows in the state; until then it is asked for again. A group that has just
    been made has no feature level before its first configuration.
    """
    if replica.logs.machine.state.members.level < command.needs:
        return
    with suppress(NotLeader, Busy):
        replica.raft.group.propose([command])
