"""Sessions of publishers in a group: their runs, and their inputs. An input is a session's part of
one partition.

Invariant: of a session at most one run is open in a group, its newest; one that was closed never
opens again there, unless a partition that moves in brings it. In group 0, no run that has parts
which are yet to come to data groups is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property

import msgspec

from samelog.config.authorisation import NODE_PREFIX
from samelog.format.errors import InvariantError
from samelog.format.numbers import Unsigned32
from samelog.format.positions import SessionPosition
from samelog.sequencer.state.command_base import Command, Rejection, WhyNot
from samelog.sequencer.state.instructions import Range, Verdict, VoidRecordsCommand
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.wire.refusals import RefusedBatch


class OpenRunCommand(Command, frozen=True, tag=3):
    """Claim a run number for a run id; the first claim wins, later ones get the next free one."""

    session: str
    session_id: str
    identity: str
    number: Unsigned32
    run_id: str
    dedup_id: str | None
    dedup_base: int | None
    stage: str | None = None


class OpenInputCommand(Command, frozen=True, tag=4):
    """Give a session's part of one partition its input number."""

    session: str
    topic_id: str
    partition: Unsigned32


class CloseRun(Command, frozen=True, tag=5):
    """End a session's open run where it is merged: later bytes of that run never count. In group 0,
    `ends` are the ends of the run's parts in data groups, as (partition, roll, byte). Of a run that
    is closed, they are those of parts that were yet to come.
    """

    session: str
    run_id: str
    at_ms: int = -1
    ends: list[tuple[Unsigned32, int, int]] = msgspec.field(default_factory=list)
    to_come: list[Unsigned32] = msgspec.field(default_factory=list)
    """Partitions of `ends` whose groups have yet to merge the run up to there."""


class RetireSessionCommand(Command, frozen=True, tag=8):
    """Fence a session's directory `session_id` (empty: the present one) and close its runs: another
    directory may take the name over.
    """

    session: str
    session_id: str = ""
    at_ms: int = -1


class OpenPlacedInput(Command, frozen=True, tag=79):
    """In a data group: a session's run, which group 0 has opened under this number, begins in one
    of the group's partitions.
    """

    session: str
    session_id: str
    identity: str
    number: Unsigned32
    asked: int
    run_id: str
    dedup_id: str | None
    dedup_base: int | None
    stage: str | None
    topic_id: str
    partition: Unsigned32
    after: int = -1
    """The newest older run that has a part which is yet to come to the group; -1: none has."""


class Expire(Command, frozen=True, tag=14):
    """Forget idle producer ids (with their newest append time) and the runs and inputs of idle
    sessions (with the time their last run was closed): those that are still as old as that.
    """

    producers: list[tuple[int, int]]
    sessions: list[tuple[str, int]]


class ForgetRefused(Command, frozen=True, tag=146):
    """A publisher has kept what was refused of an input, up to the batch at this place."""

    input: Unsigned32
    run: Unsigned32
    roll: int
    start: int


SessionCommand = (
    OpenRunCommand
    | OpenInputCommand
    | CloseRun
    | RetireSessionCommand
    | OpenPlacedInput
    | Expire
    | ForgetRefused
)

RUNS_REMEMBERED = 64
"""Closed runs kept per session, so that a late sender learns where its run ended; and those with
parts that are yet to come."""
PARTS_MOST = 32
"""Closed runs of a session that may have parts which are yet to come."""
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
    to_come: list[int] = []
    """Of a closed run: the inputs in data groups that have yet to reach their ends."""

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
        if sum(bool(run.to_come) for run in self.runs) >= PARTS_MOST:
            text = f"data groups have yet to take parts of {PARTS_MOST} runs of {self.name!r}"
            return "PARTS_TO_COME", text
        return None

    @property
    def has_parts_to_come(self) -> bool:
        """Whether data groups have yet to take parts of closed runs."""
        return any(run.to_come for run in self.runs)

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
        older = self.runs[:-RUNS_REMEMBERED]
        for old in older:
            if not old.to_come:
                self.forgotten = max(self.forgotten, old.asked)
        self.runs[:-RUNS_REMEMBERED] = [old for old in older if old.to_come]
        return run

    def retire(self) -> None:
        """Fence its directory: no group waits for what only that directory has."""
        if not self.retired:
            self.retired = True
            self.fenced_ids.append(self.session_id)
        for run in self.runs:
            run.to_come = []

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


