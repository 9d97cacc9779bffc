"""Mirrors one partition: from where the mirror ends, batch by batch.

After any break the batch before the mirror's end is compared with the source's. Batches are brought
only once the schemas are there that they may have been written with.

Invariant: nothing is brought that does not follow what the mirror has, as the destination says it
(docs/mirror.md, M1, M2, M13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import UNSET

from samelog.admin.mirror_answers import MirroredPartition, SourcePartition
from samelog.admin.mirror_requests import LeaveGap
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.mirror.destination import Destination
from samelog.mirror.errors import BatchRefused, MirrorStopped, NotFollowing
from samelog.mirror.following import BatchFollower, refused_batch
from samelog.mirror.source import BatchBefore, BatchReader, SourceCluster, Where
from samelog.sequencer.ingest.batch_check import MIRRORED, Unpacking, sound_batches

AT_ONCE_BYTES = 256 << 10
"""As much is unpacked without leaving the event loop."""


def sound_part(data: bytes) -> tuple[bytes, BatchRefused | None]:
    """The batches up to the first one that nodes would refuse, and what is wrong with that one.
    Unpacks all of them.
    """
    taken = sound_batches(
        memoryview(data),
        batch_bytes=HELD_BATCH_BYTES,
        own=lambda: MIRRORED,
        unpacking=Unpacking(),
    )
    if taken.refusal is None:
        return data, None
    good = bytes(taken.data)
    return good, refused_batch(data[len(good) :], taken.refusal.message)


class PartitionMirror:
    """One partition's; `run` is its task."""

    def __init__(
        self,
        source: SourceCluster,
        destination: Destination,
        where: Where,
        mirror: str,
        *,
        is_ready: Callable[[], Awaitable[None]],
        skips_archived: bool = False,
        stop: int | None = None,
        is_compacted: bool = False,
    ) -> None:
        """`is_ready` returns once the schemas of what is at the source now are at the mirror;
        `is_compacted`: the source lets go of records.
        """
        self.where = where
        self.mirror = mirror
        self.following: BatchFollower | None = None
        self.is_over = False
        self.brought_bytes = 0
        self.brought_to: int | None = None
        """Up to where batches are in the session; None: nothing was begun."""
        self._source = source
        self._destination = destination
        self._is_ready = is_ready
        self._skips_archived = skips_archived
        self._stop = stop
        self._is_compacted = is_compacted

    async def run(self, here: MirroredPartition, there: SourcePartition, first: int) -> None:
        """Mirror until cancelled, or all that is wanted is there. `first`: where a mirror begins
        that is empty. Raises SourceUnreadable, DestinationFault, MirrorStopped, NotFollowing.
        """
        following = BatchFollower(
            here.next_offset, here.checksum, stop=self._stop, is_compacted=self._is_compacted
        )
        await self._compare(here, there)
        start = await self._start(following, here, there, first)
        self.following, self.brought_to = following, following.expected
        if following.is_over:
            self.is_over = True
            return
        reader = await self._source.read(self.where, start)
        try:
            while not self.is_over:
                await self._bring(following, reader)
        finally:
            await reader.close()

    async def _compare(self, here: MirroredPartition, there: SourcePartition) -> None:
        """Both have the same before the mirror's end, or before the gap that it ends with, as far
        as both have anything.
        """
        end = here.next_offset
        if end > there.next_offset:
            text = f"the mirror ends at {end}, its source at {there.next_offset}: it lost records"
            raise MirrorStopped(text)
        if here.crc is None:
            return
        place = end if here.behind is None else here.behind
        found = await self._source.batch_before(self.where, place)
        if found is not None and not self._is_same(found, place, here.crc):
            text = f"the batch before offset {place} is another one at the source: it lost records"
            raise MirrorStopped(text)

    def _is_same(self, found: BatchBefore, place: int, crc: int) -> bool:
        """Whether the source has that batch, or may have compacted it since: then it lacks records
        there, or is gone.
        """
        if (found.next_offset, found.crc) == (place, crc):
            return True
        return not found.is_whole or (self._is_compacted and found.next_offset != place)

    async def _start(
        self, following: BatchFollower, here: MirroredPartition, there: SourcePartition, first: int
    ) -> int:
        """Where to read from: where the mirror ends, unless the source begins later."""
        is_empty = here.crc is None
        wanted = max(first if is_empty else 0, there.start_offset)
        if wanted <= following.expected:
            return following.expected
        base = await self._base_of(wanted, there)
        if is_empty:
            base = max(base, following.expected)
            checksum = there.start_checksum if base == there.start_segment else None
            checksum = following.checksum if base == following.expected else checksum
            await self._leave_gap(following, base, "", wanted, checksum)
        elif base <= following.expected:
            return wanted
        elif self._skips_archived:
            await self._leave_gap(following, base, "archived before it was mirrored")
        else:
            text = f"offsets {following.expected} to {base - 1} are archived at the source"
            raise MirrorStopped(f"{text}, and were not mirrored: see skip_archived")
        return wanted

    async def _base_of(self, offset: int, there: SourcePartition) -> int:
        """Where the batch begins that holds an offset."""
        if offset >= there.next_offset:
            return offset
        reader = await self._source.read(self.where, offset)
        try:
            return int.from_bytes((await reader.next())[:8], "big")
        finally:
            await reader.close()

    async def _leave_gap(
        self,
        following: BatchFollower,
        up_to: int,
        reason: str,
        start: int = 0,
        checksum: int | None = None,
    ) -> None:
        where = self.mirror, self.where.partition, following.expected, up_to
        told = UNSET if checksum is None else checksum
        await self._destination.leave_gap(LeaveGap(*where, start or up_to, told, reason))
        following.leave_gap(up_to, checksum)

    async def _bring(self, following: BatchFollower, reader: BatchReader) -> None:
        try:
            data = await reader.next()
            if len(data) <= AT_ONCE_BYTES:
                data, refused = sound_part(data)
            else:
                data, refused = await asyncio.to_thread(sound_part, data)
        except BatchRefused as error:
            data, refused = b"", error
        before = following.expected
        found = following.take(data)
        if found.data:
            await self._is_ready()
            await self._destination.write(self.mirror, self.where.partition, found.data)
            self.brought_bytes += len(found.data)
            self.brought_to = following.expected
        if found.hole_up_to is not None:
            await self._pass_hole(following, found.hole_up_to)
        self.is_over = found.is_over
        if refused is not None and not found.is_over:
            # A gap begins at the mirror's end: what is on its way must not fall into it.
            await self._destination.settled(self.mirror, self.where.partition)
            place = f"{self.mirror}/{self.where.partition} --to {refused.next_offset}"
            remedy = f"samelog mirror skip {place} --config mirror.toml"
            raise MirrorStopped(f"{refused}; to continue without it: {remedy}")
        if following.expected == before and not found.is_over and not data:
            raise NotFollowing("nothing comes")

    async def _pass_hole(self, following: BatchFollower, up_to: int) -> None:
        """The source has nothing there: once the mirror ends there, it goes on behind."""
        await self._destination.settled(self.mirror, self.where.partition)
        await self._leave_gap(following, up_to, "nothing is there at the source")
        raise NotFollowing("it goes on behind a hole")
