"""What is damaged in a session's directory, and how the runs that it is in are shipped.

A run that is damaged is shipped in parts. A part ends where the damage begins; once the cluster has
closed it, and a majority has merged it durably, the next part begins where the cluster's copy ends,
or behind the damage, whichever is further. It has a run id of its own, so nothing of the closed
part can be merged any more, and no record is merged twice. The id follows from that of the closed
part and where the next one begins: a directory that is put back from a copy has the same parts.

Invariant: damage is noted durably, with a copy of the bytes, before a part ends in it; the next
part's id and start are durable before a byte of it is sent. A loss is reported by each process that
ships the session until an operator removes the copy of the bytes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b

from msgspec.structs import replace

from samelog.format.directory_files import DamagedRange, DamageFile, RunByte, RunFile
from samelog.format.errors import CorruptLog
from samelog.format.file_names import input_name, parse_input_name
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName, RollByte, RunEnds
from samelog.replicator.push.input_directory import InputDirectory
from samelog.replicator.push.progress import LostRange
from samelog.replicator.push.session_tail import RunTail
from samelog.store.disk.files import FileSystem
from samelog.store.session.damage import (
    Damage,
    damaged_runs,
    keep_damaged,
    read_damage,
    write_damage,
)

log = logging.getLogger(__name__)


class SessionDamage:
    """The damage of one session's runs."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._files: dict[int, DamageFile] = {}
        self.expected: tuple[int, RunEnds] = -1, {}
        """A run of a stage of which all files up to these ends exist, or are damaged."""
        self.closed: set[str] = set()
        """Ids of runs that the cluster closed for good. Damage behind their ends changes nothing:
        the records there are lost, and later runs may be merged already.
        """
        self.noting: asyncio.Task[None] | None = None
        """Notes damage, in a thread; the inputs are shipped meanwhile."""
        self.seen: dict[int, dict[InputName, None]] = {}
        """By run, inputs whose tails ended in damage once."""
        self._is_recalled = False
        self._acknowledged: set[str] = set()
        """Copies of damaged bytes that an operator has removed."""

    # --- what is known ------------------------------------------------------------------------

    def part_of(self, run: RunFile) -> RunFile:
        """The run, with the id of the part that is shipped. Raises CorruptLog."""
        known = self._files.get(run.run)
        if known is None:
            known = self._files[run.run] = read_damage(self._fs, self._path, run.run)
        return run if known.run_id is None else replace(run, run_id=known.run_id)

    def start_of(self, run: int, name: InputName) -> RunByte | None:
        """Where the part of a run begins that is shipped; None: at the run's first byte."""
        known = self._files.get(run)
        return None if known is None else known.starts.get(input_name(*name))

    def is_found(self, run: int) -> bool:
        """Whether the present part of a run ends in damage."""
        return run in self._files and bool(self._files[run].found)

    def found_in(self, run: int, name: InputName) -> DamagedRange | None:
        """The damage that ends the present part of a run in an input."""
        known = self._files.get(run)
        ranges = () if known is None else known.found
        return next((each for each in ranges if each.input == input_name(*name)), None)

    @staticmethod
    def behind(tail: RunTail, end: RollByte) -> RollByte:
        """Return where the part behind a part closed at `end` begins, by positions on the wire. The
        end of a file is the start of the next one.
        """
        found, at = tail.damage, tail.normal(end)
        is_in = found is not None and tail.normal(found.start) <= at < found.stop
        return found.stop if found is not None and is_in else at

    def starts(self) -> Iterator[tuple[InputName, SessionPosition]]:
        """(input, start) of the parts that are shipped: what is below is merged durably on a
        majority, or lost.
        """
        for known in self._files.values():
            for key, start in known.starts.items():
                if (name := parse_input_name(key)) is not None:
                    yield name, SessionPosition(*start)

    def lost(self) -> Iterator[LostRange]:
        """The ranges whose records never reached the cluster."""
        for known in self._files.values():
            yield from self._as_lost(known.lost)

    def reported(self) -> Iterator[LostRange]:
        """Those of them that no operator has acknowledged."""
        return (each for each in self.lost() if each.kept not in self._acknowledged)

    def found_in_stages(self, stages: Mapping[int, str]) -> Iterator[LostRange]:
        """The damage of runs of stages, by run and the stage's name."""
        for known in self._files.values():
            if known.run in stages:
                yield from self._as_lost(known.found, stages[known.run])

    def _as_lost(
        self, ranges: Iterable[DamagedRange], stage: str | None = None
    ) -> Iterator[LostRange]:
        for each in ranges:
            name = parse_input_name(each.input)
            if name is not None:  # the directory may have another path since it was noted
                kept = os.path.join(self._path, each.input, os.path.basename(each.kept))
                run, *start = each.start
                yield LostRange(
                    run, name, (start[0], start[1]), each.stop[1:], each.reason, kept, stage
                )

    def tails(
        self, run: int, inputs: Mapping[InputName, InputDirectory]
    ) -> Iterator[tuple[InputName, RunTail, Damage]]:
        """The tails of a run that end in damage."""
        for name in self.seen.get(run, ()):
            tail = inputs[name].tails.get(run) if name in inputs else None
            if tail is not None and tail.damage is not None:
                yield name, tail, tail.damage

    def unnoted(self, run: int, inputs: Mapping[InputName, InputDirectory]) -> list[InputName]:
        """The inputs whose damage in a run is not noted durably."""
        found = []
        for name, tail, damage in self.tails(run, inputs):
            noted = self.found_in(run, name)
            if noted is None or noted.start != tail.local(damage.start):
                found.append(name)
        return found

    # --- what changes -------------------------------------------------------------------------

    def recall(self, names: Iterable[str]) -> None:
        """Read once what earlier processes noted, also of runs whose files are released. `names`:
        of the session's directory.
        """
        if self._is_recalled:
            return
        self._is_recalled = True
        for run in damaged_runs(names):
            try:
                self._files.setdefault(run, read_damage(self._fs, self._path, run))
            except CorruptLog as damage:
                log.error("which records of run %d were lost is unknown: %s", run, damage)
        self.look()

    def look(self) -> bool:
        """Whether an operator has acknowledged a loss: the copy of the bytes was removed."""
        kept = {each.kept for each in self.reported() if each.kept is not None}
        gone = {path for path in kept if not self._fs.exists(path)}
        self._acknowledged |= gone
        return bool(gone)

    def see(self, run: int, name: InputName) -> None:
        """The tail of an input ends in damage."""
        self.seen.setdefault(run, {})[name] = None

    def forget(self, run: int) -> None:
        """The files of a run were removed."""
        self.seen.pop(run, None)

    async def note(self, run: RunFile, name: InputName, tail: RunTail, directory: str) -> None:
        """Note durably that the present part of a run ends in damage, and keep a copy of the bytes,
        which may be many, in a thread. No part may begin meanwhile. Raises DiskFault, NoSpace: it
        is not noted.
        """
        damage = tail.damage
        if damage is None:
            return
        start, stop = tail.local(damage.start), tail.local(damage.stop)
        in_file = damage.start[0] == damage.stop[0]
        end, known = stop.byte if in_file else None, self._files[run.run]
        kept = await asyncio.to_thread(keep_damaged, self._fs, directory, start, end)
        found = DamagedRange(input_name(*name), start, stop, damage.reason, kept)
        others = [each for each in known.found if each.input != found.input]
        noted = replace(known, found=[*others, found])
        await asyncio.to_thread(write_damage, self._fs, self._path, noted)
        self._files[run.run] = noted
        log.error(
            "run %d of %s-%d is damaged from %d:%d to %d:%d (%s); %s; %s",
            start.run,
            *name,
            *start[1:],
            *stop[1:],
            damage.reason,
            f"a copy of it is {kept}",
            "shipping goes on behind it"
            if run.stage is None
            else f"nothing of it is published in stage {run.stage!r}",
        )

    def go_on(self, part: RunFile, ends: RunEnds, tails: Mapping[InputName, RunTail]) -> None:
        """The present part of a run is closed at `ends`: begin the next one, durably."""
        run = part.run
        known = self._files[run]
        lost: list[DamagedRange] = []
        starts: dict[str, RunByte] = {}
        for name, tail in tails.items():
            end, found = tail.normal(ends.get(name, (0, 0))), self.found_in(run, name)
            begin = self.behind(tail, end)
            starts[input_name(*name)] = tail.local(tail.normal(begin))
            if found is not None and begin > end:
                lost.append(replace(found, start=tail.local(end), stop=_stop(tail, end)))
            elif found is not None:
                log.info("what was damaged of %s-%d, run %d, is in the cluster", *name, run)
        run_id = _next_id(part.run_id, starts)
        self._write(DamageFile(run=run, run_id=run_id, starts=starts, lost=[*known.lost, *lost]))

    def _write(self, damage: DamageFile) -> None:
        write_damage(self._fs, self._path, damage)
        self._files[damage.run] = damage


def _next_id(run_id: str, starts: Mapping[str, RunByte]) -> str:
    """Return the id of the part behind another one: the same wherever an old copy of the session's
    directory is put back, so that the cluster knows which of its records it has.
    """
    text = json.dumps([run_id, sorted(starts.items())], separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _stop(tail: RunTail, end: RollByte) -> RunByte:
    """Where the damage behind `end` stops in the files of the run that `end` is in."""
    start = tail.local(end)
    stop = tail.local(end if tail.damage is None else tail.damage.stop)
    if stop.run == start.run or tail.layout is None:
        return stop
    return start.run, *tail.layout.ends()[start.run]
