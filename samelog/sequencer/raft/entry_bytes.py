"""Whether the bytes that an entry names are on this node, and are those that the leader planned.

Invariant: an entry is called backed only if all bytes that it names are durable here (with
`fsync=interval`: written), and their digests are the entry's; or if it will be rejected wherever it
is applied, so that nobody needs its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from samelog.consensus import Entry, Raft
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.commands import (
    AnyCommand,
    CommandError,
    Merge,
    PublishStageCommand,
    Range,
    decode_commands,
)
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import Input
from samelog.store.disk.files import DiskFault, NoSuchFile

DECODED_KEPT = 64


class EntryBytes:
    """One replica's."""

    def __init__(
        self,
        raft: Raft,
        machine: StateMachine,
        sessions: SessionStore,
        *,
        sync_always: bool,
        on_named: Callable[[Sequence[Range]], None],
    ) -> None:
        """`on_named` is told what an entry names that this node, which does not lead, may take."""
        self._raft = raft
        self._machine = machine
        self._on_named = on_named
        self._reach = sessions.durable if sync_always else sessions.written
        self._read = sessions.read_range
        self._decoded: dict[bytes, list[AnyCommand]] = {}
        """Of entries that were looked at and may be looked at again, by their data."""
        raft.require_bytes(self.is_backed, for_ever=sync_always)

    def is_backed(self, entry: Entry) -> bool:
        """Whether the entry may be saved here."""
        parts = self._parts(entry)
        if not all(map(self._has, parts)):
            return False
        if parts and self._raft.leadership is None:
            self._on_named(parts)
        return True

    def lacking(self, entry: Entry) -> dict[int, SessionPosition]:
        """Input -> up to where the entry needs it and this node has it not."""
        parts = [part for part in self._parts(entry) if not self._has(part)]
        return {part.input: _end_of(part) for part in parts}

    def commands(self, entry: Entry) -> list[AnyCommand]:
        """What a committed entry has to say; it is not asked for again. Raises CommandError."""
        known = self._decoded.pop(entry.data, None)
        return decode_commands(entry.data) if known is None else known

    def _parts(self, entry: Entry) -> list[Range]:
        commands = self._decoded.get(entry.data)
        if commands is None:
            try:
                commands = decode_commands(entry.data)
            except CommandError:  # who applies it says so
                commands = []
            while len(self._decoded) >= DECODED_KEPT:
                del self._decoded[next(iter(self._decoded))]
            self._decoded[entry.data] = commands
        return [part for merge in _merges(commands) for part in merge.ranges]

    def _has(self, part: Range) -> bool:
        state = self._machine.state
        entry = state.inputs.get(part.input)
        if entry is None:
            return part.input < state.next_input  # it was there, and is gone
        end = _end_of(part)
        if part.run != entry.run or end <= entry.place:
            return part.run <= entry.run
        try:
            return self._reach(entry) >= end and self._agrees(entry, part)
        except (DiskFault, NoSuchFile):
            return False

    def _agrees(self, entry: Input, part: Range) -> bool:
        """What the leader planned itself it has read."""
        if self._raft.leadership is not None:
            return True
        data = self._read(part)
        if data is None:
            return False
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        return scan.end == len(data) and scan.digest == part.digest


def _merges(commands: Sequence[AnyCommand]) -> Iterator[Merge]:
    for command in commands:
        if isinstance(command, Merge):
            yield command
        elif isinstance(command, PublishStageCommand):
            yield from command.merges


def _end_of(part: Range) -> SessionPosition:
    return SessionPosition(part.run, part.roll, part.stop)
