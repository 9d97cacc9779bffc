"""Sessions of publishers in a group: their runs, and their inputs. An input is a session's part of
one partition.

Invariant: of a session at most one run is open in a group, its newest; one that was closed never
opens again there, unless a partition that moves in brings it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from samelog.config.authorisation import NODE_PREFIX
from samelog.format.errors import InvariantError
from samelog.format.numbers import Unsigned32
from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.commands import OpenRunCommand, Range, Verdict, VoidRecordsCommand
from samelog.sequencer.state.placement.commands import OpenPlacedInput
from samelog.wire.refusals import RefusedBatch

RUNS_REMEMBERED = 64
"""Closed runs kept per session, so that a late sender learns where its run ended."""
_VERDICTS = frozenset(Verdict)


class Run(msgspec.Struct):
    """One run of a session, under the number the cluster gave it."""

    run_id: str
    number: Unsigned32
    closed: bool = False
    dedup_id: str | None = None
    dedup_base: int | None = None
    ends: list[tuple[int, int, int]] = []
    """(input, roll, byte) per input, once closed."""
    asked: int = -1
    """The publisher's own number of it."""
    stage: str | None = None
    """What its records are staged for: nothing of it is merged before that is published."""
    published: bool = False

    def close(self, inputs: Iterable[Input]) -> None:
        """It ends where the session's inputs are now."""
        self.closed = True
        self.ends = [
            (entry.number, entry.roll, entry.byte) for entry in inputs if entry.run == self.number
        ]

    @property
    def is_held(self) -> bool:
        """Whether its records are staged, and not published."""
        return self.stage is not None and not self.published


class Session(msgspec.Struct):
    """A publisher's name, the directory that owns it, and its newest runs in number order."""

    name: str
    session_id: str
    identity: str
    runs: list[Run] = []
    retired: bool = False
    fenced_ids: list[str] = []
    forgotten: int = -1
    """The highest own number of a run of this directory that is not remembered any more."""
    next_run: int = 0
    """The lowest number the cluster may give the next run."""
    idle_since_ms: int = -1
    """When its last run was closed; -1: a run is open, or has expired."""

    def problem_with_claim(self, command: OpenRunCommand) -> WhyNot:
        """Why a directory may not speak for the session; None if it may, as it may take over a
        retired one.
        """
        if command.session_id in self.fenced_ids:
            return self.fence()
        if self.identity != command.identity:
            return "SESSION_CONFLICT", f"session {self.name!r} belongs to {self.identity}"
        if self.session_id == command.session_id or self.retired:
            return None
        text = f"another directory (id {self.session_id}) has the session {self.name!r}"
        return "SESSION_CONFLICT", text

    def take_over(self, session_id: str) -> None:
        """This directory has the session from now on; another one has run numbers of its own."""
        if session_id != self.session_id:
            self.session_id, self.retired, self.forgotten = session_id, False, -1

    def fence(self) -> tuple[str, str]:
        """Why a retired directory may not speak for the session."""
        return "SESSION_FENCED", f"this directory of {self.name!r} was retired"

    def problem_with_run(self, command: OpenRunCommand) -> WhyNot:
        """Why there can be no such run now; None if there can."""
        if command.session_id == self.session_id and command.number <= self.forgotten:
            return "RUN_FORGOTTEN", f"run {command.number} of {self.name!r} was closed long ago"
        if self.runs and (command.stage is not None or self.is_staged):
            text = f"session {self.name!r} has had a run: what is staged has one of its own"
            return "SESSION_CONFLICT", text
        if self.runs and not self.runs[-1].closed:
            return "RUN_OPEN", f"session {self.name!r} has an open run"
        return None

    @property
    def next_number(self) -> int:
        """The first that no run of it ever had."""
        return max(self.next_run, self.runs[-1].number + 1 if self.runs else 0)

    def begin(self, command: OpenRunCommand | OpenPlacedInput, number: int, asked: int) -> Run:
        """Its newest run, which the publisher calls `asked`; the oldest ones are forgotten."""
        run = Run(
            run_id=command.run_id,
            number=number,
            dedup_id=command.dedup_id,
            dedup_base=command.dedup_base,
            asked=asked,
            stage=command.stage,
        )
        self.runs.append(run)
        self.idle_since_ms = -1
        for old in self.runs[:-RUNS_REMEMBERED]:
            self.forgotten = max(self.forgotten, old.asked)
        del self.runs[:-RUNS_REMEMBERED]
        return run

    def retire(self) -> None:
        """Fence its directory."""
        if not self.retired:
            self.retired = True
            self.fenced_ids.append(self.session_id)

    @property
    def is_staged(self) -> bool:
        """Whether its newest run is, or was, staged: then all are."""
        return bool(self.runs) and self.runs[-1].stage is not None


class Input(msgspec.Struct):
    """A session's part of one partition, merged up to (run, roll, byte)."""

    number: Unsigned32
    session: str
    partition: Unsigned32
    run: Unsigned32 = 0
    roll: int = 0
    byte: int = 0
    last_id: int | None = None
    refused: list[RefusedBatch] = []
    """What its publisher has not said yet that it has kept, oldest first."""

    @property
    def place(self) -> SessionPosition:
        """The merged position."""
        return SessionPosition(self.run, self.roll, self.byte)


