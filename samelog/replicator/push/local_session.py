"""A session's directory as its push client sees it: runs, inputs, and what changes in them.

Changes are noticed with inotify (one instance for the directory and all inputs); `poll` looks at
everything again, because inotify can miss. The directory may be written by another process.

Invariant: a run that is over stays over: it has its end noted, a newer run exists, or once nobody
held the writer's lock.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from samelog.format.directory_files import RunFile, ShippingFile
from samelog.format.errors import CorruptLog, DirectoryInUse, LogFormatError
from samelog.format.file_names import (
    CLUSTER_FILE,
    MARKS_FILE,
    SHIPPING_FILE,
    TOPIC_FILE,
    RunNames,
    input_name,
)
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName, RunEnds
from samelog.replicator.push.input_directory import InputDirectory
from samelog.replicator.push.progress import LostRange
from samelog.replicator.push.session_damage import SessionDamage
from samelog.replicator.push.session_tail import PieceCache, RunTail
from samelog.replicator.push.session_watch import SessionWatch
from samelog.runtime.inotify import Event, LoopInotify, Mask
from samelog.runtime.loop import spawn
from samelog.store.disk.directories import DirectoryWatch
from samelog.store.disk.disk_errors import DirectoryGone, NoHardLinks
from samelog.store.disk.files import TEMPORARY_SUFFIX, FileSystem, NoSuchFile
from samelog.store.session.damage import Damage
from samelog.store.session.directory import RunExists, SessionDirectory, read_topic_id
from samelog.wire.push.layout import Layout, part_layout

log = logging.getLogger(__name__)

_TROUBLE = Mask.CLOSE_WRITE | Mask.DELETE_SELF | Mask.MOVE_SELF | Mask.IGNORED | Mask.UNMOUNT
_OWN_FILES = (MARKS_FILE, TOPIC_FILE, SHIPPING_FILE)
"""Begins of the names of files of an input that say nothing about records; most are written here.
"""
_CLUSTER_FILES = (CLUSTER_FILE, CLUSTER_FILE + TEMPORARY_SUFFIX)
_NAMES_CHANGED = Mask.CREATE | Mask.MOVED_TO | Mask.DELETE
_RUN = "run"
"""The record of a run."""


def _run_of(damage: CorruptLog) -> int:
    """The run whose record or noted damage cannot be read."""
    return int(os.path.basename(damage.path).split(".")[1])


class LocalSession:
    """One session's directory. Not thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        on_change: Callable[[], None],
        on_trouble: Callable[[], None] = lambda: None,
        new_inotify: Callable[[], LoopInotify] = LoopInotify,
    ) -> None:
        """`on_trouble` is called when `poll` should follow soon."""
        self.path = path
        self.fs = fs
        self.runs: list[RunFile] = []
        """By number."""
        self._faults: dict[str | InputName, LogFormatError] = {}
        """What is wrong with `_RUN`, an input, or a copy of damaged bytes (its directory's name).
        """
        self._fault: LogFormatError | None = None
        """What was wrong when the directory was looked at last."""
        self._on_change = on_change
        self._on_trouble = on_trouble
        self.watch = SessionWatch(new_inotify)
        self._directory: SessionDirectory | None = None
        self._identity: tuple[int, int] | None = None
        self._watch = DirectoryWatch(fs, path)
        self._inputs: dict[InputName, InputDirectory] = {}
        self._pieces = PieceCache()
        self._abandoned: set[int] = set()
        self.damage = SessionDamage(fs, path)
        """What is damaged, and how the runs that it is in are shipped."""

    # --- what there is ------------------------------------------------------------------------

    @property
    def fault(self) -> LogFormatError | None:
        """What is wrong with the directory, a run or an input; None: nothing."""
        return self._fault or next(iter(self._faults.values()), None)

    @property
    def identity(self) -> tuple[str, str] | None:
        """(name, id) of the session; None before there is one."""
        record = None if self._directory is None else self._directory.record
        return None if record is None else (record.session, record.id)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is wrong, and nothing waits to be written."""
        return (
            self.fault is None
            and self._directory is not None
            and not any(each.is_unwritten for each in self._inputs.values())
        )

    @property
    def has_inotify(self) -> bool:
        """Whether changes are noticed at once."""
        return self.watch.is_on

    def inputs_of(self, run: int) -> list[InputName]:
        """The inputs that have bytes of this run."""
        return [name for name, each in self._inputs.items() if each.has_bytes(run)]

    def has_bytes(self, run: int, name: InputName) -> bool:
        """Whether an input has files of this run, or files of earlier ones that it carries."""
        return name in self._inputs and self._inputs[name].has_bytes(run)

    def to_ship(self, run: int, name: InputName | None = None) -> list[InputName]:
        """Those of them, or of one of them, that may be shipped now: not what is held, or belongs
        to a deleted topic; and before a topic is known, not until there are bytes for it, because
        asking for a topic may create it.
        """
        names = self.inputs_of(run) if name is None else [name] * self.has_bytes(run, name)
        return [name for name in names if self._may_ship(name, run)]

    def _may_ship(self, name: InputName, run: int) -> bool:
        each = self._inputs[name]
        shipping = each.shipping
        if shipping.holds(run) or run < shipping.begin[0] or each.is_withheld:
            return False
        is_known = each.topic_id is not None or not shipping.former
        return is_known or run > shipping.begin[0] or each.has_fresh_bytes

    def stays_open(self, run: int) -> bool:
        """Whether a run is not to be ended although all of it that may be shipped was: held bytes
        may be shipped in it later. A run whose records have dedup ids takes no other run's bytes,
        so no later run begins before its held bytes are decided on.
        """
        is_newest = bool(self.runs) and run == self.runs[-1].run
        has_ids = any(each.run == run and each.dedup_id is not None for each in self.runs)
        return any(
            is_newest or (has_ids and run in each.names)
            for each in self._inputs.values()
            if each.shipping.holds(run)
        )

    def withhold(self, name: InputName, *, is_withheld: bool) -> None:
        """Neither ship nor remove any of an input until it is noted how it is shipped."""
        if name in self._inputs:
            self._inputs[name].is_withheld = is_withheld

    def keeps(self, run: int, name: InputName) -> bool:
        """Whether no file of a run is removed for now."""
        each = self._inputs[name]
        return each.is_withheld or each.shipping.holds(run)

    def shipping(self, name: InputName) -> ShippingFile:
        """How an input is shipped."""
        return self._inputs[name].shipping

    def shipping_if_known(self, name: InputName) -> ShippingFile | None:
        """The same; None if there is no such input any more."""
        known = self._inputs.get(name)
        return None if known is None else known.shipping

    def has_files_of(self, name: InputName) -> bool:
        """Whether an input has files of any run."""
        return name in self._inputs and bool(self._inputs[name].names)

    def carried(self) -> set[tuple[int, InputName]]:
        """(run, input) of the bytes that a later run carries."""
        each = self._inputs.items()
        return {(part.run, name) for name, known in each for part in known.shipping.carried}

    def plain_tail(self, run: int, name: InputName) -> RunTail:
        """A tail of one run by the positions in its files, for its caller alone."""
        each = self._inputs[name]
        tail = RunTail(self.fs, each.path, run, self._pieces)
        tail.look(each.names)
        return tail

    def begin_run(
        self, run_id: str, started_ms: int, dedup_id: str | None, dedup_base: int | None
    ) -> None:
        """Note a run that has no bytes of its own and has ended, unless the writer is in a run or
        begins one at the same time: that run takes what this one is for. Raises LogFormatError.
        """
        if self._directory is None:
            return
        directory = SessionDirectory(self.fs, self.path, self._directory.record)
        with suppress(DirectoryInUse):
            directory.lock()
        try:
            number, (runs, damaged) = directory.next_run(), directory.readable_runs()
            is_between = bool(runs) and runs[-1].end is not None and not damaged
            if directory.is_locked or is_between:
                directory.begin_run(
                    number,
                    run_id=run_id,
                    started_ms=started_ms,
                    dedup_id=dedup_id,
                    dedup_base=dedup_base,
                    end={},
                )
        except (RunExists, NoHardLinks) as reason:
            log.info("session %s waits for its writer's next run: %s", self.path, reason)
        finally:
            directory.close()
        self.poll()

    def held(self) -> list[InputName]:
        """The inputs with held bytes."""
        return [name for name, each in self._inputs.items() if each.shipping.held is not None]

    def bytes_behind(self, name: InputName, begin: SessionPosition) -> int:
        """How many bytes of an input are in its files behind a position."""
        return self._inputs[name].bytes_behind(begin)

    def names_of(self, run: int, name: InputName) -> RunNames:
        """The names of an input's files of a run."""
        return self._inputs[name].names.get(run, RunNames())

    def file_end(self, run: int, name: InputName) -> SessionPosition | None:
        """The end of the newest file of a run of an input; None: it has none. Raises DiskFault."""
        return self._inputs[name].file_end(run)

    def ship_differently(
        self, name: InputName, shipping: ShippingFile, *, durable: bool = True
    ) -> None:
        """Note how an input is shipped from now on. Raises LogFormatError."""
        self._inputs[name].ship_differently(shipping, durable=durable)

    @property
    def has_files(self) -> bool:
        """Whether any run that is known has files."""
        inputs = self._inputs.values()
        return any(known.run in each.names for known in self.runs for each in inputs)

    def tail(self, run: int, name: InputName) -> RunTail:
        """Follow one run of an input that has files of it; of a run in parts, the present part."""
        directory = self._inputs[name]
        tail = directory.tails.get(run)
        if tail is None:
            tail = directory.tail(run, self.damage.start_of(run, name))
            tail.on_damage = partial(self._damage_found, run, name)
            found = self.damage.found_in(run, name)
            if found is not None:
                start, stop = SessionPosition(*found.start), SessionPosition(*found.stop)
                tail.damage = Damage(tail.wire(start), tail.wire(stop), found.reason)
                self.damage.see(run, name)
            self._look_at_end(run, directory)
        return tail

    def layout(self, run: int, name: InputName) -> Layout | None:
        """How an input of a run is shipped now."""
        known = self._inputs.get(name)
        if known is None:
            return None
        return part_layout(known.shipping, run, self.damage.start_of(run, name))

    def _look_at_end(self, run: int, directory: InputDirectory) -> None:
        """Tell the tail of a run up to where the run is known to reach."""
        record = next((each for each in self.runs if each.run == run), None)
        tail = directory.tails.get(run)
        if tail is None or record is None:
            return
        if self._is_ended(run):
            tail.reaches, tail.may_have_more = tail.wire(directory.reaches(record)), True

    def is_current(self, run: RunFile) -> bool:
        """Whether this is the part of a run that is shipped."""
        return any(known.run_id == run.run_id for known in self.runs)

    def goes_on(self, run: RunFile) -> bool:
        """Whether a part of a run ends in damage, so that another part follows it."""
        is_open = self.is_current(run) and run.run_id not in self.damage.closed
        if not is_open or run.stage is not None:
            return False
        return self.damage.is_found(run.run) or self.has_unnoted_damage(run.run)

    # --- stages -------------------------------------------------------------------------------

    def expect(self, run: int, ends: RunEnds) -> None:
        """From now on, take a run of a stage for damaged unless its files hold it from its first
        byte to these ends. Empty ends: files may be removed.
        """
        self.damage.expected = run, ends
        if ends and self.look_again():
            self._guarded(self._look_at_whole)

    def _look_at_whole(self) -> None:
        run, ends = self.damage.expected
        for name, end in ends.items():
            if name not in self._inputs:
                path = os.path.join(self.path, input_name(*name))
                self._note_fault(name, CorruptLog(path, 0, "the directory is missing"))
                continue
            tail = self.tail(run, name)
            tail.reaches = end
            if tail.damage is None and tail.first > (0, 0):
                tail.lose_start()
            elif not tail.has_bytes:
                tail.judge((0, 0))
            tail.notice()

    def _is_staged(self, run: int) -> bool:
        return any(known.run == run and known.stage is not None for known in self.runs)

    def _damage_found(self, run: int, name: InputName) -> None:
        """A stage is published whole or not at all, so its damage is noted at once."""
        self.damage.see(run, name)
        if self._is_staged(run):
            self.note_damage()

    def damaged(self) -> list[LostRange]:
        """The ranges whose records will not reach the cluster; one of a stage spoils all of it."""
        stages = {known.run: known.stage for known in self.runs if known.stage is not None}
        return [*self.damage.reported(), *self.damage.found_in_stages(stages)]

    def has_unnoted_damage(self, run: int) -> bool:
        """Whether damage was found in a run that is not noted durably."""
        return bool(self._unnoted(run))

    def damaged_inputs(self, run: int) -> Collection[InputName]:
        """The inputs of a run in which damage was found."""
        return self.damage.seen.get(run, {}).keys()

    def _unnoted(self, run: int) -> list[InputName]:
        is_closed = any(each.run == run and each.run_id in self.damage.closed for each in self.runs)
        return [] if is_closed else self.damage.unnoted(run, self._inputs)

    def note_damage(self) -> None:
        """Begin to note durably what was found, and to keep a copy of it. A part of a run is ended
        after that.
        """
        if self.damage.noting is None and any(self._unnoted(run.run) for run in self.runs):
            self.damage.noting = spawn(self._note_all(), "note damage")

    async def _note_all(self) -> None:
        is_noted = False
        try:
            for run in tuple(self.runs):
                for name in self._unnoted(run.run):
                    is_noted |= await self._note_one(run, name)
        finally:
            self.damage.noting = None
        if is_noted:
            self._on_change()

    async def _note_one(self, run: RunFile, name: InputName) -> bool:
        """False: another look tries again."""
        path = self.input_path(name)
        try:
            await self.damage.note(run, name, self.tail(run.run, name), path)
        except LogFormatError as error:
            self._note_fault(path, error)
            return False
        self._note_fault(path, None)
        return True

    @property
    def is_noting(self) -> bool:
        """Whether damage is being noted, so that no part of a run may begin."""
        return self.damage.noting is not None

    def go_on(self, run: int, ends: RunEnds) -> None:
        """Begin the next part of a run, with its own id, after the cluster closed a part that ends
        in damage. Raises LogFormatError: the part that ends stays the present one.
        """
        part = next(known for known in self.runs if known.run == run)
        tails = {name: self.tail(run, name) for name in self.inputs_of(run)}
        self.damage.go_on(part, ends, tails)
        for directory in self._inputs.values():
            if run in directory.tails:
                directory.tails.pop(run).close()
        self.runs = [self.damage.part_of(known) for known in self.runs]

    def is_over(self, run: int) -> bool:
        """Whether nothing will ever be added to this run, or to this part of it."""
        if self._is_ended(run):
            return True
        return run in self.damage.seen and any(self.damage.tails(run, self._inputs))

    def _is_ended(self, run: int) -> bool:
        if not self.runs or run != self.runs[-1].run or run in self._abandoned:
            return True
        return self.runs[-1].end is not None

    def input_path(self, name: InputName) -> str:
        """The directory of an input."""
        return self._inputs[name].path

    def identities(self, names: Iterable[InputName]) -> dict[str, tuple[int, int]]:
        """Path (no slash at its end) -> identity of the directories of the session and of these
        inputs, when they were looked at first. Others may have taken their places, because they
        were replaced or unmounted.
        """
        found = {os.path.dirname(os.path.join(self.path, "")): self._identity}
        found |= {each.path: each.identity for each in map(self._inputs.__getitem__, names)}
        return {path: identity for path, identity in found.items() if identity is not None}

    def is_in_place(self, names: Iterable[InputName]) -> bool:
        """Whether all of them are found where they were."""
        known = self.identities(names)
        try:
            return self._identity is not None and all(
                self.fs.identity(path) == identity for path, identity in known.items()
            )
        except LogFormatError:
            return False

    # --- topics -------------------------------------------------------------------------------

    async def bind(self, name: InputName, topic_id: str) -> bool:
        """Note durably which topic an input is shipped to; False: it was another one. The event
        loop does not wait for the disk. If that is full, it is noted here until there is room:
        shipping may be what makes some. Raises LogFormatError.
        """
        return await self._inputs[name].bind(topic_id)

    async def finish_writes(self) -> None:
        """Wait until no thread writes into the directory any more: it may be another process's."""
        for each in tuple(self._inputs.values()):
            await each.finish_writes()
        if self.damage.noting is not None:
            await asyncio.wait([self.damage.noting])

    def is_bound(self, name: InputName, topic_id: str) -> bool:
        """Whether it is noted already that an input is shipped to this topic."""
        each = self._inputs[name]
        return each.topic_id == topic_id and not each.is_unwritten

    def topic_id(self, name: InputName) -> str | None:
        """The id of the topic that an input is shipped to; None: whichever has the name."""
        known = self._inputs.get(name)
        return None if known is None else known.topic_id

    def is_former(self, name: InputName, topic_id: str) -> bool:
        """Whether an input was shipped to this topic before the topic was deleted."""
        known = self._inputs.get(name)
        return known is not None and topic_id in known.shipping.former

    def unbind(self, name: InputName) -> None:
        """What follows goes to another topic of this name."""
        self._inputs[name].unbind()

    # --- looking ------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch, and take in what there is."""
        self.watch.start(self._on_events)
        self.poll()

    def poll(self) -> None:
        """Look at everything; also whether the writer of the newest run is still there."""
        self.watch.changes += 1
        self._guarded(self._look_at_all)

    def look_again(self, name: InputName | None = None) -> bool:
        """List the directory of one input, or of all before a run is called complete, whether or
        not it seems to have changed; False: that failed, or damage is being noted.
        """
        if name is None:
            self._guarded(self._list_all)
        else:
            self._guarded(partial(self._list_input, name))
        has_fault = self._fault is not None or bool(self._faults.keys() - {_RUN})
        return not has_fault and not self.is_noting

    def forget_run(self, run: int) -> None:
        """The files of a run were removed."""
        self.damage.forget(run)
        for directory in self._inputs.values():
            tail = directory.tails.pop(run, None)
            if tail is not None:
                tail.close()
        self.poll()

    def close(self) -> None:
        """Watch no more, and close all files."""
        self.watch.close()
        for directory in self._inputs.values():
            for tail in directory.tails.values():
                tail.close()

    def _look_at_all(self) -> None:
        changed = self._look_at_session(always=False)
        for name in tuple(self._inputs):
            changed |= self._look_at_input(name, always=False)
        changed |= self._probe_writer() | self.damage.look()
        for each in self._inputs.values():
            if each.is_unwritten:
                each.bind_at_once()
        self._look_at_whole()
        if changed:
            self._on_change()
        for name in tuple(self._inputs):
            self._notice(name)

    def _list_all(self) -> None:
        changed = self._look_at_session(always=True)
        for name in tuple(self._inputs):
            changed |= self._look_at_input(name, always=True)
        self.note_damage()
        if changed:
            self._on_change()

    def _list_input(self, name: InputName) -> None:
        changed = self._look_at_session(always=False)
        if name in self._inputs:
            changed |= self._look_at_input(name, always=True)
        if changed:
            self._on_change()

    def _look_at_session(self, *, always: bool) -> bool:
        """Runs and inputs; whether there is news."""
        if self._directory is None:
            try:
                self._directory = SessionDirectory.open(self.fs, self.path)
            except NoSuchFile:
                return False
            self._identity = self.fs.identity(self.path)
            self.watch.add(self.path, None)
        elif self._identity != self.fs.identity(self.path):
            raise DirectoryGone(self.path)
        elif not self._watch.needs_listing() and not always:
            return False
        names = self._directory.names()
        self.damage.recall(names)
        changed = self._look_at_runs(self._directory, names)
        return self._add_inputs(self._directory, names) or changed

    def _look_at_runs(self, directory: SessionDirectory, names: list[str]) -> bool:
        """Read the records of the runs; whether there is news. Runs are shipped in their order, so
        one whose record is unreadable stops those behind it.
        """
        found, damaged = directory.readable_runs(names)
        fault = damaged[0] if damaged else None
        runs: list[RunFile] = []
        for run in found:
            if fault is not None and run.run > _run_of(fault):
                break
            try:
                runs.append(self.damage.part_of(run))
            except CorruptLog as damage:
                fault = damage
        self._note_fault(_RUN, fault)
        changed = runs != self.runs
        self.runs = runs
        if changed:
            self._look_at_ends()
        return changed

    def _look_at_ends(self) -> None:
        for directory in self._inputs.values():
            for run in directory.tails:
                self._look_at_end(run, directory)

    def _add_inputs(self, directory: SessionDirectory, names: list[str]) -> bool:
        new = [name for name in directory.inputs(names) if name not in self._inputs]
        for name in new:
            path = directory.input_path(*name)
            self.watch.add(path, name)
            try:
                self._inputs[name] = InputDirectory(self.fs, path, self._pieces)
            except LogFormatError as error:
                self._note_fault(name, error)
                continue
            self._read_topic(name)
            self._look_at_input(name, always=True)
        return any(name in self._inputs for name in new)

    def _read_topic(self, name: InputName) -> None:
        """Which topic an input was shipped to; where that cannot be read, `bind` reports it."""
        each = self._inputs[name]
        try:
            topic_id = read_topic_id(self.fs, each.path)
        except LogFormatError:
            return
        if topic_id in each.shipping.former:
            self.unbind(name)  # a crash came between the two files
        else:
            each.topic_id = topic_id

    def _look_at_input(self, name: InputName, *, always: bool) -> bool:
        try:
            changed = self._inputs[name].look(always=always)
        except NoSuchFile:  # somebody has removed the whole directory
            del self._inputs[name]
            self._note_fault(name, None)
            return True
        except LogFormatError as error:
            self._note_fault(name, error)
            return False
        self._note_fault(name, None)
        return changed

    def _probe_writer(self) -> bool:
        """Whether the newest run turns out to be abandoned: nobody holds the writer's lock."""
        if self._directory is None or not self.runs or self.is_over(self.runs[-1].run):
            return False
        probe = SessionDirectory(self.fs, self.path, self._directory.record)
        try:
            probe.lock()
        except DirectoryInUse:
            return False
        probe.close()
        self._abandoned.add(self.runs[-1].run)
        self._look_at_ends()
        return True

    def _guarded(self, look: Callable[[], None]) -> None:
        """A fault of the disk or of a file is shown, and looked at again with the next poll."""
        try:
            look()
        except LogFormatError as error:
            self._note(error)
        else:
            self._fault = None

    def _note(self, error: LogFormatError) -> None:
        if str(error) != str(self._fault):
            log.error("session directory %s: %s", self.path, error)
        self._fault = error
        self._on_trouble()

    def _note_fault(self, where: str | InputName, error: LogFormatError | None) -> None:
        """Note what is wrong with a part of the directory; None: nothing."""
        if error is None:
            self._faults.pop(where, None)
            return
        if str(error) != str(self._faults.get(where)):
            log.error("session directory %s: %s", self.path, error)
        self._faults[where] = error
        self._on_trouble()

    # --- inotify ------------------------------------------------------------------------------

    def _on_events(self, events: list[Event]) -> None:
        self.watch.changes += 1
        try:
            changes: dict[int, int] = {}
            for event in itertools.filterfalse(self._is_own, events):
                changes[event.watch] = changes.get(event.watch, 0) | event.mask
                if event.mask & Mask.OVERFLOW:  # concerns all sessions: each is polled in turn
                    self._on_trouble()
                    return
            for watch, mask in changes.items():
                if mask & _TROUBLE:
                    self._on_trouble()
                if mask & Mask.IGNORED:
                    self.watch.inputs.pop(watch, None)
                elif watch in self.watch.inputs:
                    self._changed(self.watch.inputs[watch], mask)
        except LogFormatError as error:
            self._note(error)
        else:
            self._fault = None

    def _is_own(self, event: Event) -> bool:
        """Whether an event is of a file that the replicator writes itself. In the session's
        directory, a topic may be named as such a file.
        """
        is_in_input = bool(self.watch.inputs.get(event.watch))
        return event.name in _CLUSTER_FILES or (is_in_input and event.name.startswith(_OWN_FILES))

    def _changed(self, name: InputName | None, mask: int) -> None:
        if name is None:
            if mask & _NAMES_CHANGED and self._look_at_session(always=True):
                self._on_change()
            return
        if name not in self._inputs:
            return
        changed = bool(mask & _NAMES_CHANGED) and self._look_at_input(name, always=True)
        changed |= bool(mask & Mask.DELETE) and self.damage.look()
        if changed:
            self._on_change()
        if name in self._inputs:
            self._notice(name)

    def _notice(self, name: InputName) -> None:
        """An input's files may have grown, perhaps by the first bytes for a new topic."""
        each = self._inputs[name]
        if each.topic_id is None and each.shipping.former and each.has_fresh_bytes:
            self._on_change()
        for tail in tuple(each.tails.values()):
            tail.notice()
