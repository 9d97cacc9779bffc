"""Where a partition is copied from while it is on its way from another group.

Once it is in this group by the table, the group's own members have it, or get it from each other.

Invariant: while it is on its way, nobody here gives up records of it that cannot be had just now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from samelog.placement.values import METADATA, PassStage
from samelog.replicator.interfaces import LogSource
from samelog.replicator.pull.acknowledger import Budget
from samelog.replicator.pull.repair_pull import MergedName, PullSink
from samelog.replicator.pull.streams import ServedMerged
from samelog.sequencer.cluster.repair.merged import MergedPull
from samelog.sequencer.ingest.peer_pulls import PeerPulls
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import State
from samelog.wire.messages import OpenMerged, Start
from samelog.wire.receiver import ResumePoint

PIECE_BYTES = 1 << 20


class ComingPartitions:
    """Of one group's replica. Implements repair.merged.OtherGroups."""

    def __init__(
        self,
        group: int,
        own: int,
        *,
        machine: Callable[[], StateMachine],
        cluster: Callable[[], State],
        pulls: PeerPulls,
        here: Callable[[int], LogSource | None],
    ) -> None:
        """`own`: this member; `machine`: the group's; `cluster`: the state of group 0; `here`: a
        partition's logs at this member, where it has a replica of its group.
        """
        self._group = group
        self._own = own
        self._machine = machine
        self._cluster = cluster
        self._pulls = pulls
        self._here = here
        self._wanted = 0

    def members(self, number: int) -> Sequence[int]:
        """Who has a partition that comes."""
        passing = self._machine().state.transfers.passing
        if passing is None or passing.partition != number:
            return ()
        table, members = self._cluster().placement, self._cluster().members.by_number
        source = self.group(number)
        is_coming = passing.stage in (PassStage.COPYING, PassStage.OPEN)
        if not is_coming or source == self._group:
            return ()
        self._wanted = number
        known = table.groups.get(source)
        return [*members] if source == METADATA else () if known is None else known.members

    def group(self, number: int) -> int:
        """The group that the table names."""
        return self._cluster().placement.group_of(number)

    def pull(self, member: int) -> MergedPull | None:
        """The way to one of them."""
        if member != self._own:
            return self._pulls.get(member)
        source = self._here(self._wanted)
        return None if source is None else LocalPull(source)


class LocalPull:
    """From one group's replica to another one's of the same member. Implements
    repair.merged.MergedPull.
    """

    def __init__(self, source: LogSource) -> None:
        self._source = source

    async def merged(
        self,
        name: MergedName,
        start: ResumePoint,
        sink: PullSink,
        *,
        budget: Budget | None = None,
        number: int = 0,
    ) -> bool:
        """As RepairPull; of a member's own disk no budget is spared. Raises RequestRefused,
        LogFormatError.
        """
        served = ServedMerged(self._source.open_merged(*name))
        _, (file, byte) = served.start(OpenMerged(0, *name, Start.POSITION, number + 1, *start))
        while not sink.has_enough():
            extent = served.extent(file)
            if extent is None or (byte >= extent.end and extent.next_file is None):
                break
            if byte >= extent.end and extent.next_file is not None:
                file, byte = extent.next_file, 0
                continue
            data = served.read(file, byte, PIECE_BYTES)
            sink.on_data(file, byte, memoryview(data))
            byte += len(data)
            await asyncio.sleep(0)
        return sink.has_enough()
