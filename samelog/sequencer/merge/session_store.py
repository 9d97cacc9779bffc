"""The node's copies of session logs, by input number: the bytes that merge instructions speak of.

Invariant: a file of an input is open once at most; its durable position is only ever raised by a
finished sync.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from samelog.format.directory_files import SessionFile, TopicFile
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.format.file_names import SESSION_MARKS_FILE
from samelog.format.positions import SessionPosition
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.events import SessionEvents
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.merge.session_marks import SessionMarks
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.directories import clear_removed, remove_whole
from samelog.store.disk.dirty_files import RoundFiles, take_dirty
from samelog.store.disk.files import DiskFault, File, FileSystem, NoSuchFile
from samelog.store.disk.quarantine import set_aside, set_partition_aside
from samelog.store.disk.tail_memory import NOTHING_KEPT, TailMemory
from samelog.store.merged.topic_dirs import TopicDirs
from samelog.store.session.directory import SessionDirectory, read_input_owner
from samelog.store.session.log import InputLog
from samelog.store.session.new_input import NewInput
from samelog.store.session.run import RunPosition

log = logging.getLogger(__name__)


SyncedEnds = Mapping[int, tuple[int, Mapping[int, RunPosition]]]
"""Input -> how often it was set aside, and where each of its runs ends."""


class BeingMade(Exception):
    """An input of the session is being made: its log cannot be opened now, but soon."""


@dataclass(frozen=True, slots=True)
class GoneInput:
    """An input that was in a group, and where its files are."""

    number: int
    path: str
    topic_id: str
    index: int

    @property
    def whose(self) -> TopicFile:
        """What topic.json says in its directory."""
        return TopicFile(topic_id=self.topic_id, input=self.number)

    @property
    def place(self) -> tuple[str, str, int]:
        """As `TopicDirs` takes it."""
        return self.path, self.whose.owner, self.index


class _Used:
    """Which inputs are in use, and which sessions no longer are."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        """Sessions whose directories go, unless they came back."""
        self.is_replayed = False
        """Whether everything is applied that was ever committed."""
        self.awake: dict[int, None] = {}
        """Something was synced, read or released since the last `rest`."""
        self.drowsy: dict[int, None] = {}
        """Those of the time before."""
        self.grown: dict[int, None] = {}
        """They may hold more bytes than at the last `take_grown`: opened or synced since, or a
        quota was charged for their bytes.
        """
        self.absent: set[int] = set()
        """They are not open, and have no directory at this node."""
        self.making: dict[str, asyncio.Future[None]] = {}
        """Session with an input whose directory is being made -> done when it is made."""
        self.unstated: dict[str, set[int]] = {}
        """By such a session, inputs whose position was asked for meanwhile. Their logs are not
        opened then, so that less was stated than they may hold.
        """
        self.unchecked: set[int] = set()
        """Inputs to be checked for a gap when they are opened: their session was being made."""


class SessionStore:
    """Opens input logs on demand and reads ranges of them."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        machine: StateMachine,
        events: SessionEvents,
        memory: TailMemory = NOTHING_KEPT,
        *,
        lost_power: bool = True,
    ) -> None:
        """`memory`: for the newest bytes of inputs, until a majority has merged them durably.
        `lost_power`: whether the host may have lost written bytes since this node ran last.
        """
        self._lost_power = lost_power
        self._memory = memory
        self._fs = fs
        self._directory = directory
        self._machine = machine
        self.checked = CheckedRanges()
        self.opened: dict[int, InputLog] = {}
        """The logs that are open, by input; `log` opens one."""
        self._events = events
        self._troubles: dict[int, str] = {}
        """Input -> what was wrong with its files last."""
        self._times_aside: dict[int, int] = {}
        """How often an input was set aside: a sync that was under way says nothing of it."""
        self.damaged: set[int] = set()
        """Inputs of which this node has lost bytes that may have been durable."""
        self._begun_anew: set[int] = set()
        """Inputs set aside since `ends`: a sync that is under way says nothing of them."""
        self.used = _Used()
        self._dirs = TopicDirs(fs, lambda path: read_input_owner(fs, path))
        fs.make_directory(directory)
        self.marks = SessionMarks(fs, directory, machine, self.opened, lost_power=lost_power)

    async def make(self, number: int, syncer: Syncer) -> None:
        """Open the log of an input that may be new: its directories are made durable in rounds of
        syncs that many inputs share, and the event loop does not wait for the disk. Does nothing
        if the input is gone, or goes meanwhile. Raises DiskFault, NoSuchFile.
        """
        inputs = self._machine.state.sessions.inputs
        while (entry := inputs.get(number)) is not None and number not in self.opened:
            other = self.used.making.get(entry.session)
            if other is None:
                await self._make(entry, syncer)
                return
            await asyncio.shield(other)

    async def _make(self, entry: Input, syncer: Syncer) -> None:
        done = self.used.making[entry.session] = asyncio.get_running_loop().create_future()
        place = self.gone(entry)
        new = NewInput(self._fs, self._record(entry), place.path, place.whose)
        is_durable = False
        try:
            self._dirs.make_way(*place.place)
            await self.marks.begin(syncer)
            await syncer.sync(new.write())
            await syncer.sync(new.rename())
            is_durable = self._fs.exists(place.path)  # or it was removed meanwhile
        except (CorruptLog, NoSuchFile) as error:  # damaged, or removed with its session or topic
            log.info("%s", error)  # `_open_log` sets damage aside, and makes what is still wanted
        finally:
            new.close()
            del self.used.making[entry.session]
            done.set_result(None)
        if entry.number in self._machine.state.sessions.inputs:
            is_empty = is_durable and new.is_first
            made = InputLog.new(self._fs, place.path, place.topic_id) if is_empty else None
            opened = self._open_log(entry.number, made, is_durable=is_durable)
            if opened.runs():  # it was not vouched for while it was being made
                self._events.session_log_unsynced(entry.number)
        else:  # its topic was deleted, or its session forgotten
            self.remove(place)
        self._state_others(entry)

    def _state_others(self, made: Input) -> None:
        """Have the positions stated that were asked for while an input of their session was being
        made.
        """
        asked = self.used.unstated.pop(made.session, set()) - {made.number}
        for number in sorted(asked & self._machine.state.sessions.inputs.keys()):
            held = self._held(number)
            if held is not None and held.runs():
                self._events.session_log_unsynced(number)

    def log(self, number: int) -> InputLog:
        """The log of an input, opened (and its torn tail repaired) when first asked for. Raises
        BeingMade while `make` is at work on its session.
        """
        opened = self.opened.get(number)
        if opened is None:
            if self._machine.state.sessions.inputs[number].session in self.used.making:
                raise BeingMade
            opened = self._open_log(number)
        return opened

    def _held(self, number: int) -> InputLog | None:
        """The log of an input; None if this node has no directory for it, or is making it."""
        opened = self.opened.get(number)
        if opened is not None or number in self.used.absent:
            return opened
        entry = self._machine.state.sessions.inputs[number]
        if entry.session in self.used.making:
            self.used.unstated.setdefault(entry.session, set()).add(number)
            return None
        if self._dirs.is_there(*self.gone(entry).place):
            return self._open_log(number)
        self.used.absent.add(number)
        return None

    def _topic(self, entry: Input) -> tuple[str, int]:
        """(topic id, index) of an input's partition."""
        partition = self._machine.state.partitions.by_number[entry.partition]
        return partition.topic_id, partition.index

    def _open_log(
        self, number: int, made: InputLog | None = None, *, is_durable: bool = False
    ) -> InputLog:
        """Open the log of an input, or take up the one that was just made."""
        entry = self._machine.state.sessions.inputs[number]
        self.marks.begin_now()
        opened = self.opened[number] = made or self._open(entry, is_durable=is_durable)
        self.used.absent.discard(number)
        opened.recent = self._memory.new_log()
        for damage in opened.damaged:
            log.error("%s", damage)
        if opened.lost_durable or (opened.damaged and not self._lost_power):
            self.damaged.add(number)
        self.marks.opened(number, is_damaged=bool(opened.damaged) or number in self.damaged)
        self.used.awake[number] = self.used.grown[number] = None
        if number in self.used.unchecked:
            self.used.unchecked.discard(number)
            self._set_gap_aside(entry, opened)
        if opened.dirty():
            self._events.session_log_unsynced(number)
        return opened

    def _open(self, entry: Input, *, is_durable: bool) -> InputLog:
        """What the files say of whose they are is in the replicated state too: where they are
        unreadable, new ones replace them, and bytes of an unknown input are set aside.
        """
        try:
            self._claim_session(entry, is_durable=is_durable)
        except CorruptLog as damage:
            log.error("%s; it is now %s", damage, set_aside(self._fs, damage.path))
            self._claim_session(entry)
        try:
            return self._open_input(entry, is_durable=is_durable)
        except CorruptLog as damage:
            log.error("%s; all is now %s", damage, set_partition_aside(self._fs, self.path(entry)))
            self.damaged.add(entry.number)
            return self._open_input(entry)

    def _record(self, entry: Input) -> SessionFile:
        session = self._machine.state.sessions.by_name[entry.session]
        return SessionFile(session=session.name, id=session.session_id, identity=session.identity)

    def _claim_session(self, entry: Input, *, is_durable: bool = False) -> None:
        record = self._record(entry)
        SessionDirectory.open_or_create(
            self._fs,
            os.path.join(self._directory, record.session),
            session=record.session,
            session_id=record.id,
            identity=record.identity,
            is_durable=is_durable,
        )

    def _open_input(self, entry: Input, *, is_durable: bool = False) -> InputLog:
        place, marks = self.gone(entry), self.marks.of(entry)
        self._dirs.make_way(*place.place)
        return InputLog.open(
            self._fs,
            place.path,
            topic_id=place.topic_id,
            number=place.number,
            marks=marks,
            is_durable=is_durable,
        )

    def set_gaps_aside(self) -> None:
        """Give up bytes that do not reach back to where an input is planned: a loss of power took
        the names of the files before them, which were never durable, nor thus were these. Only to
        be called when everything that was ever committed is applied. Publishers and nodes release
        a file when something behind it is merged; what is committed and missing here, peers have.
        """
        for entry in self._inputs():
            held = self._held(entry.number)
            if held is not None:
                self._set_gap_aside(entry, held)
            elif entry.session in self.used.making:
                self.used.unchecked.add(entry.number)
        self.marks.are_all_open = not self.used.unchecked

    def _set_gap_aside(self, entry: Input, held: InputLog) -> None:
        if SessionPosition(entry.run, *held.start(entry.run)) > entry.place:
            log.error("%s: run %d begins behind a gap, set aside", held.path, entry.run)
            held.set_run_aside(entry.run)
            self.marks.changed[entry.number] = None
            times = self._times_aside.get(entry.number, 0)
            self._times_aside[entry.number] = times + 1

    def _inputs(self, *, are_here: bool = True) -> list[Input]:
        """Of partitions of this group, or of others: group 0 notes who wrote to them."""
        state = self._machine.state
        inputs = state.sessions.inputs.values()
        return [each for each in inputs if state.has_here(each.partition) is are_here]

    def path(self, entry: Input) -> str:
        """The directory of an input."""
        state = self._machine.state
        partition = state.partitions.by_number[entry.partition]
        topic = state.topics.by_id[partition.topic_id]
        return os.path.join(self._directory, entry.session, f"{topic.name}-{partition.index}")

    def take_dirty(self, numbers: Iterable[int]) -> RoundFiles:
        """Take the files of these inputs written since the last call. Raises DiskFault."""
        opened, logs = self.opened, dict[int, InputLog]()
        for number in numbers:
            if number in opened:
                logs[number] = opened[number]
        return take_dirty(logs)

    def gone(self, entry: Input) -> GoneInput:
        """What `remove` needs to know of an input, while its partition is known."""
        return GoneInput(entry.number, self.path(entry), *self._topic(entry))

    def remove(self, gone: GoneInput) -> None:
        """Let go of an input: its topic was deleted, or it has expired. `remove_next` removes its
        files.
        """
        self.used.absent.discard(gone.number)
        self.used.unchecked.discard(gone.number)
        log = self.opened.pop(gone.number, None)
        if log is not None:
            log.close()
        self._dirs.remove_later(*gone.place)

    def remove_next(self) -> bool:
        """Remove one directory of those; whether there was any."""
        return self._dirs.remove_next()

    def forget_session(self, name: str) -> None:
        """Remove the directory of a session that is not remembered, and has no inputs any more: a
        node that replays its log does so at the end, because the session may come back in it.
        """
        self.used.forgotten.append(name)
        if self.used.is_replayed:
            self._remove_forgotten()

    def _remove_forgotten(self) -> None:
        names, self.used.forgotten = self.used.forgotten, []
        for name in names:
            path = os.path.join(self._directory, name)
            if name not in self._machine.state.sessions.by_name and self._fs.exists(path):
                remove_whole(self._fs, path)

    def forget_deleted(self) -> None:
        """Remove the files of inputs and sessions that are gone; to be called when everything that
        was ever committed is applied.
        """
        self.used.is_replayed = True
        self._remove_forgotten()
        owners = {
            self.gone(entry).place[1] for entry in self._machine.state.sessions.inputs.values()
        }
        clear_removed(self._fs, self._directory)
        for name in self._fs.list_directory(self._directory):
            if name.startswith(SESSION_MARKS_FILE):
                continue
            try:
                folder = os.path.join(self._directory, name)
                self._dirs.forget_others(folder, lambda owner, _: owner in owners)
            except CorruptLog as stray:
                log.warning("%s; it belongs to no session, and is left alone", stray)

    def forget_left(self) -> None:
        """Remove, as `remove` does, what is left of inputs whose partitions are in other groups."""
        for entry in self._inputs(are_here=False):
            if self._fs.exists(self.path(entry)):
                self.remove(self.gone(entry))

    def durable(self, entry: Input) -> SessionPosition:
        """Up to where this node can vouch for an input: its bytes on disk, or that they are merged
        already.
        """
        log = self.opened.get(entry.number) or self._held(entry.number)
        if log is None:
            return entry.place
        held = log.durable(entry.run)
        return SessionPosition(entry.run, *max(held, (entry.roll, entry.byte)))

    def written(self, entry: Input) -> SessionPosition:
        """Up to where this node holds an input, durable or not."""
        log = self.opened.get(entry.number) or self._held(entry.number)
        if log is None:
            return entry.place
        held = log.end(entry.run)
        return SessionPosition(entry.run, *max(held, (entry.roll, entry.byte)))

    def held(self, entry: Input) -> SessionPosition:
        """As `written`, but opens no file for it: what is not open holds nothing that is new."""
        return self.written(entry) if entry.number in self.opened else entry.place

    def ends(self, numbers: Iterable[int]) -> SyncedEnds:
        """Where the files of these inputs end, in every run that is held: a node that was just
        started may not know yet which one an input is in.
        """
        ends: dict[int, tuple[int, Mapping[int, RunPosition]]] = {}
        for number in numbers:
            held = self.opened.get(number)
            if held is not None:
                ends[number] = self._times_aside.get(number, 0), held.ends()
        return ends

    def mark_durable(self, ends: SyncedEnds, files: Iterable[File] = ()) -> None:
        """Everything below these ends was synced, with these files."""
        synced = frozenset(files)
        for number, (times, runs) in ends.items():
            held = self.opened.get(number)
            if held is None:
                continue
            if times != self._times_aside.get(number, 0):
                held.synced(synced)
                continue
            held.synced(synced, runs)
            self.marks.changed[number] = self.used.awake[number] = self.used.grown[number] = None

    def take_grown(self) -> dict[int, None]:
        """Inputs that may hold more bytes than at the last call."""
        grown, self.used.grown = self.used.grown, {}
        return grown

    def unmerged_bytes(self, entry: Input) -> int:
        """How much of an input's open run this node holds behind the merged position."""
        if entry.number not in self.opened:
            return 0
        files = (file for file in self.opened[entry.number].files() if file.run == entry.run)
        return sum(
            max(0, file.size - (entry.byte if file.roll == entry.roll else 0))
            for file in files
            if file.roll >= entry.roll
        )

    def release(self, number: int, place: SessionPosition, *, is_over: bool) -> None:
        """Remove the files of an input that lie wholly below `place`: nobody needs them. `is_over`:
        its run ends there, and what lies behind does not count.
        """
        held = self.opened.get(number)
        if held is None:
            return
        self.marks.changed[number] = self.used.awake[number] = None
        if held.recent is not None:
            held.recent.forget(*place)
        try:
            for run in held.runs():
                if run < place.run or (is_over and run == place.run):
                    held.release_run(run)
            held.release(place.run, place.roll - 1)
        except DiskFault as fault:  # they are in nobody's way but the disk's
            self._say_once(number, f"merged session files cannot be removed: {fault}")

    # --- for the planner and the merger -----------------------------------------------------------

    def sealed_length(self, number: int, place: SessionPosition) -> int | None:
        """The length of the file `place` is in, if it will never grow."""
        log = self._held(number)
        return None if log is None else log.sealed_length(place.run, place.roll)

    def read(self, number: int, place: SessionPosition, stop: int) -> bytearray:
        """Bytes [place.byte, stop) of the file `place` is in; fewer where they are not held. The
        caller may change them.
        """
        log = self.opened.get(number) or self._held(number)
        return bytearray() if log is None else log.copy(*place, stop)

    def read_range(self, part: Range, *, from_file: bool = False) -> bytearray | None:
        """The range's bytes; None when this node does not hold all of them. `from_file`: what is in
        memory is not believed.
        """
        if part.input not in self._machine.state.sessions.inputs:
            return None
        self.used.awake[part.input] = None
        place = part.run, part.roll, part.start, part.stop
        try:
            log = self._held(part.input)
            if log is None:
                return None
            data = log.copy(*place, from_file=from_file)
        except LogFormatError as error:  # peers have the bytes, or what became of them
            self._say_once(part.input, f"session bytes cannot be read: {error}")
            return None
        return data if len(data) == part.stop - part.start else None

    def _say_once(self, number: int, trouble: str) -> None:
        if self._troubles.get(number) != trouble:
            self._troubles[number] = trouble
            log.error("%s", trouble)

    def rest(self) -> None:
        """Close the files of logs that nothing was done with since the last call. What is not
        synced of them is synced first, such as that files are gone.
        """
        used = self.used
        tired, used.drowsy, used.awake = used.drowsy, used.awake, {}
        inputs = self._machine.state.sessions.inputs
        for number in tired.keys() - used.drowsy.keys():
            held = self.opened.get(number)
            if held is not None and number in inputs and not self._rests(number, held):
                self.used.awake[number] = None

    def _rests(self, number: int, held: InputLog) -> bool:
        if held.dirty():
            self._events.session_log_unsynced(number)
        try:
            return held.rest()
        except DiskFault as fault:  # who needs the files will say more
            self._say_once(number, f"session files cannot be closed: {fault}")
            return True

    def close(self) -> None:
        """Persist the durable marks and close every file."""
        self.marks.save_now()
        for log in self.opened.values():
            log.close()
        self.opened.clear()
