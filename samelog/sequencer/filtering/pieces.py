"""Computes what passes of merged logs, a piece at a time, in a thread, once for equal filters.

Readers have the thread by turns, whoever asks for however much. A piece that was computed is kept
for a while: who asks for the same from the same offset on gets it. At a log's end pieces are
computed at intervals, so that what comes together is looked at together.

Invariant: one piece is computed at a time; what is kept is bounded; a piece is the same whoever it
is computed for, because all that it depends on is in its key, or never changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

from samelog.format.arrow import ArrowMissing
from samelog.format.errors import LogFormatError
from samelog.replicator.interfaces import MergedStream, RequestRefused
from samelog.runtime.fair_thread import FairThread
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.passing import PassedPiece, Passing
from samelog.typed.versions import Since
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode

log = logging.getLogger(__name__)

PIECE_BYTES = 1 << 20
"""Of a log, looked at together."""
GATHER_S = 0.05
"""Between two pieces at the end of a log."""
KEPT_BYTES = 16 << 20
KEPT_BYTES_EACH = 256
"""What a piece takes besides its bytes."""
FILTERS_KEPT = 256
UNREAD_KEPT = 4096
"""Counts of what could not be read; the one that is longest not added to goes first."""


@dataclass(frozen=True, slots=True)
class PieceSource:
    """A log and a filter. `key`: who has the same one gets the same pieces."""

    stream: MergedStream
    key: Hashable
    make: Callable[[], Passing]
    """For the thread, which parses the filter. Raises BadFilter, ArrowMissing."""
    since: Callable[[], Since]
    """Which versions of the schema were in force in the partition, and from where on."""
    is_committed: bool
    name: Hashable
    """For what is counted: the partition, and what is asked of it."""

    @property
    def end(self) -> int:
        """Up to where it can be looked now. Raises LogFormatError."""
        found = self.stream.log
        return found.last_stable_offset if self.is_committed else found.next_offset


@dataclass(slots=True)
class _Filter:
    """One that is used, and where and when it got to the end of its log."""

    passing: Passing
    end: int = -1
    at_s: float = 0.0


class RowFilters:
    """One node's."""

    def __init__(self) -> None:
        self._thread = FairThread("samelog-rows")
        self._filters: OrderedDict[Hashable, _Filter] = OrderedDict()
        self._under_way: dict[tuple[Hashable, int], asyncio.Task[PassedPiece]] = {}
        self._kept: OrderedDict[tuple[Hashable, int], PassedPiece] = OrderedDict()
        self._kept_bytes = 0
        self._unread: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self.looked_bytes = 0
        """Of merged logs, since the start."""
        self.passed_bytes = 0
        """Of pieces that were computed."""

    def unread(self, partition: int, asked: RowsAsked) -> tuple[int, int]:
        """How many records of a partition could not be read since the start, and the last one."""
        return self._unread.get((partition, asked[:3]), (0, -1))

    def _note_unread(self, source: PieceSource, piece: PassedPiece) -> None:
        """What was looked at before counts once."""
        count, newest = self._unread.get(source.name, (0, -1))
        if piece.newest_unread > newest:
            self._unread[source.name] = count + piece.unread, piece.newest_unread
            self._unread.move_to_end(source.name)
            if len(self._unread) > UNREAD_KEPT:
                self._unread.popitem(last=False)

    def kept(self, source: PieceSource, offset: int) -> PassedPiece | None:
        """A piece that was computed before."""
        place = source.key, offset
        found = self._kept.get(place)
        if found is not None:
            self._kept.move_to_end(place)
        return found

    async def piece(self, source: PieceSource, who: Hashable, offset: int) -> PassedPiece:
        """What passes from an offset on, which is below `source.end`. Raises RequestRefused."""
        found = self.kept(source, offset)
        if found is not None:
            return found
        place = source.key, offset
        task = self._under_way.get(place)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._compute(source, who, offset))
            self._under_way[place] = task
            task.add_done_callback(partial(self._done, place))
        return await asyncio.shield(task)

    def _done(self, place: tuple[Hashable, int], task: asyncio.Task[PassedPiece]) -> None:
        del self._under_way[place]
        if task.cancelled() or task.exception() is not None:
            return
        piece = task.result()
        self._kept[place] = piece
        self._kept_bytes += len(piece.data) + KEPT_BYTES_EACH
        while self._kept_bytes > KEPT_BYTES:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest.data) + KEPT_BYTES_EACH

    async def _compute(self, source: PieceSource, who: Hashable, offset: int) -> PassedPiece:
        base = -1
        try:
            used = await self._filter(source, who)
            await self._gather(used, offset)
            base, work = self._work(used.passing, source, offset)
            piece, looked = await self._thread.run(who, work, lambda _: False)
            self.looked_bytes += looked
            if piece.next_offset >= source.end:
                used.end, used.at_s = piece.next_offset, asyncio.get_running_loop().time()
        except LogFormatError as error:
            if base >= 0 and offset >= source.stream.log.start_offset:  # it was not archived
                source.stream.suspect(base)
            text = f"this node cannot read it: {error}"
            raise RequestRefused(FaultCode.NOT_READY, text, "ask another node") from error
        except BadFilter as error:
            raise RequestRefused(FaultCode.OUT_OF_RANGE, str(error)) from error
        except ArrowMissing as error:
            raise RequestRefused(FaultCode.NOT_READY, str(error), "ask another node") from error
        self.passed_bytes += len(piece.data)
        self._note_unread(source, piece)
        return piece

    async def _filter(self, source: PieceSource, who: Hashable) -> _Filter:
        """The one that is kept, or a new one: its text is parsed in the thread."""
        used = self._filters.get(source.key)
        if used is None:
            made = await self._thread.run(who, source.make, lambda _: False)
            used = self._filters.setdefault(source.key, _Filter(made))
            if len(self._filters) > FILTERS_KEPT:
                self._filters.popitem(last=False)
        self._filters.move_to_end(source.key)
        return used

    @staticmethod
    async def _gather(used: _Filter, offset: int) -> None:
        """Wait for what comes together, at the end of a log."""
        if offset == used.end:
            await asyncio.sleep(used.at_s + GATHER_S - asyncio.get_running_loop().time())

    @staticmethod
    def _work(
        passing: Passing, source: PieceSource, offset: int
    ) -> tuple[int, Callable[[], tuple[PassedPiece, int]]]:
        """The segment that is looked into, and what the thread does. Raises LogFormatError."""
        found, stop = source.stream.log, source.end
        base, byte = found.locate(offset)
        read = found.detached(base, byte, PIECE_BYTES)
        aborted = found.aborted(offset, stop) if source.is_committed else ()
        name, bounds = (source.stream.topic, source.stream.index), (offset, stop)
        return base, partial(_passed, passing, read, name, bounds, source.since(), aborted)


def _passed(passing: Passing, read: Callable[[], bytes], *given: Any) -> tuple[PassedPiece, int]:
    """What passes, and of how many bytes. For the thread. Raises LogFormatError."""
    data = read()
    return passing.piece(data, *given), len(data)
