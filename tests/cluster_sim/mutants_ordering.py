"""Planted bugs about who decides what is merged where, and who is told what of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.consensus import Role
from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.sequencer.events import Ends
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.merge import merger
from samelog.sequencer.merge.merger import PartitionMerger
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.raft.closing import RunCloser
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.raft.views import NodeView
from samelog.sequencer.state import machine
from samelog.sequencer.state.instructions import Merge, Range, Verdict
from samelog.sequencer.state.tables.sessions import (
    Input,
    OpenRunCommand,
    Run,
    Session,
    SessionsTable,
)
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import merges
from samelog.store.merged.log import MergedLog


@contextmanager
def plan_what_the_leader_lacks() -> Iterator[None]:
    """What a majority holds is planned, whether the leader has it or not."""

    def reach(
        self: Coordinator,
        entry: Input,
        own: Mapping[int, SessionPosition],
        views: Sequence[NodeView],
    ) -> SessionPosition | None:
        return original(self, entry, {entry.number: SessionPosition(1 << 30, 0, 0)}, views)

    original = Coordinator._reach
    with patch.object(Coordinator, "_reach", reach):
        yield


@contextmanager
def plan_before_noop() -> Iterator[None]:
    """A new leader plans before it has applied what its predecessors committed."""
    leads = property(lambda self: self.raft.role is Role.LEADER and self._fault is None)
    with patch.object(RaftGroup, "is_leader", leads):
        yield


@contextmanager
def keep_speculation() -> Iterator[None]:
    """What a leader had planned but not committed outlives its leadership."""
    with patch.object(Planner, "reset", lambda self: self.in_flight.clear()):
        yield


@contextmanager
def use_offsets_again() -> Iterator[None]:
    """An instruction does not know of the offsets of the one that is still under way."""
    original = Planner._finish

    def finish(self: Planner, draft: Any, *term: Any, **options: Any) -> Merge:
        merge = original(self, draft, *term, **options)
        self._tails.pop(draft.partition, None)
        return merge

    with patch.object(Planner, "_finish", finish):
        yield


@contextmanager
def plan_bytes_again() -> Iterator[None]:
    """Bytes that are planned but not applied are planned once more, at the next offsets."""
    with (
        patch.object(Planner, "place", lambda self, entry: entry.place),
        patch.object(merger, "SAMPLE_RECORDS", 1 << 30),
    ):
        yield


@contextmanager
def take_any_place() -> Iterator[None]:
    """Where an input stands is no precondition of an instruction, and planners forget it too."""

    def places_after(
        state: State, command: Merge, places: object, *, staged: bool = False
    ) -> dict[int, SessionPosition]:
        return {
            part.input: SessionPosition(part.run, part.roll, part.stop) for part in command.ranges
        }

    with (
        patch.object(Planner, "place", lambda self, entry: entry.place),
        patch.object(merges, "places_after", places_after),
    ):
        yield


@contextmanager
def judge_native_batches() -> Iterator[None]:
    """Batches of native sessions are judged by sequences, like those of Kafka's producers."""

    def take(
        self: Planner,
        entry: Input,
        place: SessionPosition,
        read: tuple[bytearray, object],
        draft: Any,
        source: object,
    ) -> int:
        return self._take_judged(entry, place, read[0], draft) if read[0] else 0

    def judge(self: Planner, entry: Input, facts: Any, draft: Any, batch: bytes) -> Any:
        verdict, detail = self._judge_producer(entry, facts, draft)
        is_taken = verdict is Verdict.TAKE
        return verdict, detail, (facts.records, len(batch)) if is_taken else (0, 0)

    with (
        patch.object(Planner, "_take_batches", take),
        patch.object(Planner, "_judge", judge),
    ):
        yield


@contextmanager
def close_runs_early() -> Iterator[None]:
    """A run is closed as soon as anybody says that it ended."""
    with patch.object(RunCloser, "_wholly_merged", lambda self, session, ends: True):
        yield


@contextmanager
def close_at_what_the_leader_holds() -> Iterator[None]:
    """Neither the sender's word nor what other nodes hold delays the close of a run."""

    def known(self: RunCloser, entry: Input, ends: Ends) -> list[SessionPosition]:
        return [entry.place]

    with patch.object(RunCloser, "_known_ends", known):
        yield


