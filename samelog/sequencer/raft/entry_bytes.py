"""Whether the bytes that an entry names are on this node, and are those that the leader planned.

Invariant: an entry is called backed only if all bytes that it names are written here, and their
digests are the entry's; or if it will be rejected wherever it is applied, so that nobody needs its
bytes. With `fsync=always` it counts as saved only when they are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from samelog.consensus import Entry, Raft
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES
from samelog.format.positions import SessionPosition
from samelog.runtime.disk.syncer import Syncer
from samelog.sequencer.merge.merger import read_agreed
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.state.commands import AnyCommand, CommandError, decode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.stages import EndStage, PublishStageCommand
from samelog.store.disk.files import DiskFault, File, NoSuchFile
from samelog.store.session.log import InputLog

DECODED_KEPT = 64
AGREED_KEPT = 4096
ROUNDS_KEPT = 31


class Rounds(Protocol):
    """Makes session bytes durable; ingest.session_rounds.SessionRounds."""

    async def sync(self, numbers: Iterable[int], also: Sequence[File]) -> None:
        """Make these inputs durable, in one round with other files. Raises DiskFault."""


class EntryBytes:
    """One replica's."""

    def __init__(
        self,
        raft: Raft,
        machine: StateMachine,
        sessions: SessionStore,
        *,
        sync_always: bool,
        syncer: Syncer,
        on_named: Callable[[Sequence[Range]], None],
    ) -> None:
        """`on_named` is told what an entry names that this node, which does not lead, may take."""
        self._raft = raft
        self._machine = machine
        self._on_named = on_named
        self.sync_always = sync_always
        self.syncer = syncer
        self._sessions = sessions
        self.rounds: Rounds
        """Who makes bytes durable; to be set before anything runs."""
        self.rounds_s: deque[float] = deque(maxlen=ROUNDS_KEPT)
        """How long the newest rounds of syncs took, as the group has measured."""
        self.decoded: dict[bytes, list[AnyCommand]] = {}
        """Of entries that were looked at and not applied yet, by their data."""
        self._agreed: dict[Range, tuple[InputLog, int]] = {}
        """Ranges of entries that are not backed yet, whose bytes have the digest; and the log that
        has them, with its `losses`.
        """
        self._lacks: tuple[Entry, int] | None = None
        """An entry that is not backed, and the first input of which it lacks bytes."""
        raft.require_bytes(self.is_backed)

    def is_backed(self, entry: Entry) -> bool:
        """Whether the entry may be saved here."""
        parts = self._parts(entry)
        for part in parts:
            if not self._has(part):
                self._lacks = entry, part.input
                return False
        self._lacks = None
        for part in parts:
            self._agreed.pop(part, None)
        if parts and self._raft.leadership is None:
            self._on_named(parts)
        return True

    def may_back(self, entry: Entry, number: int) -> bool:
        """Whether an entry that is held back may be backed by bytes of this input that came."""
        known, lacks = self._lacks or (None, number)
        return known is not entry or lacks == number

    def lacking(self, entry: Entry) -> dict[int, SessionPosition]:
        """Input -> up to where the entry needs it and this node has it not."""
        parts = [part for part in self._parts(entry) if not self._has(part)]
        return {part.input: _end_of(part) for part in parts}

    # --- after a restart --------------------------------------------------------------------------

    def is_kept(self, entry: Entry) -> bool:
        """Whether a restarted node keeps an entry that it does not know to be committed: what it
        acknowledged it had the bytes of. They may have rotted since, and keep it nonetheless.
        Raises DiskFault: what cannot be looked at says nothing.
        """
        parts, damaged = self._parts(entry), self._sessions.damaged
        return any(part.input in damaged for part in parts) or not any(map(self._never_had, parts))

    def _never_had(self, part: Range) -> bool:
        state = self._machine.state
        entry = state.sessions.inputs.get(part.input)
        if entry is None:
            return part.input >= state.sessions.next_input
        end = _end_of(part)
        if self._has_left(entry.partition):
            return False
        if part.run != entry.run or end <= entry.place:
            return part.run > entry.run
        if self._sessions.written(entry) < end:
            return True
        data = self._sessions.log(part.input).read(part.run, part.roll, part.start, part.stop)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        return scan.end == part.stop - part.start and scan.digest != part.digest

    # --- durability -------------------------------------------------------------------------------

    async def sync(self, entries: Sequence[Entry], also: Sequence[File]) -> None:
        """Make durable what these entries name, in one round with these other files. Raises
        DiskFault.

        Nobody needs to look again then whether it is durable. All that these entries name was
        written before, and is in this round, or in one that began before it; rounds end in that
        order, and behind one that failed none succeeds.
        """
        numbers = self._not_durable(entries) if self.sync_always else None
        if numbers:
            await self.rounds.sync(numbers, also)
        else:
            await self.syncer.sync(also)

    def _not_durable(self, entries: Sequence[Entry]) -> set[int]:
        """Inputs of which these entries name what is here and not durable. What was taken bare is
        not here.
        """
        numbers, inputs, opened = (
            set[int](),
            self._machine.state.sessions.inputs,
            self._sessions.opened,
        )
        for entry in entries:
            for part in self._parts(entry):
                held = opened.get(part.input)  # whoever found the bytes has opened their log
                if held is None or part.input not in inputs:
                    continue
                if held.durable(part.run) < (part.roll, part.stop) <= held.end(part.run):
                    numbers.add(part.input)
        return numbers

    # --- helpers ----------------------------------------------------------------------------------

    def _parts(self, entry: Entry) -> list[Range]:
        commands = self.decoded.get(entry.data)
        if commands is None:
            try:
                commands = decode_commands(entry.data)
            except CommandError:  # who applies it says so
                return []
            while len(self.decoded) >= DECODED_KEPT:
                del self.decoded[next(iter(self.decoded))]
            self.decoded[entry.data] = commands
        parts: list[Range] = []
        for each in commands:
            if isinstance(each, Merge):
                parts += each.ranges
            else:
                for merge in merges_of(each):
                    parts += merge.ranges
        return parts

    def _has(self, part: Range) -> bool:
        state = self._machine.state
        entry = state.sessions.inputs.get(part.input)
        if entry is None:
            return part.input < state.sessions.next_input  # it was there, and is gone
        end = _end_of(part)
        if (state.transfers.passing or state.placement.partitions) and self._has_left(
            entry.partition
        ):
            return True
        if part.run != entry.run or end <= entry.place:
            return part.run <= entry.run
        try:
            return self._sessions.written(entry) >= end and self._agrees(part)
        except (DiskFault, NoSuchFile):
            return False

    def _has_left(self, partition: int) -> bool:
        """Whether all that is behind what was applied here is rejected for a partition: it is
        sealed, or in another group. What comes back to this group has other inputs.
        """
        state = self._machine.state
        return state.transfers.is_sealed(partition) or partition in state.placement.partitions

    def _agrees(self, part: Range) -> bool:
        """What the leader planned itself it has read; what was digested once need not be again."""
        if self._raft.leadership is not None:
            return True
        held = self._sessions.log(part.input)
        if self._agreed.get(part) == (held, held.losses):
            return True
        data = read_agreed(self._sessions, part)
        if data is None:
            return False
        self._sessions.checked.keep(part, data)
        while len(self._agreed) >= AGREED_KEPT:
            del self._agreed[next(iter(self._agreed))]
        self._agreed[part] = held, held.losses
        return True


def merges_of(command: AnyCommand) -> Sequence[Merge]:
    """The merge instructions that a command is, or brings along."""
    if isinstance(command, Merge):
        return (command,)
    return command.merges if isinstance(command, PublishStageCommand | EndStage) else ()


def _end_of(part: Range) -> SessionPosition:
    return SessionPosition(part.run, part.roll, part.stop)
