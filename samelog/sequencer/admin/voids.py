"""An administrator's last resort for records that no node has any more: their offsets become void.

Invariant: nothing is declared void that a reachable node has, or that one may have which was not
named as lost.
"""

from __future__ import annotations

from samelog.admin import requests
from samelog.admin.topic_answers import RecordsVoided
from samelog.consensus import NotLeader
from samelog.format.batch import HEADER_BYTES, read_header
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topics import find_topic, partition_info
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.parts import LogParts, RaftParts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import VoidRecordsCommand
from samelog.sequencer.state.units.logs import void_event
from samelog.wire.errors import FaultCode


async def void_records(node: ServedNode, request: requests.VoidRecords) -> RecordsVoided:
    """Have it committed. Raises ChangeRefused, NotLeader or TimeoutError."""
    topic = find_topic(node, request.topic)
    if request.partition >= topic.partitions:
        text = f"there is no {request.topic}-{request.partition}"
        raise ChangeRefused(FaultCode.UNKNOWN_TOPIC, text, "samelog topic list")
    number = topic.partition_numbers[request.partition]
    logs, raft = parts_here(node, number)
    if not raft.group.is_leader:
        raise NotLeader(raft.group.raft.leader)
    _check_own(node, number, request)
    _check_others(node, raft, number, request)
    command = _command(node, logs, number, request)
    outcome = await raft.proposer.propose(command)
    if isinstance(outcome, Rejection):
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, outcome.message)
    if raft is not node.raft:  # what a data group remembers is told by its members only
        event = void_event(f"{request.topic}-{request.partition}", command)
        await node.raft.proposer.propose(event)
    return RecordsVoided(request.first_offset, request.next_offset)


def _command(
    node: ServedNode, logs: LogParts, number: int, request: requests.VoidRecords
) -> VoidRecordsCommand:
    """Where the void goes is decided here, for all copies alike."""
    log = logs.merging.look(number).log
    epoch, timestamp = 0, -1
    last = log.last_batch()
    if last is not None:
        header = read_header(log.read(last[0], last[1], HEADER_BYTES))
        epoch, timestamp = header.leader_epoch, header.max_timestamp
    return VoidRecordsCommand(
        number,
        request.first_offset,
        request.next_offset,
        log.end()[0],
        epoch,
        timestamp,
        node.member.clock.wall_ms(),
    )


def _check_own(node: ServedNode, number: int, request: requests.VoidRecords) -> None:
    """This node must wait for just these records."""
    info = partition_info(node, number)
    if info.end_offset != request.first_offset or request.next_offset > info.wanted_offset:
        text = f"{node.member.config.name} has offsets up to {info.end_offset}, and misses " + (
            f"those up to {info.wanted_offset}" if info.wanted_offset else "none for good"
        )
        raise ChangeRefused(FaultCode.OUT_OF_RANGE, text, "samelog status")


def _check_others(
    node: ServedNode, raft: RaftParts, number: int, request: requests.VoidRecords
) -> None:
    """No other node may have more; one that is away may, unless it is named as lost."""
    peers = {*raft.group.raft.peers, node.peers.number}
    for member in (each for n, each in node.peers.members.all.items() if n in peers):
        view = raft.coordinator.views.get(member.number)
        if member.number == node.peers.number or member.name in request.without:
            continue
        if view is None or not node.peers.presence.is_there(member.number):
            text = f"{member.name} is away, and may have these records"
            raise ChangeRefused(FaultCode.NOT_READY, text, "start it, or say that it is lost")
        if view.merged_durable.get(number, 0) > request.first_offset:
            text = f"{member.name} has these records"
            raise ChangeRefused(FaultCode.NOT_READY, text, "wait until they are copied")
