"""A session's directory as its push client sees it: runs, inputs, and what changes in them.

Changes are noticed with inotify (one instance for the directory and all inputs); `poll` looks at
everything again, because inotify can miss. The directory may be written by another process.

Invariant: a run that is over stays over: it has its end noted, a newer run exists, or once nobody
held the writer's lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from samelog.format.directory_files import RunFile
from samelog.format.errors import DirectoryInUse, LogFormatError, OtherTopic
from samelog.format.file_names import TOPIC_FILE, RunNames, parse_names
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.session_tail import PieceCache, RunTail
from samelog.runtime.inotify import DIRECTORY_CHANGED, Event, LoopInotify, Mask, open_or_warn
from samelog.store.disk.directories import DirectoryWatch
from samelog.store.disk.disk_errors import DirectoryGone, NoSpace
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.session.directory import SessionDirectory, bind_topic

log = logging.getLogger(__name__)

GATHER_S = 0.012
"""Changes that follow each other so closely are looked at together: one piece for each node and one
sync there, instead of one for every record. Who waits for one record before it appends the next is
not held up (`reached`).
"""

_NAMES_CHANGED = Mask.CREATE | Mask.MOVED_TO | Mask.DELETE


class _InputDirectory:
    """One input's directory: its names, and the tails of its runs that somebody follows."""

    def __init__(self, fs: FileSystem, path: str, pieces: PieceCache) -> None:
        self.path = path
        self.names: dict[int, RunNames] = {}
        self.tails: dict[int, RunTail] = {}
        self.identity: tuple[int, int] | None = None
        """Of the directory, when it was looked at first."""
        self._fs = fs
        self._pieces = pieces
        self._watch = DirectoryWatch(fs, path)

    def look(self, *, always: bool) -> bool:
        """List the directory (if it may have changed); whether a run has come or gone."""
        before = self.names.keys()
        if self.identity is None:
            self.identity = self._fs.identity(self.path)
        if self._watch.needs_listing() or always:
            names = parse_names(self._fs.list_directory(self.path))
            self.names = {run: found for run, found in names.items() if found.data}
            for run, tail in self.tails.items():
                tail.look(names.get(run, RunNames()))
        return before != self.names.keys()

    def notice(self) -> None:
        """Its files may have grown."""
        for tail in tuple(self.tails.values()):
            tail.notice()

    def tail(self, run: int) -> RunTail:
        """The tail of one run."""
        tail = self.tails.get(run)
        if tail is None:
            tail = self.tails[run] = RunTail(self._fs, self.path, run, self._pieces)
            tail.look(self.names.get(run, RunNames()))
        return tail