@contextmanager
def close_beside_plans() -> Iterator[None]:
    """Bytes of a run are planned while its close is under way, and merged behind it."""

    def open_run_of(self: SessionsTable, session: str) -> Run | None:
        known = self.by_name.get(session)
        return known.runs[-1] if known is not None and known.runs else None

    def takes(self: SessionsTable, session: str, *, staged: bool = False) -> bool:
        run = self.open_run_of(session)
        return run is not None and run.is_held is staged

    def wholly_merged(self: RunCloser, session: Session, ends: Ends) -> bool:
        return all(
            self._reached(entry, SessionPosition(entry.run, *end))
            for entry in self._machine.state.sessions.inputs_of(session.name)
            for end in ends.values()
        )

    with (
        patch.object(Planner, "closing", lambda self, session: None),
        patch.object(SessionsTable, "open_run_of", open_run_of),
        patch.object(SessionsTable, "takes", takes),
        patch.object(RunCloser, "_wholly_merged", wholly_merged),
    ):
        yield


@contextmanager
def acknowledge_what_is_durable() -> Iterator[None]:
    """Publishers hear that what one node holds is acknowledged."""

    def tell(self: Intake, numbers: Iterable[int]) -> None:
        inputs = self._replica.machine.state.sessions.inputs
        for number, place in self.vouched(numbers).items():
            entry, durable = inputs[number], place[1:]
            for listener in self.watchers.of_input(known := self.first_input | number):
                listener.on_progress(known, entry.run, (durable, durable, (0, 0)), None)

    with patch.object(Intake, "_tell", tell):
        yield


@contextmanager
def release_what_is_committed() -> Iterator[None]:
    """Publishers and nodes let go of bytes that are committed, but not merged on a majority."""

    def tell(self: Intake, numbers: Iterable[int]) -> None:
        inputs = self._replica.machine.state.sessions.inputs
        for number, place in self.vouched(numbers).items():
            entry = inputs[number]
            durable, merged = place[1:], (entry.roll, entry.byte)
            for listener in self.watchers.of_input(known := self.first_input | number):
                listener.on_progress(known, entry.run, (durable, merged, merged), None)

    with patch.object(Intake, "_tell", tell):
        yield


@contextmanager
def release_what_one_has_merged() -> Iterator[None]:
    """One node that has merged bytes durably is enough to let go of them."""

    def merged(self: Coordinator, partitions: Iterable[int]) -> dict[int, int]:
        views = self._voting_views()
        return {
            number: max((view.merged_durable.get(number, 0) for view in views), default=0)
            for number in partitions
        }

    with patch.object(Coordinator, "majority_merged", merged):
        yield


@contextmanager
def share_run_numbers() -> Iterator[None]:
    """A run gets the number that it asks for, whoever has it already."""
    original = Session.begin

    def begin(self: Session, command: Any, number: int, asked: int) -> Run:
        return original(self, command, asked, asked)

    with patch.object(Session, "begin", begin):
        yield


@contextmanager
def forget_runs() -> Iterator[None]:
    """A run that was closed long ago is opened again, as a new one."""
    original = machine.APPLY[OpenRunCommand]

    def open_run(state: State, command: OpenRunCommand) -> Any:
        session = state.sessions.by_name.get(command.session)
        if session is not None:
            session.forgotten = -1
        return original(state, command)

    with _applying(OpenRunCommand, open_run):
        yield


@contextmanager
def _applying(command: type, how: Callable[..., Any]) -> Iterator[None]:
    with patch.dict(machine.APPLY, {command: how}):
        yield


@contextmanager
def merge_any_bytes() -> Iterator[None]:
    """Session bytes are merged as they are, whatever the leader planned."""

    def output(self: PartitionMerger, merge: Merge, part: Range) -> bytearray | None:
        return self._reader.read_range(part)

    with patch.object(PartitionMerger, "_output", output):
        yield


@contextmanager
def copy_any_bytes() -> Iterator[None]:
    """Copies of merged logs take what they are sent without checking it."""
    original, scan = MergedLog.append_copy, kernels.scan

    def append_copy(self: MergedLog, segment_base: int, byte: int, data: Any) -> int:
        def trusting(data: Any, **options: Any) -> Any:
            return scan(data, **{**options, "verify_crc": False})

        with patch.object(kernels, "scan", trusting):
            return original(self, segment_base, byte, data)

    with patch.object(MergedLog, "append_copy", append_copy):
        yield


@contextmanager
def roll_by_memory() -> Iterator[None]:
    """A node that was just started does not begin the segment that the instruction names."""
    original = MergedLog.roll

    def roll(self: MergedLog) -> None:
        if self._last_append is not None:
            original(self)

    with patch.object(MergedLog, "roll", roll):
        yield


ORDERING = (
    plan_what_the_leader_lacks,
    plan_before_noop,
    keep_speculation,
    use_offsets_again,
    plan_bytes_again,
    take_any_place,
    judge_native_batches,
    close_runs_early,
    close_at_what_the_leader_holds,
    close_beside_plans,
    acknowledge_what_is_durable,
    release_what_is_committed,
    release_what_one_has_merged,
    share_run_numbers,
    forget_runs,
    merge_any_bytes,
    copy_any_bytes,
    roll_by_memory,
)