class CarriedInput(msgspec.Struct, frozen=True, array_like=True):
    """A session's part of a partition that moves, with the run that it is in, merged up to
    (roll, byte).
    """

    session: str
    session_id: str
    identity: str
    idle_since_ms: int
    run: Run
    roll: int
    byte: int
    last_id: int | None
    refused: list[RefusedBatch] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[CarriedInput])


class SessionsTable(msgspec.Struct):
    """All sessions of a group, with their runs and inputs."""

    by_name: dict[str, Session] = {}
    inputs: dict[int, Input] = {}
    next_input: int = 1

    def newest_run(self, session: str) -> Run | None:
        """The newest run of a session, if one is remembered."""
        known = self.by_name.get(session)
        return known.runs[-1] if known is not None and known.runs else None

    def open_input(self, session: str, partition: int, run: int) -> Input:
        """A session has a new input."""
        entry = Input(self.next_input, session, partition, run)
        self.next_input += 1
        self.inputs[entry.number] = entry
        return entry

    def of_partition(self, number: int) -> list[Input]:
        """All inputs of a partition."""
        return [entry for entry in self.inputs.values() if entry.partition == number]

    def holds_staged(self, numbers: Collection[int]) -> bool:
        """Whether records of these partitions wait to be published with others, all or nothing."""
        names = {each.session for each in self.inputs.values() if each.partition in numbers}
        runs = map(self.newest_run, names)
        return any(run is not None and run.is_held and not run.closed for run in runs)

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        gone = [each.number for each in self.inputs.values() if each.partition in numbers]
        for number in gone:
            del self.inputs[number]

    def renumber(self, moved: Mapping[int, int]) -> None:
        """See PartitionTable. Inputs stay where they are: what was merged is never merged again."""
        for entry in self.inputs.values():
            entry.partition = moved.get(entry.partition, entry.partition)

    def export(self, number: int) -> bytes:
        """See PartitionTable. Nodes have sessions of their own in each group, which stay there."""
        return _encoder.encode([*self._carried(number)])

    def _carried(self, number: int) -> Iterator[CarriedInput]:
        for entry in self.of_partition(number):
            session = self.by_name[entry.session]
            if session.runs and not session.identity.startswith(NODE_PREFIX):
                whose = session.name, session.session_id, session.identity, session.idle_since_ms
                run = msgspec.structs.replace(session.runs[-1], ends=[])
                place = entry.roll, entry.byte, entry.last_id
                yield CarriedInput(*whose, run, *place, entry.refused)

    def in_the_way(self, exported: bytes) -> Run | None:
        """A run that is open in this group and must end before runs of the partition continue."""
        for each in _decoder.decode(exported):
            newest = self.newest_run(each.session)
            if newest is not None and not newest.closed and newest.number < each.run.number:
                return newest
        return None

    def import_(self, number: int, exported: bytes) -> None:
        """See PartitionTable."""
        for each in _decoder.decode(exported):
            self._take_up(number, each)

    def _take_up(self, number: int, carried: CarriedInput) -> None:
        """An input goes on where it is merged; so does its run, which may have been closed."""
        run = self._run_here(carried)
        if run is None:
            return  # nothing comes of that run any more
        entry = self.open_input(carried.session, number, run.number)
        entry.roll, entry.byte, entry.last_id = carried.roll, carried.byte, carried.last_id
        entry.refused = [each._replace(input=entry.number) for each in carried.refused]
        session = self.by_name[carried.session]
        if not carried.run.closed:
            run.closed, run.ends, session.idle_since_ms = False, [], -1
        elif run.closed:
            run.ends.append((entry.number, entry.roll, entry.byte))
            session.idle_since_ms = max(session.idle_since_ms, carried.idle_since_ms)

    def _run_here(self, carried: CarriedInput) -> Run | None:
        """The run of an input in this group, begun if need be; None: a newer one was."""
        session, newest = self.by_name.get(carried.session), self.newest_run(carried.session)
        whose = carried.session, carried.session_id, carried.identity
        if session is None:
            session = self.by_name[carried.session] = Session(*whose)
        if newest is not None and newest.number == carried.run.number:
            return newest
        if carried.run.number < (session.next_run if newest is None else newest.number):
            return None
        session.name, session.session_id, session.identity = whose
        for entry in self.inputs.values():
            if entry.session == session.name:
                entry.run, entry.roll, entry.byte, entry.last_id = carried.run.number, 0, 0, None
        run = msgspec.structs.replace(carried.run)
        session.runs.append(run)
        return run

    def give_up(self, command: VoidRecordsCommand) -> None:
        """See PartitionTable: what publishers sent of records that are void counts as merged."""

    def expire(self, producers: Collection[int]) -> None:
        """See PartitionTable: sessions expire by themselves."""


def follows(place: SessionPosition | Input, part: Range) -> bool:
    """Whether a range starts at `place`, or with a later file: those in between are empty."""
    if part.stop < part.start or part.verdict not in _VERDICTS:
        raise InvariantError(f"malformed range {part}")
    goes_on = (part.roll, part.start) == (place.roll, place.byte)
    return part.run == place.run and (goes_on or (part.roll > place.roll and part.start == 0))
