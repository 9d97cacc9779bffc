"""Worlds of a mirror, drawn from seeds: its source grows, leaves holes, archives, is away, loses
its newest records and writes others; the sidecar is killed anywhere; the destination changes its
leader, and an operator promotes the mirror.

What copies is the product's (`PartitionMirror`), and so are the destination's state machine,
planner and merger. The world is the source, the session between them, and time.

Invariant: everything in a world follows from its seed. After any history, the mirror has batches of
the source only, each behind one that was before it there, at its offsets; nothing is added to it
after its promotion; positions never lead it; dedup has learnt nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET

from samelog.admin.mirror_answers import MirroredPartition, SourcePartition
from samelog.admin.mirror_requests import LeaveGap
from samelog.format import _kernels as kernels
from samelog.format.void_batch import is_void
from samelog.mirror.copying import PartitionMirror
from samelog.mirror.errors import (
    DestinationFault,
    MirrorStopped,
    NotFollowing,
    SourceUnreadable,
)
from samelog.mirror.source import BatchBefore, Where, first_of
from samelog.sequencer.admin.mirroring.mirrors import mirrored_partition
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge
from samelog.sequencer.state.tables.groups import CommittedOffset
from samelog.sequencer.state.tables.mirrors import FollowSource, MirrorGap, PromoteMirrors
from tests import tiers
from tests.mirror.fakes import WHERE, next_of
from tests.sequencer.mirroring import MirrorWorld, compacted, content, source_batch

STEPS = 250
REST_STEPS = 800


class Harm(Exception):
    """What must never be."""


class ModelSource:
    """One partition of a cluster that may lose records, and knows which batch followed which."""

    keeps_epochs = True

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.batches: list[bytes] = []
        self.before: dict[bytes, bytes | None] = {}
        """Each batch that there ever was -> the one before it then."""
        self.start = 0
        self.is_away = False
        self.grew = asyncio.Event()
        self.history = 0
        self.is_compacted = False
        self.records: set[int] = set()
        """Offsets at which there ever was one."""
        self.dropped: set[int] = set()
        """Those of which compaction has let go."""
        self._count = 0
        self._last: bytes | None = None

    @property
    def end(self) -> int:
        return max(self.start, next_of(self.batches[-1]) if self.batches else 0)

    def grow(self, *, leaves_hole: bool) -> None:
        """Each batch is another one, whatever its offset."""
        offset = self.end + (self.chance.randint(1, 30) if leaves_hole else 0)
        self._count += 1
        batch = source_batch(offset, self.chance.randint(1, 4), producer_id=self._count)
        self.before[batch] = self.batches[-1] if self.batches else self._last
        self.records.update(range(offset, next_of(batch)))
        self.batches.append(batch)
        self._last = batch
        self.grew.set()

    def lose(self) -> None:
        """An unclean election: whoever reads is cut off."""
        self.history += 1
        self.grew.set()
        lost = self.chance.randint(1, 3)
        if len(self.batches) > lost:
            del self.batches[-lost:]
            self._last = self.batches[-1]

    def compact(self, chance: random.Random) -> None:
        """Of a few batches some records stay, or none: then there is a hole, or an empty batch."""
        first = chance.randrange(max(1, len(self.batches)))
        some = self.batches[first : first + chance.randint(1, 3)]
        if not some or some[-1] is self.batches[-1]:
            return
        begin, behind = int.from_bytes(some[0][:8], "big"), next_of(some[-1])
        left = chance.choice([[], [], [offset_in(some[0], chance)]])
        left = [each for each in left if each in self.records - self.dropped]
        if left and next_of(some[0]) == begin + 1:
            return  # all of it stays, to the byte
        kept = [compacted(begin, behind if not left else next_of(some[0]), *left)]
        kept = kept if left or chance.random() < 0.5 else []
        gone = range(begin, next_of(some[0])) if left else range(begin, behind)
        self.dropped.update(each for each in gone if each not in left)
        self.batches[first : first + len(some)] = kept + (some[1:] if left else [])
        self.before.update(dict.fromkeys(kept))

    def archive(self) -> None:
        """Readers begin later, perhaps inside of a batch."""
        if self.batches:
            self.start = self.chance.randint(self.start, self.end)
            self.batches = [each for each in self.batches if next_of(each) > self.start]

    def partition(self) -> SourcePartition:
        base = int.from_bytes(self.batches[0][:8], "big") if self.batches else self.start
        return SourcePartition(0, self.start, self.end, -1, min(base, self.start), 0, None, ())

    # --- as SourceCluster -------------------------------------------------------------------------

    def _check(self) -> None:
        if self.is_away:
            raise SourceUnreadable("it is away")

    async def read(self, where: Where, offset: int) -> ModelReader:
        self._check()
        if not self.start <= offset <= self.end:
            raise SourceUnreadable(f"offset {offset} is not there")
        return ModelReader(self, offset)

    async def batch_before(self, where: Where, offset: int) -> BatchBefore | None:
        self._check()
        for batch in self.batches if offset > self.start else ():
            if next_of(batch) >= offset:
                return first_of(batch)
        return None

    async def state(self, patterns: Sequence[str], groups: Sequence[str]) -> Any:
        raise SourceUnreadable("the world looks itself")


class ModelReader:
    """Ends when the source is away, or has lost what was read; as connections do."""

    def __init__(self, source: ModelSource, offset: int) -> None:
        self._source = source
        self._offset = offset
        self._history = source.history

    async def next(self) -> bytes:
        source = self._source
        while True:
            if source.is_away or source.history != self._history:
                raise SourceUnreadable("the connection broke")
            if source.is_compacted and self._offset < source.start:
                raise SourceUnreadable("it is archived")
            left = [each for each in source.batches if next_of(each) > self._offset]
            if left:
                self._offset = next_of(left[0])
                return left[0]
            source.grew.clear()
            await source.grew.wait()

    async def close(self) -> None:
        return


class Brought:
    """The destination, as a sidecar has it. Implements what is used of destination.Destination."""

    def __init__(self, world: MirrorWorld) -> None:
        self._world = world
        self.gaps: list[LeaveGap] = []

    async def write(self, topic: str, partition: int, data: bytes) -> None:
        """Into the session: it is shipped, whatever becomes of the sidecar."""
        await asyncio.sleep(0)
        self._world.bytes.put(self._world.input, data)

    def is_settled(self) -> bool:
        world = self._world
        if not world.bytes.files:
            return True
        return world.machine.state.sessions.inputs[world.input].place == world.bytes.end(
            world.input
        )

    async def settled(self, topic: str, partition: int) -> None:
        while not self.is_settled():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def leave_gap(self, request: LeaveGap) -> None:
        await asyncio.sleep(0)
        number = self._world.number
        checksum = None if request.checksum is UNSET else request.checksum
        place = request.base_offset, request.next_offset, request.start_offset
        done = self._world.machine.apply(MirrorGap(number, *place, checksum, 1, request.reason))
        if isinstance(done, Rejection):
            raise DestinationFault(done.message)
        self.gaps.append(request)


class World:
    """One source, one mirror of it, and a sidecar that is killed and started again."""

    def __init__(self, seed: int, *, is_compacted: bool = False) -> None:
        tiers.require("simulates")
        self.chance = random.Random(seed)
        self.source = ModelSource(self.chance)
        self.mirror = MirrorWorld()
        self.brought = Brought(self.mirror)
        self.skips = self.chance.random() < 0.5
        self.luck = random.Random(f"compaction {seed}")
        self.is_compacted = self.source.is_compacted = is_compacted
        self.task: asyncio.Task[None] | None = None
        self.stopped = ""
        """Why the sidecar does not go on by itself."""
        self.promoted_at: int | None = None
        self.kills = self.forks = 0
        self._at_ms = 0
        self._planned: list[Merge] = []
        """Proposed, and not committed yet."""

    async def run(self, path: Path) -> None:
        """Faults, then rest in which the sidecar comes to the source's end if it may."""
        for _ in range(STEPS):
            self.act()
            await self.moment()
        self.source.is_away = False
        self.source.grew.set()
        for _ in range(REST_STEPS):
            self.work()
            await self.moment()
        await self.kill()
        self.lead_anew()
        self.mirror.run_dry()
        self.check(path)

    @property
    def begins_later(self) -> bool:
        """Whether the mirror was empty when its source had begun later."""
        return self.mirror.machine.state.partitions.by_number[self.mirror.number].start_segment > 0

    async def moment(self) -> None:
        """The sidecar runs on, and begins again if it has ended."""
        for _ in range(self.chance.randint(0, 3)):
            await asyncio.sleep(0)
        if self.task is None:
            if not self.stopped and self.brought.is_settled():
                self.task = asyncio.create_task(self.sidecar())
        elif self.task.done():
            self.ended(self.task)
            self.task = None

    def ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MirrorStopped):
            self.stopped = str(error)
            self.check_stopped()
        elif error is not None and not isinstance(
            error, NotFollowing | SourceUnreadable | DestinationFault
        ):
            raise error

    async def sidecar(self) -> None:
        """It knows nothing but what both sides say."""
        here = self.here()
        if self.promoted_at is not None:
            raise MirrorStopped("it was promoted")

        async def ready() -> None:
            await asyncio.sleep(0)

        copying = PartitionMirror(
            cast(Any, self.source),
            cast(Any, self.brought),
            WHERE,
            "eu.flights",
            is_ready=ready,
            skips_archived=self.skips,
            is_compacted=self.is_compacted,
        )
        await copying.run(here, self.source.partition(), 0)

    def here(self) -> MirroredPartition:
        state = self.mirror.machine.state
        return next(mirrored_partition(state, self.mirror.number))

    async def kill(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task, self.kills = None, self.kills + 1

    # --- what happens -----------------------------------------------------------------------------

    def act(self) -> None:
        """One thing."""
        chance, source = self.chance.random(), self.source
        if self.is_compacted and self.luck.random() < 0.2:
            source.compact(self.luck)
        if chance < 0.25:
            source.grow(leaves_hole=self.chance.random() < 0.1)
        elif chance < 0.75:
            self.work()
        elif chance < 0.80:
            if self.task is not None:
                self.task.cancel()
                self.kills += 1
        elif chance < 0.805 and not self.is_compacted:
            source.lose()
            self.forks += 1
        elif chance < 0.85:
            source.archive()
        elif chance < 0.88:
            source.is_away = not source.is_away
            source.grew.set()
        elif chance < 0.93:
            self.lead_anew()
        elif chance < 0.99:
            self.follow()
        elif chance < 0.993:
            self.promote()

    def work(self) -> None:
        """The destination's leader plans, and what it plans is committed, or lost with it."""
        planned, self._planned = self._planned, []
        if not planned:
            self._planned = self.mirror.plan() if self.mirror.bytes.files else []
        elif self.has_committed(planned):
            self.mirror.planner.applied(self.mirror.index)
        else:
            self.lead_anew()

    def has_committed(self, planned: list[Merge]) -> bool:
        """Apply what was proposed, unless it does not count any more, as after a promotion."""
        for merge in planned:
            if isinstance(self.mirror.machine.apply(merge), Rejection):
                return False
            self.mirror.merges.append(merge)
        return True

    def lead_anew(self) -> None:
        """Another leader: what was proposed and is not committed is lost."""
        self._planned = []
        self.mirror.planner = Planner(self.mirror.machine, PlannerLimits())

    def follow(self) -> None:
        """Positions of a group at the source; perhaps reset to an earlier one."""
        self._at_ms += 1
        offset = self.chance.randint(0, max(0, self.source.end))
        number = self.mirror.number
        there = CommittedOffset(offset, -1, "", self._at_ms)
        self.mirror.machine.apply(FollowSource([("g", [(number, there)])], []))
        self.check_position()

    def promote(self) -> None:
        """Perhaps twice, as by an operator whose first request got no answer."""
        self.check_dedup()
        for _ in range(self.chance.randint(1, 2)):
            self.mirror.machine.apply(PromoteMirrors(["m"], 9, "me"))
        if self.promoted_at is None:
            self.promoted_at = self.mirror.next_offset

    # --- what must hold ---------------------------------------------------------------------------

    def check_position(self) -> None:
        known = self.mirror.machine.state.groups.by_id.get("g")
        there = None if known is None else known.offsets.get(self.mirror.number)
        if there is not None and there.offset > self.mirror.next_offset:
            raise Harm(f"a group is at {there.offset} of {self.mirror.next_offset}")

    def check_stopped(self) -> None:
        """It stops for a reason that is one."""
        has_lost = "lost records" in self.stopped or "others than before" in self.stopped
        if has_lost and not self.forks:
            raise Harm(f"nothing was lost, and it stops: {self.stopped}")
        if "archived" in self.stopped and (self.skips or not self.source.start):
            raise Harm(f"it stops: {self.stopped}")

    def check(self, path: Path) -> None:
        """The mirror's bytes, on a node."""
        merged = content(self.mirror.merged(path, begins_later=self.begins_later))
        last = None
        for header in kernels.batch_headers(merged, 0, len(merged)):
            batch = merged[header[0] : header[0] + header[1]]
            if is_void(batch):
                continue
            if not header_records(batch):
                self.check_empty(batch)
                continue
            if batch not in self.source.before:
                raise Harm("the mirror has a batch that the source never had")
            if not self.is_compacted:
                self.check_follows(batch, last)
            last = batch
        self.check_position()
        self.check_dedup()
        self.check_promotion()
        goes_on = not self.stopped and self.promoted_at is None
        if goes_on and self.mirror.next_offset != self.source.end:
            raise Harm(f"it is at {self.mirror.next_offset}, its source at {self.source.end}")

    def check_dedup(self) -> None:
        """Nothing that is mirrored counts before the promotion."""
        if self.promoted_at is None and self.mirror.machine.state.producers.batches:
            raise Harm("dedup has learnt of producers of the source")

    def check_empty(self, batch: bytes) -> None:
        """Where the mirror has nothing the source had nothing, or has let go of it."""
        offsets = range(int.from_bytes(batch[:8], "big"), next_of(batch))
        lost = (self.source.records - self.source.dropped).intersection(offsets)
        if lost:
            raise Harm(f"records are not there, as if they had been compacted: {sorted(lost)}")

    def check_follows(self, batch: bytes, last: bytes | None) -> None:
        """The one that is before it here was before it there, too. What the source has archived
        around a loss nobody can compare, and `skip_archived` goes on behind it.
        """
        skipped = [each.base_offset for each in self.brought.gaps if "archived" in each.reason]
        if last is not None and next_of(last) in skipped:
            return
        earlier = self.source.before[batch]
        while last is not None and earlier is not None and earlier != last:
            earlier = self.source.before[earlier]
        if last is not None and earlier is None:
            raise Harm("two histories of the source are in one mirror")

    def check_promotion(self) -> None:
        if self.promoted_at is None:
            return
        if self.mirror.next_offset != self.promoted_at:
            raise Harm(f"promoted at {self.promoted_at}, it goes to {self.mirror.next_offset}")
        known = self.mirror.machine.state.mirrors.topics["m"]
        if known.ends != [self.promoted_at]:
            raise Harm(f"it says that it was promoted at {known.ends}")


def offset_in(batch: bytes, chance: random.Random) -> int:
    return chance.randrange(int.from_bytes(batch[:8], "big"), next_of(batch))


def header_records(batch: bytes) -> int:
    """How many records a batch says that it has."""
    return int.from_bytes(batch[57:61], "big")
