"""The node's copies of session logs, by input number: the bytes that merge instructions speak of.

Invariant: a file of an input is opened once; its durable position is only ever raised by a finished
sync.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from shiplog.logformat.files import File, FileSystem
from shiplog.logformat.input_log import InputLog
from shiplog.logformat.session_dir import SessionDirectory
from shiplog.sequencer.commands import Place, Range
from shiplog.sequencer.state import Input, StateMachine


class SessionStore:
    """Opens input logs on demand and reads ranges of them."""

    def __init__(self, fs: FileSystem, directory: str, machine: StateMachine) -> None:
        self._fs = fs
        self._directory = directory
        self._machine = machine
        self._logs: dict[int, InputLog] = {}
        fs.make_directory(directory)

    def log(self, number: int) -> InputLog:
        """The log of an input, opened (and its torn tail repaired) when first asked for."""
        log = self._logs.get(number)
        if log is None:
            log = self._logs[number] = self._open(self._machine.state.inputs[number])
        return log

    def _open(self, entry: Input) -> InputLog:
        state = self._machine.state
        session = state.sessions[entry.session]
        SessionDirectory.open_or_create(
            self._fs,
            os.path.join(self._directory, session.name),
            session=session.name,
            session_id=session.session_id,
            identity=session.identity,
        )
        topic_id = state.partitions[entry.partition].topic_id
        return InputLog.open(self._fs, self.path(entry), topic_id=topic_id)

    def path(self, entry: Input) -> str:
        """The directory of an input."""
        state = self._machine.state
        partition = state.partitions[entry.partition]
        topic = state.topics[partition.topic_id]
        return os.path.join(self._directory, entry.session, f"{topic.name}-{partition.index}")

    def take_dirty(self, numbers: Iterable[int]) -> list[File]:
        """The files of these inputs written since they were last asked for."""
        return [file for n in numbers if n in self._logs for file in self._logs[n].take_dirty()]

    def remove(self, number: int, path: str) -> None:
        """Remove an input's files: its topic was deleted."""
        log = self._logs.pop(number, None)
        if log is not None:
            log.close()
        if self._fs.exists(path):
            self._fs.remove_tree(path)

    def durable(self, entry: Input) -> Place:
        """Up to where this node can vouch for an input: its bytes on disk, or that they are merged
        already.
        """
        roll, byte = self.log(entry.number).durable(entry.run)
        return max(Place(entry.run, roll, byte), entry.place)

    def written(self, entry: Input) -> Place:
        """Up to where this node holds an input, durable or not."""
        roll, byte = self.log(entry.number).end(entry.run)
        return max(Place(entry.run, roll, byte), entry.place)

    def ends(self, numbers: Iterable[int]) -> dict[int, Place]:
        """Where the files of these inputs end, in the run that each is in."""
        known = self._machine.state.inputs
        return {
            n: Place(known[n].run, *self._logs[n].end(known[n].run))
            for n in numbers
            if n in known and n in self._logs
        }

    def mark_durable(self, ends: Mapping[int, Place]) -> None:
        """Everything below these ends was synced."""
        for number, end in ends.items():
            log = self._logs.get(number)
            if log is not None:
                log.mark_durable(*end)

    def unmerged_bytes(self, entry: Input) -> int:
        """How much of an input's open run this node holds behind the merged position."""
        if entry.number not in self._logs:
            return 0
        files = (file for file in self._logs[entry.number].files() if file.run == entry.run)
        return sum(
            max(0, file.size - (entry.byte if file.roll == entry.roll else 0))
            for file in files
            if file.roll >= entry.roll
        )

    # --- for the planner and the merger -----------------------------------------------------------

    def sealed_length(self, number: int, place: Place) -> int | None:
        """The length of the file `place` is in, if it will never grow."""
        return self.log(number).sealed_length(place.run, place.roll)

    def read(self, number: int, place: Place, stop: int) -> bytes:
        """Bytes [place.byte, stop) of the file `place` is in."""
        return self.log(number).read(place.run, place.roll, place.byte, stop)

    def read_range(self, part: Range) -> bytearray | None:
        """The range's bytes; None when this node does not hold all of them."""
        if part.input not in self._machine.state.inputs:
            return None
        buffer = bytearray(part.stop - part.start)
        got = self.log(part.input).read_into(buffer, part.run, part.roll, part.start)
        return buffer if got == len(buffer) else None

    def save_marks(self) -> None:
        """Persist the durable marks, lazily."""
        for log in self._logs.values():
            log.save_marks()

    def close(self) -> None:
        """Persist the durable marks and close every file."""
        self.save_marks()
        for log in self._logs.values():
            log.close()
        self._logs.clear()
