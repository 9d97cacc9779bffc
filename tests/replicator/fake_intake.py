"""Intakes of a pretended cluster: bytes in memory, and a cluster that commits, merges and closes.

What one node holds counts as committed and merged as soon as the test lets it: the rules of
majorities belong to the sequencer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from samelog.format import _kernels as kernels
from samelog.replicator.interfaces import (
    InputName,
    OpenedInput,
    OpenedRun,
    RequestRefused,
    ResumePoint,
    RollByte,
    RunEnds,
)
from samelog.replicator.watchers import IntakeListener, Watchers
from samelog.wire.errors import FaultCode

InputKey = tuple[str, str, int]
"""(session, topic id, partition)."""


@dataclass(slots=True)
class HeldRun:
    """One run of one input at one node. `files`: roll -> bytes, of which `base` are not held."""

    files: dict[int, bytearray] = field(default_factory=lambda: {0: bytearray()})
    base: dict[int, int] = field(default_factory=dict)
    sealed: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> RollByte:
        """Where the next byte goes."""
        roll = max(self.files)
        return roll, self.base.get(roll, 0) + len(self.files[roll])

    def last_batch(self) -> tuple[int, int]:
        """(start, crc) of the last batch in the newest file; (-1, 0) if there is none."""
        roll = max(self.files)
        if not self.files[roll]:
            return -1, 0
        scan = kernels.scan(self.files[roll])
        return self.base.get(roll, 0) + scan.last_start, scan.last_crc


@dataclass(slots=True)
class KnownRun:
    """One run as the cluster knows it."""

    number: int
    closed: bool = False
    ends: dict[InputName, RollByte] = field(default_factory=dict)
    asked_ends: RunEnds | None = None


class FakeCluster:
    """What all nodes agree on."""

    def __init__(self) -> None:
        self.topics: dict[str, str] = {}
        self.partitions = 4
        self.counts: dict[str, int] = {}
        """Partitions of the topics that were asked for."""
        self.asked = 0
        """How often nodes were asked for a topic."""
        self.session_ids: dict[str, str] = {}
        self.runs: dict[str, dict[str, KnownRun]] = defaultdict(dict)
        self.inputs: dict[InputKey, int] = {}
        self.merged: dict[tuple[int, int], RollByte] = {}
        """(input, run number) -> merged, which is acknowledged too."""
        self.released: dict[tuple[int, int], RollByte] = {}
        """The same, on a majority."""
        self.intakes: list[FakeIntake] = []
        self.merges = True
        self.releases = True
        self.closes = True
        self._next_topic = 0

    def topic_id(self, name: str) -> str:
        """The id of a topic, created if need be."""
        if name not in self.topics:
            self._next_topic += 1
            self.topics[name] = f"topic-{self._next_topic}"
        return self.topics[name]

    def delete_topic(self, name: str) -> None:
        """Delete it, and tell everybody."""
        topic_id = self.topics.pop(name)
        self.counts.pop(name, None)
        for (_, known, _), number in list(self.inputs.items()):
            if known == topic_id:
                for intake in self.intakes:
                    intake.tell_gone(number)

    def name_of(self, number: int) -> InputName:
        """(topic, partition) of an input."""
        names = {topic_id: name for name, topic_id in self.topics.items()}
        [(_, topic_id, partition)] = [key for key, value in self.inputs.items() if value == number]
        return names.get(topic_id, "deleted"), partition

    def move(self) -> None:
        """Commit, merge and release what may be; close what has ended."""
        for intake in self.intakes:
            for key, held in intake.held.items():
                if self.merges and held.end > self.merged.get(key, (0, 0)):
                    self.merged[key] = held.end
                if self.releases:
                    self.released[key] = self.merged.get(key, (0, 0))
        for intake in self.intakes:
            intake.tell_progress()
        for session, runs in self.runs.items():
            for run_id, run in runs.items():
                if self.closes and not run.closed and run.asked_ends is not None:
                    self.close_run(session, run_id)

    def close_run(self, session: str, run_id: str) -> None:
        """Close a run at what is merged."""
        run = self.runs[session][run_id]
        run.closed = True
        for (number, run_number), place in self.merged.items():
            if run_number == run.number and place > (0, 0):
                run.ends[self.name_of(number)] = place
        for intake in self.intakes:
            intake.tell_closed(session, run_id, run.ends)


class FakeIntake:
    """One node. Implements replicator.interfaces.SessionIntake."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.held: dict[tuple[int, int], HeldRun] = defaultdict(HeldRun)
        self.watchers = Watchers()
        self.opened_runs: list[str] = []
        self.appends = 0
        self.refusal: RequestRefused | None = None
        """What opening an input is answered with."""
        self._moving = False
        cluster.intakes.append(self)

    # --- what tests ask -----------------------------------------------------------------------

    def bytes_of(self, session: str, topic_id: str, partition: int = 0) -> bytes:
        """What is held of an input of a topic that there is or was, by runs and files."""
        number = self.cluster.inputs.get((session, topic_id, partition))
        runs = sorted(key for key in self.held if key[0] == number)
        return b"".join(
            bytes(data) for key in runs for _, data in sorted(self.held[key].files.items())
        )

    def run(self, session: str, name: InputName, run: int = 0) -> HeldRun:
        """What is held of a run, by the cluster's number."""
        number = self.cluster.inputs[session, self.cluster.topic_id(name[0]), name[1]]
        return self.held[number, run]

    def move_soon(self) -> None:
        """Let the cluster move at the end of this turn."""
        if not self._moving:
            self._moving = True
            asyncio.get_running_loop().call_soon(self._move)

    def _move(self) -> None:
        self._moving = False
        self.cluster.move()

    # --- SessionIntake ------------------------------------------------------------------------

    async def open_run(
        self,
        *,
        identity: str,
        session: str,
        session_id: str,
        run: int,
        run_id: str,
        dedup_id: str | None,
        dedup_base: int | None,
        stage: str | None = None,
    ) -> OpenedRun:
        """Claim or find it."""
        await asyncio.sleep(0)
        if self.cluster.session_ids.setdefault(session, session_id) != session_id:
            raise RequestRefused(FaultCode.SESSION_CONFLICT, "another directory has this session")
        runs = self.cluster.runs[session]
        if run_id not in runs:
            open_runs = [known for known in runs.values() if not known.closed]
            if open_runs:
                raise RequestRefused(FaultCode.NOT_READY, "another run is open")
            numbers = {known.number for known in runs.values()}
            runs[run_id] = KnownRun(run if run not in numbers else max(numbers) + 1)
        known = runs[run_id]
        self.opened_runs.append(run_id)
        return OpenedRun(known.number, known.closed, dict(known.ends))

    async def open_topic(self, topic: str, partitions: int) -> tuple[int, bool]:
        """Create it if need be and it may be."""
        self.cluster.asked += 1
        if self.refusal is not None:
            raise self.refusal
        if not partitions and topic not in self.cluster.topics:
            raise RequestRefused(FaultCode.UNKNOWN_TOPIC, f"there is no topic {topic!r}", "")
        self.cluster.topic_id(topic)
        return self.cluster.counts.setdefault(topic, max(1, partitions)), False

    def check_session(self, session: str, session_id: str) -> None:
        """This cluster fences none."""

    async def check_topic(self, topic_id: str | None) -> None:
        """Refuse a topic that was deleted."""
        if topic_id is not None and topic_id not in self.cluster.topics.values():
            raise RequestRefused(FaultCode.TOPIC_GONE, "the topic was deleted", "let it go")

    async def open_input(
        self,
        *,
        identity: str,
        session: str,
        run_id: str,
        topic: str,
        partition: int,
        topic_id: str | None = None,
        listener: IntakeListener | None = None,
    ) -> OpenedInput:
        """Open it, the topic created if need be."""
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        await self.check_topic(topic_id)
        topic_id = self.cluster.topic_id(topic)
        inputs = self.cluster.inputs
        number = inputs.setdefault((session, topic_id, partition), len(inputs))
        key = number, self.cluster.runs[session][run_id].number
        if listener is not None:
            self.watchers.watch_input(listener, number)
        held = self.held[key]
        self.move_soon()
        return OpenedInput(
            input=number,
            topic_id=topic_id,
            partitions=self.cluster.partitions,
            position=ResumePoint(*held.end, *held.last_batch()),
            merged=self.cluster.merged.get(key, (0, 0)),
        )

    def is_released(self, number: int, run_number: int, end: tuple[int, int]) -> bool:
        """Whether the cluster was told to release all of it."""
        return self.cluster.released.get((number, run_number), (0, 0)) >= end

    def append(
        self, number: int, run_number: int, roll: int, byte: int, data: bytes | memoryview
    ) -> None:
        """Take whole valid batches."""
        self.appends += 1
        held = self.held[number, run_number]
        scan = kernels.scan(data)
        if scan.end != len(data):
            raise RequestRefused(FaultCode.INVALID_BATCH, scan.error or "cut")
        end = held.end
        skip = end[1] - byte if roll == end[0] else 0
        if roll < end[0] or skip >= len(data) > 0:
            return
        if (roll, byte + skip) != end or skip < 0:
            raise RequestRefused(FaultCode.GAP, f"bytes for {(roll, byte)}, held is {end}")
        held.files[roll] += memoryview(data)[skip:]
        self.move_soon()

    def seal(self, number: int, run_number: int, roll: int, length: int) -> None:
        """Go on in the next file."""
        held = self.held[number, run_number]
        if roll < held.end[0]:
            return
        if (roll, length) != held.end:
            raise RequestRefused(FaultCode.GAP, f"sealed at {(roll, length)}, held is {held.end}")
        held.sealed[roll] = length
        held.files[roll + 1] = bytearray()
        self.move_soon()

    def start_at(self, number: int, run_number: int, roll: int, byte: int) -> None:
        """Jump, if all before is merged."""
        key = number, run_number
        merged = self.cluster.merged.get(key, (0, 0))
        if (roll, byte) > merged:
            raise RequestRefused(FaultCode.OUT_OF_RANGE, f"merged is {merged}, not {(roll, byte)}")
        if self.held[key].end < merged:
            self.held[key] = HeldRun({merged[0]: bytearray()}, {merged[0]: merged[1]})
        self.move_soon()

    def refusals_kept(self, number: int, run_number: int, roll: int, start: int) -> None:
        """Nothing is refused here."""

    def end_run(self, session: str, run_id: str, ends: RunEnds) -> None:
        """The sender has no more."""
        self.cluster.runs[session][run_id].asked_ends = ends
        self.move_soon()

    # --- telling ------------------------------------------------------------------------------

    def tell_progress(self) -> None:
        """All that is known, to everybody."""
        for key, held in list(self.held.items()):
            merged = self.cluster.merged.get(key, (0, 0))
            released = self.cluster.released.get(key, (0, 0))
            for listener in self.watchers.of_input(key[0]):
                listener.on_progress(*key, (max(held.end, merged), merged, released), None)

    def tell_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """A run was closed."""
        for listener in self.watchers.of_session(session):
            listener.on_run_closed(session, run_id, ends, frozenset())

    def tell_gone(self, number: int) -> None:
        """A topic was deleted."""
        for key in [key for key in self.held if key[0] == number]:
            del self.held[key]
        for listener in self.watchers.of_input(number):
            listener.on_topic_gone(number)
