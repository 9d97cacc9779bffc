"""Gives a publisher's disk back: removes files whose bytes are merged and durable on a majority.

A sealed file goes when the merged position has passed it, the rest of a run when the run is closed
and all of it merged. Nothing is removed because it could not be read or shipped; what belongs to a
topic that was deleted goes only if that is decided (docs/state-machine.md). The record of the
newest run stays, so that its number is not used again.

Invariant: a file is removed only if every byte in it is merged, or damaged and kept as a copy, or
was discarded, or is of a stage whose topic is gone; of a run, the record goes last.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from samelog.format.file_names import data_name, from_name, sealed_name
from samelog.replicator.interfaces import InputName, RollByte
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.progress import LostRange, SessionProgress
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.session.directory import run_files_to_remove


@dataclass(frozen=True, slots=True)
class Removal:
    """Files to be removed, in this order; `finished` are the runs that are no more then."""

    paths: tuple[str, ...]
    finished: tuple[int, ...]
    directories: Mapping[str, tuple[int, int]]
    """Path -> identity of those that the files are in."""
    is_put_off: bool = False
    """Another directory has taken the place of one of these."""


def plan_removal(
    session: LocalSession, progress: SessionProgress, moved: Collection[InputName] | None = None
) -> Removal:
    """What may go now: nothing while another directory has taken the place of one that the files
    are in, because its files have the same names, and other bytes. `moved`: of open runs, look at
    these inputs only, as nothing else has changed; None: at all.
    """
    paths: list[str] = []
    finished: list[int] = []
    used: dict[InputName, None] = {}
    for record in session.runs:
        run = record.run
        names = _changed_inputs(session, progress, run, moved)
        is_finished = _is_finished(session, progress, run, names)
        for name, found in _removable(session, progress, run, names, is_finished=is_finished):
            paths += found
            used[name] = None
        if is_finished and names:
            finished.append(run)
        if is_finished and run != session.runs[-1].run:
            paths += run_files_to_remove(session.fs, session.path, run)
    if (paths or finished) and not session.is_in_place(used):
        return Removal((), (), {}, is_put_off=True)
    return Removal(tuple(paths), tuple(finished), session.identities(used))


def _is_finished(
    session: LocalSession, progress: SessionProgress, run: int, names: Iterable[InputName]
) -> bool:
    """Whether a run is closed, and nothing of its inputs is needed any more."""
    is_closed = run in progress.ends
    return is_closed and all(_is_done(session, progress, run, name) for name in names)


def _removable(
    session: LocalSession,
    progress: SessionProgress,
    run: int,
    names: Iterable[InputName],
    *,
    is_finished: bool,
) -> Iterator[tuple[InputName, list[str]]]:
    """The files of a run that may go, by input; all of a finished run."""
    for name in names:
        limit = None if is_finished else _first_kept(session, progress, run, name)
        if found := [*_names_below(session, run, name, limit)]:
            yield name, found


def _changed_inputs(
    session: LocalSession,
    progress: SessionProgress,
    run: int,
    moved: Collection[InputName] | None,
) -> list[InputName]:
    """The inputs of a run of which something may go now: all of a closed run."""
    if moved is None or run in progress.ends:
        return session.inputs_of(run)
    return [name for name in moved if session.has_bytes(run, name)]


def waits_for_file(session: LocalSession, progress: SessionProgress, name: InputName) -> bool:
    """Whether the newest file of an input is merged, and goes once there is a newer one."""
    run = session.runs[-1].run
    newest = max(session.names_of(run, name).data, default=-1)
    return 0 <= newest < progress.merged(run, name)[0]


def find_lost(session: LocalSession, run: int, name: InputName, end: RollByte) -> LostRange | None:
    """What a closed run has here behind its end in the cluster. Raises LogFormatError."""
    tail = session.tail(run, name)
    start = max(end, tail.first)
    if start[0] not in tail.rolls:
        return None
    tail.raise_to(start)
    while tail.normal(tail.end) <= tail.normal(start) and tail.advance():
        pass
    if tail.normal(tail.end) > tail.normal(start):
        return LostRange(run, name, start, tail.end)
    found = tail.damage
    return None if found is None else LostRange(run, name, start, found.stop, found.reason)


async def remove(fs: FileSystem, removal: Removal) -> None:
    """Remove the files in a thread: freeing a gigabyte takes its time. Raises DiskFault;
    DirectoryGone: another directory took the place of theirs meanwhile, nothing of it is removed.
    """
    if removal.paths:
        await asyncio.to_thread(_remove, fs, removal)


def _remove(fs: FileSystem, removal: Removal) -> None:
    for path in removal.paths:
        try:
            fs.unlink(path, within=removal.directories[os.path.dirname(path)])
        except NoSuchFile:
            continue


def _is_done(session: LocalSession, progress: SessionProgress, run: int, name: InputName) -> bool:
    """Whether nothing of an input's closed run is needed any more."""
    if progress.is_gone(run, name):
        return True
    shipping = session.shipping(name)
    if shipping.drops(run):
        return True
    if session.keeps(run, name):
        return False
    carried = [(each.roll, each.stop) for each in shipping.carried if each.run == run]
    if carried:
        return progress.merged(run, name) >= carried[-1]
    ends = progress.ends.get(run)
    if ends is None or progress.is_lost(run, name):
        return False
    tail = session.tail(run, name)
    if not tail.has_bytes:  # an earlier life of the process released what the run had carried
        return True
    end = tail.normal(ends.get(name, (0, 0)))
    return tail.normal(progress.merged_as(run, name, tail.layout)) >= end


def _first_kept(session: LocalSession, progress: SessionProgress, run: int, name: InputName) -> int:
    """The lowest roll that is still needed; the newest file always is, and one that is merged to
    its end until something behind it is: a node that never heard where it ends asks again.
    """
    newest = max(session.names_of(run, name).data, default=0)
    if progress.is_gone(run, name):
        return newest
    held = session.shipping(name).held
    if held is not None and held[0] < run:
        return 0
    return min(newest, progress.merged(run, name)[0])


def _names_below(
    session: LocalSession, run: int, name: InputName, limit: int | None
) -> Iterator[str]:
    """An input's files of a run, below a roll; None: all that there is of the run."""
    known, path = session.names_of(run, name), session.input_path(name)
    for roll in sorted(known.data):
        if limit is None or roll < limit:
            yield from _names_of_file(path, run, roll, known.sealed.get(roll))
    if limit is None:
        yield from (os.path.join(path, from_name(run, *start)) for start in known.starts)


def _names_of_file(directory: str, run: int, roll: int, length: int | None) -> list[str]:
    """A data file and its marker; the data goes first."""
    names = [data_name(run, roll)]
    if length is not None:
        names.append(sealed_name(run, roll, length))
    return [os.path.join(directory, name) for name in names]