class LocalSession:
    """One session's directory. Not thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        on_change: Callable[[], None],
        new_inotify: Callable[[], LoopInotify] = LoopInotify,
    ) -> None:
        self.path = path
        self.fs = fs
        self.runs: list[RunFile] = []
        """By number."""
        self.fault: LogFormatError | None = None
        """What was wrong when the directory was looked at last."""
        self._on_change = on_change
        self._new_inotify = new_inotify
        self._directory: SessionDirectory | None = None
        self._identity: tuple[int, int] | None = None
        self._watch = DirectoryWatch(fs, path)
        self._inputs: dict[InputName, _InputDirectory] = {}
        self._pieces = PieceCache()
        self._abandoned: set[int] = set()
        self._unwritten: dict[InputName, str] = {}
        """Input -> the topic it is shipped to, where the disk had no room for that."""
        self._inotify: LoopInotify | None = None
        self._watched: dict[int, InputName | None] = {}
        """inotify's watch -> the input; None: the session's own directory."""

    # --- what there is ------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, str] | None:
        """(name, id) of the session; None before there is one."""
        record = None if self._directory is None else self._directory.record
        return None if record is None else (record.session, record.id)

    @property
    def has_inotify(self) -> bool:
        """Whether changes are noticed at once."""
        return self._inotify is not None

    def inputs_of(self, run: int) -> list[InputName]:
        """The inputs that have files of this run."""
        return [name for name, directory in self._inputs.items() if run in directory.names]

    @property
    def has_files(self) -> bool:
        """Whether any run that is known has files."""
        for known in self.runs:
            for directory in self._inputs.values():
                if known.run in directory.names:
                    return True
        return False

    def tail(self, run: int, name: InputName) -> RunTail:
        """Follow one run of one input that has files of it."""
        return self._inputs[name].tail(run)

    def is_over(self, run: int) -> bool:
        """Whether nothing will ever be added to this run."""
        if not self.runs or run != self.runs[-1].run or run in self._abandoned:
            return True
        return self.runs[-1].end is not None

    def input_path(self, name: InputName) -> str:
        """The directory of an input."""
        return self._inputs[name].path

    def identities(self) -> dict[str, tuple[int, int]]:
        """Path (no slash at its end) -> identity of the directories whose files are known here: the
        session's, and its inputs'. Others may have taken their places, because they were replaced
        or unmounted.
        """
        found = {os.path.dirname(os.path.join(self.path, "")): self._identity}
        found |= {each.path: each.identity for each in self._inputs.values()}
        return {path: identity for path, identity in found.items() if identity is not None}

    def is_in_place(self) -> bool:
        """Whether all of them are found where they were."""
        try:
            return self._identity is not None and all(
                self.fs.identity(path) == identity for path, identity in self.identities().items()
            )
        except LogFormatError:
            return False

    # --- topics -------------------------------------------------------------------------------

    def bind(self, name: InputName, topic_id: str) -> bool:
        """Note which topic an input is shipped to; False: it was another one. On a full disk it is
        noted here until there is room: shipping may be what makes some.
        """
        if self._unwritten.get(name, topic_id) != topic_id:
            return False
        try:
            bind_topic(self.fs, self._inputs[name].path, topic_id)
        except OtherTopic:
            return False
        except NoSpace:
            self._unwritten[name] = topic_id
        else:
            self._unwritten.pop(name, None)
        return True

    def _write_bindings(self) -> None:
        for name, topic_id in tuple(self._unwritten.items()):
            if name in self._inputs:
                self.bind(name, topic_id)

    def unbind(self, name: InputName) -> None:
        """The next run may go to another topic of this name."""
        self._unwritten.pop(name, None)
        path = os.path.join(self._inputs[name].path, TOPIC_FILE)
        if self.fs.exists(path):
            self.fs.unlink(path)

    # --- looking ------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch, and take in what there is."""
        self._inotify = open_or_warn(self._new_inotify)
        if self._inotify is not None:
            loop = asyncio.get_running_loop()
            self._inotify.attach(loop, self._on_events, gap_s=GATHER_S)
        self.poll()

    def poll(self) -> None:
        """Look at everything; also whether the writer of the newest run is still there."""
        self._guarded(self._look_at_all)

    def reached(self) -> None:
        """A node has what it was sent: what is appended from now on goes at once, unless more was
        appended meanwhile.
        """
        if self._inotify is not None:
            self._inotify.end_gap()

    def look_again(self) -> bool:
        """List everything anew, before a run is called complete; False: that failed."""
        self._guarded(self._list_all)
        return self.fault is None

    def forget_run(self, run: int) -> None:
        """The files of a run were removed."""
        for directory in self._inputs.values():
            tail = directory.tails.pop(run, None)
            if tail is not None:
                tail.close()
        self.poll()

    def close(self) -> None:
        """Watch no more, and close all files."""
        if self._inotify is not None:
            self._inotify.close()
        for directory in self._inputs.values():
            for tail in directory.tails.values():
                tail.close()

    def _look_at_all(self) -> None:
        changed = self._look_at_session(always=False)
        for name in tuple(self._inputs):
            changed |= self._look_at_input(name, always=False)
        changed |= self._probe_writer()
        self._write_bindings()
        if changed:
            self._on_change()
        for directory in self._inputs.values():
            directory.notice()

    def _list_all(self) -> None:
        changed = self._look_at_session(always=True)
        for name in tuple(self._inputs):
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
            self._add_watch(self.path, None)
        elif self._identity != self.fs.identity(self.path):
            raise DirectoryGone(self.path)
        elif not self._watch.needs_listing() and not always:
            return False
        runs = self._directory.runs()
        changed = runs != self.runs
        self.runs = runs
        return self._add_inputs(self._directory) or changed

    def _add_inputs(self, directory: SessionDirectory) -> bool:
        new = [name for name in directory.inputs() if name not in self._inputs]
        for name in new:
            path = directory.input_path(*name)
            self._add_watch(path, name)
            self._inputs[name] = _InputDirectory(self.fs, path, self._pieces)
            self._look_at_input(name, always=True)
        return bool(new)

    def _look_at_input(self, name: InputName, *, always: bool) -> bool:
        try:
            return self._inputs[name].look(always=always)
        except NoSuchFile:  # somebody has removed the whole directory
            del self._inputs[name]
            return True

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
        return True

    def _guarded(self, look: Callable[[], None]) -> None:
        """A fault of the disk or of a file is shown, and looked at again with the next poll."""
        try:
            look()
        except LogFormatError as error:
            self._note(error)
        else:
            self.fault = None

    def _note(self, error: LogFormatError) -> None:
        if str(error) != str(self.fault):
            log.error("session directory %s: %s", self.path, error)
        self.fault = error

    # --- inotify ------------------------------------------------------------------------------

    def _add_watch(self, path: str, name: InputName | None) -> None:
        if self._inotify is None:
            return
        try:
            self._watched[self._inotify.add(path, DIRECTORY_CHANGED | Mask.DELETE)] = name
        except OSError as error:
            log.warning("%s is polled, not watched: %s", path, error)

    def _on_events(self, events: list[Event]) -> None:
        try:
            changes: dict[int, int] = {}
            for event in events:
                changes[event.watch] = changes.get(event.watch, 0) | event.mask
                if event.mask & Mask.OVERFLOW:
                    self._look_at_all()
                    return
            for watch, mask in changes.items():
                if mask & Mask.IGNORED:
                    self._watched.pop(watch, None)
                elif watch in self._watched:
                    self._changed(self._watched[watch], mask)
        except LogFormatError as error:
            self._note(error)
        else:
            self.fault = None

    def _changed(self, name: InputName | None, mask: int) -> None:
        if name is None:
            if mask & _NAMES_CHANGED and self._look_at_session(always=True):
                self._on_change()
            return
        if name not in self._inputs:
            return
        if mask & _NAMES_CHANGED and self._look_at_input(name, always=True):
            self._on_change()
        if name in self._inputs:
            self._inputs[name].notice()
