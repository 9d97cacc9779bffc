"""Marks the bytes of a session that wait to be merged for long: no node can be reached, or takes
them.

Bytes that are merged at once cost nothing: a mark is due for bytes that were there at the last look
and are not merged at this one.

Invariant: at most one thread per session syncs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from samelog.format.errors import LogFormatError
from samelog.format.file_names import RunNames
from samelog.format.marks import RunMark
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.local_session import LocalSession
from samelog.runtime.clock import Clock
from samelog.runtime.loop import spawn
from samelog.store.disk.files import NoSuchFile
from samelog.store.session.backlog_mark import mark_backlog

log = logging.getLogger(__name__)

MARK_EVERY_S = 10.0


class _Backlog(NamedTuple):
    """A run of an input."""

    run: int
    name: InputName


class BacklogMarks:
    """Of one session."""

    def __init__(
        self,
        session: LocalSession,
        merged: Callable[[int, InputName], SessionPosition],
        clock: Clock,
    ) -> None:
        """`merged`: how far a run of an input is merged, by the positions in its files."""
        self._session = session
        self._merged = merged
        self._now = clock.now
        self._next_at = 0.0
        self._ends: dict[_Backlog, SessionPosition] = {}
        """Where runs without a noted end ended at the last look."""
        self._marks: dict[_Backlog, RunMark | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def look(self) -> None:
        """Mark what is due, in a thread. To be called about once a second."""
        now = self._now()
        if self._task is not None or now < self._next_at:
            return
        self._next_at = now + MARK_EVERY_S
        files = self._session
        due = [(each, files.input_path(each.name), files.names_of(*each)) for each in self._due()]
        if due:
            self._task = spawn(self._mark(due), "marks of a backlog")

    def _due(self) -> Iterator[_Backlog]:
        before, self._ends = self._ends, {}
        for record in self._session.runs:
            for name in self._session.inputs_of(record.run) if record.end is None else ():
                each, end = _Backlog(record.run, name), None
                with suppress(LogFormatError):  # the session reports what is wrong with its files
                    end = self._session.file_end(*each)
                if end is None or end <= self._merged(*each):
                    continue
                self._ends[each] = end
                if each in before and self._merged(*each) < before[each]:
                    yield each
        self._marks = {each: mark for each, mark in self._marks.items() if each in self._ends}

    async def _mark(self, due: Sequence[tuple[_Backlog, str, RunNames]]) -> None:
        """Mark runs of inputs in their directories; one that fails holds up no other one."""
        fs, path = self._session.fs, self._session.path
        try:
            for each, directory, names in due:
                if self._is_closed:
                    break
                known = self._marks.get(each)
                try:
                    mark = await asyncio.to_thread(
                        mark_backlog, fs, directory, each.run, names, known
                    )
                except NoSuchFile:
                    continue  # it was merged and released meanwhile
                except LogFormatError as error:
                    log.error("unmerged records of %s are not marked: %s", path, error)
                else:
                    self._marks[each] = mark
        finally:
            self._task = None

    async def close(self) -> None:
        """Mark nothing more, and wait for the thread."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait([self._task])