class SessionsTable(msgspec.Struct, dict=True):
    """All sessions of a group, with their runs and inputs."""

    by_name: dict[str, Session] = {}
    inputs: dict[int, Input] = {}
    next_input: int = 1

    @cached_property
    def index(self) -> SessionIndex:
        """Finds inputs and idle sessions; snapshots do not have it."""
        return SessionIndex.of(self)

    def reindex(self) -> None:
        """Rebuild the index after changes that it did not follow."""
        self.index = SessionIndex.of(self)

    # --- queries ----------------------------------------------------------------------------------

    def input_of(self, session: str, partition: int) -> Input | None:
        """Return a session's input of one partition number."""
        number = self.index.input_of(session, partition)
        return None if number is None else self.inputs[number]

    def inputs_of(self, session: str) -> list[Input]:
        """Return all inputs of a session."""
        return [self.inputs[number] for number in self.index.inputs_of(session)]

    def open_run_of(self, session: str) -> Run | None:
        """Return the session's run that is not closed, if any: there is at most one, the newest."""
        known = self.by_name.get(session)
        if known is None or not known.runs or known.runs[-1].closed:
            return None
        return known.runs[-1]

    def run_of(self, session: str, run_id: str) -> Run | None:
        """Return a run by its id."""
        known = self.by_name.get(session)
        runs = () if known is None else known.runs
        return next((run for run in runs if run.run_id == run_id), None)

    def takes(self, session: str, *, staged: bool = False) -> bool:
        """Return whether a run of the session is open whose records may be merged; `staged`: one
        that is held.
        """
        known = self.by_name.get(session)
        run = known.runs[-1] if known is not None and known.runs else None
        if run is None or run.closed:
            return False
        return (run.stage is not None and not run.published) is staged

    def newest_run(self, session: str) -> Run | None:
        """The newest run of a session, if one is remembered."""
        known = self.by_name.get(session)
        return known.runs[-1] if known is not None and known.runs else None

    def of_partition(self, number: int) -> list[Input]:
        """All inputs of a partition."""
        return [entry for entry in self.inputs.values() if entry.partition == number]

    def holds_staged(self, numbers: Collection[int]) -> bool:
        """Whether records of these partitions wait to be published with others, all or nothing."""
        names = {each.session for each in self.inputs.values() if each.partition in numbers}
        runs = map(self.newest_run, names)
        return any(run is not None and run.is_held and not run.closed for run in runs)

    # --- commands ---------------------------------------------------------------------------------

    def open_run(self, command: OpenRunCommand) -> Run | Rejection:
        """Give a run its number, unless it has one."""
        session = self.by_name.get(command.session)
        if session is None:
            session = Session(command.session, command.session_id, command.identity, [])
        problem = session.problem_with_claim(command)
        known = self.run_of(command.session, command.run_id) if problem is None else None
        if known is not None:
            return known
        problem = problem or session.problem_with_run(command)
        if problem is not None:
            return Rejection(*problem)
        self.by_name[command.session] = session
        session.take_over(command.session_id)
        run = session.begin(command, max(session.next_number, command.number), command.number)
        self._begin_inputs(run, session)
        return run

    def begin_run(self, command: OpenPlacedInput) -> Run | Rejection:
        """In a data group: begin a run under the number that group 0 gave it."""
        session = self.by_name.get(command.session)
        if session is None:
            session = Session(command.session, command.session_id, command.identity, [])
        if session.runs and not session.runs[-1].closed:
            number = session.runs[-1].number
            text = f"run {number} of session {command.session!r} is open in this group"
            return Rejection("RUN_OPEN", text)
        if command.number < session.next_number:
            return Rejection("RUN_CLOSED", f"run {command.number} was closed in this group")
        if command.after >= session.next_number:
            text = f"run {command.after} of session {command.session!r} comes to this group first"
            return Rejection("RUN_OPEN", text)
        self.by_name[command.session] = session
        session.session_id, session.identity = command.session_id, command.identity
        run = session.begin(command, command.number, command.asked)
        self._begin_inputs(run, session)
        return run

    def _begin_inputs(self, run: Run, session: Session) -> None:
        for entry in self.inputs_of(session.name):
            entry.run, entry.roll, entry.byte = run.number, 0, 0
            entry.last_id = None
        self.index.note(session)

    def open_input(self, session: str, partition: int, run: int) -> Input:
        """Give a session an input."""
        index, entry = self.index, self._add_input(session, partition, run)
        index.add_input(entry)
        index.note(self.by_name[session])
        return entry

    def _add_input(self, session: str, partition: int, run: int) -> Input:
        entry = Input(self.next_input, session, partition, run)
        self.next_input += 1
        self.inputs[entry.number] = entry
        return entry

    def close_run(self, command: CloseRun, run: Run) -> None:
        """End a run where the session's inputs are, and where data groups end their parts of it."""
        places = self.index.places_of(command.session)
        for partition, roll, byte in command.ends:
            if partition in places:  # a call for each of thousands would take a long turn
                entry = self.inputs[places[partition]]
                entry.roll, entry.byte = roll, byte
        run.close(self.inputs_of(command.session))
        run.to_come = [places[each] for each in command.to_come if each in places]
        session = self.by_name[command.session]
        session.idle_since_ms = command.at_ms
        self.index.note(session)

    def settle_parts(self, command: CloseRun, run: Run) -> None:
        """Note where data groups have ended parts of a closed run that were yet to come."""
        places = self.index.places_of(command.session)
        ends = {
            places[each]: (places[each], roll, byte)
            for each, roll, byte in command.ends
            if each in places
        }
        settled = ends.keys() & set(run.to_come)
        if settled:
            run.ends = [ends[end[0]] if end[0] in settled else end for end in run.ends]
            run.to_come = [each for each in run.to_come if each not in settled]
            session = self.by_name[command.session]
            if session.runs[-1].closed:
                session.idle_since_ms = command.at_ms
            self.index.note(session)

    def forget_runs(self, name: str, idle_since_ms: int) -> list[Input]:
        """Keep of a session that was not used since only what refuses a late sender and an
        impostor. Return the inputs that are gone.
        """
        session = self.by_name.get(name)
        if session is None or not session.idle_since_ms == idle_since_ms >= 0:
            return []
        if session.has_parts_to_come:
            return []
        session.forgotten = max([session.forgotten, *(run.asked for run in session.runs)])
        was_staged = session.runs[-1].stage is not None
        session.next_run = session.runs[-1].number + 1
        session.runs, session.idle_since_ms = [], -1
        gone = self.inputs_of(session.name)
        for entry in gone:
            del self.inputs[entry.number]
            self.index.drop_input(entry)
        self.index.note(session)
        if was_staged:  # a late sender's records would be staged again, and never published
            del self.by_name[session.name]
        return gone

    def note_refused(self, refused: Iterable[RefusedBatch]) -> None:
        """Remember refused batches for their publishers. Clients of nodes have their answer."""
        for batch in refused:
            entry = self.inputs[batch.input]
            if not self.by_name[entry.session].identity.startswith(NODE_PREFIX):
                entry.refused.append(batch)

    def forget_refused(self, command: ForgetRefused) -> None:
        """Forget refused batches that the publisher has kept."""
        entry = self.inputs.get(command.input)
        if entry is not None:
            kept = command.run, command.roll, command.start
            entry.refused = [each for each in entry.refused if each.place > kept]

    # --- life of a partition ----------------------------------------------------------------------

    def drop(self, numbers: Collection[int]) -> None:
        """See PartitionTable."""
        index, gone = (
            self.index,
            [each for each in self.inputs.values() if each.partition in numbers],
        )
        for entry in gone:
            del self.inputs[entry.number]
        for entry in gone:
            index.drop_input(entry)
            session = self.by_name[entry.session]
            for run in session.runs:
                if entry.number in run.to_come:
                    run.to_come.remove(entry.number)
            index.note(session)

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
        """An input continues where it is merged; so does its run, which may have been closed."""
        run = self._run_here(carried)
        if run is None:
            return  # nothing comes of that run any more
        entry = self._add_input(carried.session, number, run.number)
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
