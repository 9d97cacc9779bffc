"""Answers administrators about tasks of placement: list, pause, resume, cancel, drain, balance.

Only the leader of group 0 knows what is to be done and what tasks wait for. Invariant: what is
answered with success is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from msgspec import UNSET

from samelog.admin import placement_requests as place
from samelog.admin.answers import ClusterSettings
from samelog.admin.requests import SetHostMaintenance, SetMaintenance
from samelog.admin.task_answers import Drained, TaskInfo, TaskRows
from samelog.consensus import NotLeader
from samelog.placement import operations
from samelog.placement.changes import AnyChange, PauseTasks, SetDefaultCopies
from samelog.placement.colocation import check_may_part
from samelog.placement.defaults import default_copies
from samelog.placement.needs import Need
from samelog.placement.tasks import PlacementRefused, PlacementTask
from samelog.sequencer.admin.parts import PlacementDesk, ServedNode
from samelog.sequencer.admin.placement import may_hold, other_copies
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.topics import Topic
from samelog.wire.errors import FaultCode

NOT_BEGUN = -1
CHANGE_S = 10.0
_CODES: Mapping[str, FaultCode] = {
    "UNKNOWN_MEMBER": FaultCode.NOT_A_MEMBER,
    "UNKNOWN_TASK": FaultCode.OUT_OF_RANGE,
    "UNKNOWN_GROUP": FaultCode.OUT_OF_RANGE,
    "CANCELLING": FaultCode.CHANGE_PENDING,
    "PLACEMENT_MOVED": FaultCode.CHANGE_PENDING,
    "MOVING": FaultCode.CHANGE_PENDING,
    "LEVEL_TOO_LOW": FaultCode.NOT_READY,
}


def refused(error: PlacementRefused) -> ChangeRefused:
    """As administrators are told."""
    code = _CODES.get(error.code, FaultCode.GROUP_IN_USE)
    return ChangeRefused(code, error.message, error.remedy)


def names_meant(
    node: ServedNode,
    request: place.DrainNode | place.DrainHost | SetMaintenance | SetHostMaintenance,
) -> list[str]:
    """The node that a request names, or all members on the host that it names. Raises ChangeRefused
    if there is none.
    """
    if isinstance(request, place.DrainNode | SetMaintenance):
        return [request.node]
    members = node.logs.machine.state.members
    if names := members.names_on(request.host):
        return names
    known = ", ".join(sorted({life.host for life in members.started.values() if life.host}))
    text = f"no node is on a host called {request.host!r}"
    raise ChangeRefused(FaultCode.NOT_A_MEMBER, text, f"the hosts are {known}")


def list_tasks(node: ServedNode, _request: place.ListTasks) -> TaskRows:
    """Raises NotLeader."""
    desk, table = _desk(node), node.logs.machine.state.placement
    return TaskRows(
        table.are_paused,
        tuple(
            _of_task(node, each, desk.waits.get(each.number, "")) for each in table.tasks.values()
        ),
        tuple(_of_need(node, each) for each in desk.needs),
        tuple(_of_task(node, each, "") for each in reversed(table.ended)),
    )


async def pause_task(node: ServedNode, request: place.PauseTask) -> TaskRows:
    """Raises ChangeRefused, NotLeader or TimeoutError, as all of these do."""
    task = request.task
    if task is UNSET:
        return await _change(node, lambda desk: [PauseTasks(are_paused=True)])
    return await _change(node, lambda desk: operations.pause(desk.look(), task))


async def resume_task(node: ServedNode, request: place.ResumeTask) -> TaskRows:
    """See pause_task."""
    task = request.task
    if task is UNSET:
        return await _change(node, lambda desk: [PauseTasks(are_paused=False), *operations.allow()])
    return await _change(node, lambda desk: operations.resume(desk.look(), task))


async def cancel_task(node: ServedNode, request: place.CancelTask) -> TaskRows:
    """See pause_task."""
    return await _change(node, lambda desk: operations.cancel(desk.look(), request.task))


async def drain_nodes(node: ServedNode, request: place.DrainNode | place.DrainHost) -> Drained:
    """See pause_task. The nodes of a host are drained together, or none of them is."""
    effects = dict[str, str]()

    def plan(desk: PlacementDesk) -> Sequence[AnyChange]:
        names, table = names_meant(node, request), desk.look()
        if request.ends:
            changes = operations.stop_draining(table, *names)
        else:
            changes = operations.drain(table, desk.states(), *names)
        effects.update(operations.effects(table, names, ends=request.ends))
        return changes

    rows = await _change(node, plan)
    return Drained(rows.are_paused, rows.running, rows.waiting, rows.ended, effects)


async def balance_cluster(node: ServedNode, _request: place.BalanceCluster) -> TaskRows:
    """See pause_task."""
    return await _change(node, lambda desk: operations.balance())


async def alter_cluster(node: ServedNode, request: place.AlterCluster) -> ClusterSettings:
    """See pause_task."""
    copies = request.default_replication_factor
    await _change(node, lambda desk: [SetDefaultCopies(copies)])
    return ClusterSettings(default_copies(node.logs.machine.state.placement))


async def convert_topic(node: ServedNode, topic: Topic, copies: int) -> None:
    """Have a topic's partitions moved to where there are so many copies. Raises ChangeRefused,
    NotLeader, TimeoutError.
    """
    numbers = topic.partition_numbers

    def plan(_: PlacementDesk) -> Sequence[AnyChange]:
        state, clock = node.logs.machine.state, node.member.clock
        changes = other_copies(state, may_hold(node), numbers, copies, clock.wall_ms())
        if changes:
            check_may_part(state.placement, [topic.topic_id])
        return changes

    await _change(node, plan)


async def recover_group(node: ServedNode, request: place.RecoverDataGroup) -> TaskRows:
    """See pause_task."""
    asked = request.node, request.group, request.suspect
    return await _change(node, lambda desk: operations.recover(desk.look(), *asked))


def _desk(node: ServedNode) -> PlacementDesk:
    """Raises NotLeader."""
    if not node.raft.group.is_leader:
        raise NotLeader(node.raft.group.raft.leader)
    return node.placing


async def _change(
    node: ServedNode, plan: Callable[[PlacementDesk], Sequence[AnyChange]]
) -> TaskRows:
    """Plan changes from the table and propose them; plan again if the table changed meanwhile."""
    loop = asyncio.get_running_loop()
    over_at = loop.time() + CHANGE_S
    while True:
        version = node.logs.machine.state.placement.version
        try:
            changes = plan(_desk(node))
        except PlacementRefused as error:
            raise refused(error) from error
        command = ChangePlacement(version, list(changes))
        outcome = await node.raft.proposer.propose(command) if changes else None
        if not isinstance(outcome, Rejection):
            break
        if outcome.code != "PLACEMENT_MOVED" or loop.time() > over_at:
            raise refused(PlacementRefused(outcome.code, outcome.message, "try again"))
    return list_tasks(node, place.ListTasks())


def _of_task(node: ServedNode, task: PlacementTask, waits_for: str) -> TaskInfo:
    return TaskInfo(
        task.number,
        _word(task.kind.name),
        task.group,
        _name(node, task.gets),
        _name(node, task.loses),
        _word(task.state.name),
        task.reason,
        waits_for,
        task.began_ms,
    )


def _of_need(node: ServedNode, need: Need) -> TaskInfo:
    gets, loses = _name(node, need.gets), _name(node, need.loses)
    state = "blocked" if need.obstacle else "waiting"
    kind = _word(need.kind.name)
    why = need.obstacle or need.waits_for
    return TaskInfo(NOT_BEGUN, kind, need.group, gets, loses, state, need.reason, why, -1)


def _word(name: str) -> str:
    return name.lower().replace("_", " ")


def _name(node: ServedNode, number: int | None) -> str | None:
    return None if number is None else node.peers.members.name(number)
