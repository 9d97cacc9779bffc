"""Answers in which order sessions were merged, and with which checksums of the copies.

Raft's log has the newest instructions in memory anyway, so nothing is kept for it while nobody
looks. Invariant: looking changes nothing, reads no file and never holds the event loop for long.
"""

from __future__ import annotations

import asyncio

from samelog.admin.requests import GetMergeOrder
from samelog.admin.views import CopyChecksum, MergedRange, MergeInstruction, MergeOrder
from samelog.consensus.types import Entry
from samelog.sequencer.admin.parts import ServedNode, parts_here
from samelog.sequencer.admin.topics import find_partition
from samelog.sequencer.parts import LogParts, RaftParts
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.instructions import Merge, Range

ENTRIES_PER_TURN = 32
ENTRIES_MAX = 4096
"""How far back it looks for instructions of one partition."""


async def merge_order(node: ServedNode, request: GetMergeOrder) -> MergeOrder:
    """The newest instructions of a partition. Raises ChangeRefused."""
    number = find_partition(node, request.topic, request.partition)
    parts = parts_here(node, number)
    logs, raft, found = parts[0], parts[1].group.raft, list[MergeInstruction]()
    stop = raft.commit_index + 1
    oldest = max(1, stop - ENTRIES_MAX)
    while stop > max(oldest, raft.first_index) and len(found) < request.limit:
        start = max(oldest, raft.first_index, stop - ENTRIES_PER_TURN)
        entries = reversed(raft.log.entries(start, stop))
        found += [each for entry in entries for each in _instructions(logs, entry, number)]
        stop = start
        await asyncio.sleep(0)
    agreed = _agreed(logs, number)
    return MergeOrder(
        tuple(reversed(found[: request.limit])), *agreed, _copies(node, parts, number)
    )


def _agreed(logs: LogParts, number: int) -> tuple[int, int]:
    """None is agreed on since records were given up, or the topic was deleted meanwhile."""
    partition = logs.machine.state.partitions.by_number.get(number)
    if partition is None or partition.checked_sum is None:
        return 0, 0
    return partition.checked_offset, partition.checked_sum


def _instructions(logs: LogParts, entry: Entry, number: int) -> list[MergeInstruction]:
    """Those of an entry in one partition, newest first."""
    merges = [
        MergeInstruction(
            entry.index,
            entry.term,
            command.base_offset,
            command.append_ms,
            tuple(_range(logs, part) for part in command.ranges),
        )
        for command in decode_commands(entry.data)
        if isinstance(command, Merge) and command.partition == number
    ]
    return merges[::-1]


def _range(logs: LogParts, part: Range) -> MergedRange:
    """An input is forgotten when its session ends long enough ago."""
    known = logs.machine.state.sessions.inputs.get(part.input)
    name = f"input {part.input}" if known is None else known.session
    return MergedRange(name, part.run, part.records, part.size)


def _copies(
    node: ServedNode, parts: tuple[LogParts, RaftParts], number: int
) -> tuple[CopyChecksum, ...]:
    """What each node last told; the answering node tells its own."""
    members, views = node.peers.members, parts[1].coordinator.views
    opened = parts[0].merging.partitions.get(number)
    rows = []
    for member, name in ((each, members.name(each)) for each in members.all):
        if member == node.peers.number:
            samples = {} if opened is None else opened.merger.samples
        else:
            view = views.get(member)
            samples = {} if view is None else view.told.get(number, {})
        rows += [CopyChecksum(name, offset, value) for offset, value in sorted(samples.items())]
    return tuple(rows)
