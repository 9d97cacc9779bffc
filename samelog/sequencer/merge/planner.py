"""The leader's planner: from positions and batch headers to merge instructions.

It takes, per input, what a majority and the leader itself hold durably, cuts it at batch
boundaries, drops what was merged before, and orders the inputs fairly: round robin, with a bound
per input and per entry, so that a flood from one publisher delays the others by one entry at most.
It proposes nothing it would have to wait for: when idle, one record is an instruction.

Invariant: an instruction is fully resolved. What the planner has proposed but not seen applied
lives in `_places`, `_tails` and the views of dedup, mirrors and transactions. Each value is dropped
with the last entry in flight that changes it, and all are dropped with leadership (rules merge.6
and merge.16).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from samelog.archiver.policy import CLEANUP_POLICY
from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, slice_batch, told_size
from samelog.format.errors import DecompressionError, LogFormatError
from samelog.format.positions import SessionPosition
from samelog.format.transactions import TRANSACTIONAL
from samelog.sequencer.merge.bookings import Bookings
from samelog.sequencer.merge.dedup import BatchFacts, DedupView, judge_ids, last_sequence, unwrap
from samelog.sequencer.merge.drafts import (
    Draft,
    EntryBudget,
    PlannerLimits,
    Tail,
    append_joined,
    newest,
)
from samelog.sequencer.merge.filters import (
    CannotJudge,
    GivenBatch,
    InputWaits,
    Judged,
    MergeFilter,
    filtered,
    look_ahead,
    look_behind,
)
from samelog.sequencer.merge.in_flight import InFlight, MemberFlight, Speculation, SpeculativeKey
from samelog.sequencer.merge.mirrored import MirroredRanges, mirrored_part
from samelog.sequencer.merge.session_bytes import SessionBytes, keep_taken
from samelog.sequencer.merge.transaction_view import TransactionView
from samelog.sequencer.state.instructions import Merge, MergeExtras, Range, Sequence5, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.sessions import Input, Run
from samelog.sequencer.state.topic_settings import (
    LOG_APPEND_TIME,
    SEGMENT_BYTES,
    SEGMENT_MS,
    TIMESTAMP_TYPE,
    longest_segment_ms,
)

_PLAIN: tuple[Any, ...] = ([], [], [], None, None, False)
"""What a draft of a plain instruction has of everything else."""


class Planner:
    """Plans merge instructions for one Raft group; lives on every node, used by the leader.

    Nothing is booked (places, drafts, what dedup knows) before the bytes that it is about are read,
    verified and, where need be, sliced: an error in between leaves what was booked consistent.
    """

    def __init__(
        self,
        machine: StateMachine,
        limits: PlannerLimits,
        cluster: StateMachine | None = None,
        member: MemberFlight | None = None,
    ) -> None:
        """`cluster`: of group 0; None: this is of group 0 itself. `member`: entries in flight of
        all groups of this member; None: there is no other group.
        """
        self._machine = machine
        self.cluster = cluster or machine
        """Of group 0, which decides transactions."""
        self._limits = limits
        self._dedup = DedupView(machine)
        self._transactions = TransactionView(machine, cluster or machine)
        self.forgotten = self._transactions.forgotten
        """Transactions to abort, because group 0 does not know them."""
        self._mirrored = MirroredRanges(machine)
        self._places = Speculation[int, SessionPosition]()
        self._tails = Speculation[int, Tail]()
        self.in_flight = InFlight(limits, member or MemberFlight())
        self._closing: set[str] = set()
        self._turn = 0
        self.filters: Sequence[MergeFilter] = ()
        """In their order: each is asked for those records only that the ones before let pass."""
        self._active: Sequence[MergeFilter] = ()
        self.damaged: dict[int, str] = {}
        """Inputs whose bytes here cannot be planned, and why."""

    @property
    def owes_markers(self) -> bool:
        """Whether transactions are decided whose markers are not proposed."""
        return self._transactions.owes_markers

    def reset(self) -> None:
        """Drop all speculation: leadership is new or lost."""
        self.in_flight.clear()
        self._closing.clear()
        self.damaged.clear()
        self._places.clear()
        self._tails.clear()
        self._dedup.clear()
        self._mirrored.tails.clear()
        self._transactions.clear()
        state = self._machine.state
        self._active = self.filters if state.keys.by_partition or state.schemas.enforced else ()
        for each in self.filters:
            each.reset()

    def drain(self) -> None:
        """Drop all speculation, because an entry was rejected or not proposed, once everything in
        flight is applied: most of it will be accepted, and would be planned twice before that.
        """
        if self.in_flight:
            self.in_flight.is_draining = True
        else:
            self.reset()

    def begin_anew(self) -> None:
        """Forget the entries in flight after all logs were restarted: they were planned for the old
        logs. Their rejection does not concern later plans.
        """
        given_up = {*self.in_flight.given_up, *self.in_flight.indexes}
        self.reset()
        self.in_flight.given_up = given_up

    def expects_rejection(self, index: int) -> bool:
        """Whether an entry was planned for logs that no longer exist."""
        return index in self.in_flight.given_up

    def proposed(self, index: int, merges: Iterable[Merge]) -> None:
        """The last plan was proposed as the entry `index`."""
        size, changes = 0, list[SpeculativeKey]()
        for merge in merges:
            partition = merge.partition
            changes.append((self._tails, partition))
            for part in merge.ranges:
                changes.append((self._places, part.input))
                size += part.stop - part.start
            extras = merge.extras
            if extras is not None and extras.mirrored is not None:
                changes.append((self._mirrored.tails, partition))
            elif merge.sequences or merge.unwrapped:
                changes += self._dedup.changes(merge)
            if extras is not None:
                changes += self._transactions.changes(partition, extras)
        self.in_flight.add(index, size, changes)

    def applied(self, index: int) -> None:
        """Entry `index` is applied; end the speculation that only this entry upheld."""
        state = self._machine.state
        self._active = self.filters if state.keys.by_partition or state.schemas.enforced else ()
        flight = self.in_flight
        if flight.applied(index) and flight.is_draining and not flight:
            self.reset()

    def closing(self, session: str) -> None:
        """A close of the session's run is proposed: plan none of its bytes any more."""
        self._closing.add(session)

    def run_changed(self, session: str) -> None:
        """A run was closed or opened: its inputs are where the state machine says."""
        self._closing.discard(session)
        for entry in self._machine.state.sessions.inputs_of(session):
            self._places.pop(entry.number, None)
            self.damaged.pop(entry.number, None)

    def place(self, entry: Input) -> SessionPosition:
        """Up to where an input is planned."""
        return self._places.get(entry.number) or entry.place

    def plan(
        self,
        available: Mapping[int, SessionPosition],
        source: SessionBytes,
        *,
        term: int,
        now_ms: int,
    ) -> list[Merge]:
        """The next instructions, at most one for each partition; empty if there is nothing to
        merge. An input that cannot be read, or not sliced, is left out from then on.
        """
        limits = self._limits
        most = limits.entry_bytes, limits.entry_ranges, limits.entry_sequences, limits.entry_runs
        budget = EntryBudget(*most)
        drafts: dict[int, Draft] = {}
        for entry, place in self._in_turn(available):
            if budget.is_spent:
                break
            draft = drafts.get(entry.partition)
            if draft is None:
                draft = drafts[entry.partition] = self._draft(entry.partition, now_ms)
            if draft.left.asked and draft.left.puts_off(entry.number):
                continue
            try:
                self._take(entry, (place, available[entry.number]), source, draft, budget)
            except LogFormatError as error:  # one input's trouble is not the others'
                self.damaged[entry.number] = str(error)
        state = self._machine.state
        lost, deciding = state.placement.recovered, self.cluster.state.transactions.deciding
        if any((deciding, lost, state.mirrors.owed, self.forgotten)):
            for partition, ends in self._transactions.take_markers():
                drafts.setdefault(partition, self._draft(partition, now_ms)).end(ends)
        return [
            self._finish(draft, term)
            for draft in drafts.values()
            if (draft.ranges, draft.ends) != ([], [])
        ]

    # --- choosing ---------------------------------------------------------------------------------

    def _in_turn(
        self, available: Mapping[int, SessionPosition]
    ) -> Sequence[tuple[Input, SessionPosition]]:
        """Inputs with something new, and up to where they are planned, starting behind the one that
        was first last time.
        """
        ready: list[tuple[Input, SessionPosition]] = []
        inputs, transfers = self._machine.state.sessions.inputs, self._machine.state.transfers
        for number, reach in available.items():
            entry = inputs.get(number)
            if entry is None or entry.session in self._closing or number in self.damaged:
                continue
            if transfers.passing is not None and transfers.is_on_its_way(entry.partition):
                continue
            place = self.place(entry)
            if reach > place and self._machine.state.sessions.takes(entry.session):
                ready.append((entry, place))
        if not ready:
            return ready
        self._turn = (self._turn + 1) % len(ready)
        return ready[self._turn :] + ready[: self._turn]

    def plan_stage(
        self, staged: Iterable[tuple[int, Sequence[Range]]], *, term: int, now_ms: int
    ) -> list[Merge]:
        """Instructions that merge all of these ranges, by partition, each at most as large as any
        other. Whoever proposes them as one entry says so by `proposed`, or calls `drain`.
        """
        merges = []
        for partition, ranges in staged:
            draft, size = self._draft(partition, now_ms), 0
            for part in ranges:
                is_full = len(draft.ranges) >= self._limits.entry_ranges
                if draft.ranges and (is_full or size + part.size > self._limits.entry_bytes):
                    merges.append(self._finish(draft, term))
                    draft, size = self._draft(partition, now_ms), 0
                draft.add(part)
                self._places[part.input] = SessionPosition(part.run, part.roll, part.stop)
                size += part.size
            merges.append(self._finish(draft, term))
        return merges

    def _draft(self, partition: int, now_ms: int) -> Draft:
        tail = self._tails.get(partition)
        if tail is None:
            known: Partition = self._machine.state.partitions.by_number[partition]
            tail = Tail(
                known.next_offset, known.segment_bytes, known.segment_started_ms, known.append_ms
            )
        draft = Draft(partition, tail, tail.next_offset)
        draft.append_ms = max(tail.append_ms, now_ms)
        draft.most_bytes = self._most_bytes(draft) if self._active else self._limits.input_bytes
        return draft

    def _take(
        self,
        entry: Input,
        reach: tuple[SessionPosition, SessionPosition],
        source: SessionBytes,
        draft: Draft,
        budget: EntryBudget,
    ) -> None:
        """Plan one input's share of the entry: what lies between two positions."""
        share = full_share = min(draft.most_bytes, budget.bytes)
        place, limit = reach
        while share > 0 and not budget.is_spent and place.run == limit.run and place < limit:
            stop = (
                limit.byte
                if place.roll == limit.roll
                else source.sealed_length(entry.number, place)
            )
            if stop is None:
                break
            if place.byte >= stop:
                place = SessionPosition(place.run, place.roll + 1, 0)
                continue
            ranges, learnt, runs = len(draft.ranges), draft.learnt, draft.left.numbers
            size = draft.size
            data, scan = self._read(entry, place, min(share, stop - place.byte), source)
            if not data and share == full_share:
                data, scan = self._read_one(entry, place, stop, source)
            taken = self._take_batches(entry, place, (data, scan), draft, source)
            if taken == 0:
                break
            cost = max(taken, draft.size - size)  # what was compressed is merged unpacked
            share -= cost
            learnt, runs = draft.learnt - learnt, draft.left.numbers - runs
            budget.charge(cost, len(draft.ranges) - ranges, learnt, runs)
            place = SessionPosition(place.run, place.roll, place.byte + taken)
            self._places[entry.number] = place

    def _read(
        self, entry: Input, place: SessionPosition, size: int, source: SessionBytes
    ) -> tuple[bytearray, kernels.Scan]:
        """Whole batches from `place`, at most `size` bytes; empty when the first one is larger."""
        data = source.read(entry.number, place, place.byte + size)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.error is not None and scan.end == 0:
            self.damaged[entry.number] = scan.error
        del data[scan.end :]
        return data, scan

    def _read_one(
        self, entry: Input, place: SessionPosition, stop: int, source: SessionBytes
    ) -> tuple[bytearray, kernels.Scan]:
        """The one batch at `place`, however large."""
        size = told_size(source.read(entry.number, place, place.byte + LENGTH_PREFIX_BYTES))
        size = min(stop - place.byte, size)
        data = source.read(entry.number, place, place.byte + size)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
        if scan.end == 0:
            self.damaged[entry.number] = scan.error or f"no whole batch at {place}"
        del data[scan.end :]
        return data, scan

    def _take_batches(
        self,
        entry: Input,
        place: SessionPosition,
        read: tuple[bytearray, kernels.Scan],
        draft: Draft,
        source: SessionBytes,
    ) -> int:
        """Plan the whole batches that were read and scanned; the bytes planned. What is planned
        whole, as one range, is kept for the merger.
        """
        data, scan = read
        mirrors = self._machine.state.mirrors
        if mirrors.topics and self._mirrored.concerns(entry):
            taken = self._mirrored.take(entry, place, bytes(data), draft)
        elif scan.has_producer or (self._active and self._filters_of(entry.partition)):
            taken = self._take_judged(entry, place, data, draft)
        else:
            if data:
                stop = place.byte + scan.end
                part = Range(entry.number, *place, stop, scan.records, scan.end, scan.digest)
                draft.add(part)
                source.checked.keep(part, data)
            return scan.end
        if taken:
            keep_taken(draft.ranges[-1], taken, read, source)
        return taken

    # --- dedup ------------------------------------------------------------------------------------

    def _take_judged(
        self, entry: Input, place: SessionPosition, data: bytearray, draft: Draft
    ) -> int:
        """Plan batches that carry a producer id, each with its verdict; alike neighbours share a
        range.
        """
        taken, filters = 0, self._filters_of(entry.partition) if self._active else ()
        most_runs = draft.left.numbers + self._limits.entry_runs
        most_size = draft.size + draft.most_bytes
        headers = kernels.batch_headers(data, 0, len(data))[: self._limits.entry_sequences]
        if filters:
            look_ahead(filters, draft, entry, bytes(data), headers)
        for header in headers:
            start, size, crc = header[0], header[1], header[9]
            facts = BatchFacts(header[2], *header[6:9], header[3] & TRANSACTIONAL != 0)
            batch = bytes(memoryview(data)[start : start + size])
            at, runs = place.byte + start, list[int]()
            try:
                if filters:
                    given = GivenBatch(entry, place.roll, at, batch, header[6])
                    (verdict, detail, output), runs = self._filter(filters, facts, draft, given)
                else:
                    verdict, detail, output = self._judge(entry, facts, draft, batch)
            except LogFormatError as error:
                if not isinstance(error, CannotJudge):
                    self.damaged[entry.number] = str(error)
                elif not isinstance(error, InputWaits):
                    look_behind(filters, draft, bytes(data[start + size :]))
                break
            where = entry.number, place.run, place.roll, at, at + size
            append_joined(draft, Range(*where, *output, crc + 1, int(verdict), detail), runs)
            taken = start + size
            if draft.left.numbers >= most_runs or draft.size >= most_size:
                break
        return taken

    def _filter(
        self, filters: Sequence[MergeFilter], facts: BatchFacts, draft: Draft, given: GivenBatch
    ) -> tuple[Judged, list[int]]:
        """As `_judge`, and which records stay, if not all do. A batch that is refused, or cannot be
        judged yet, is as if it had not come. Raises LogFormatError.
        """
        before = self._bookings(given.entry, facts, draft)
        try:
            judged = self._judge(given.entry, facts, draft, given.data)
            found = filtered(filters, judged, draft, given)
        except LogFormatError:
            before.undo()
            raise
        if found[0][0] is Verdict.REFUSED:
            before.undo()
        return found

    def _most_bytes(self, draft: Draft) -> int:
        """What may be taken of an input; nothing as long as a filter cannot judge what comes."""
        if not all(each.is_ready(draft.partition, draft.next_offset) for each in self._active):
            return 0
        is_filtered = bool(self._filters_of(draft.partition))
        return self._limits.filtered_bytes if is_filtered else self._limits.input_bytes

    def _filters_of(self, partition: int) -> Sequence[MergeFilter]:
        return [each for each in self._active if each.concerns(partition)]

    def _judge(self, entry: Input, facts: BatchFacts, draft: Draft, batch: bytes) -> Judged:
        """The verdict, its detail, and (records, bytes) that come out. Raises LogFormatError."""
        run = self._machine.state.sessions.open_run_of(entry.session)
        verdict, detail = Verdict.TAKE, -1
        if run is not None and run.dedup_id is not None and facts.producer_id >= 0:
            return self._judge_twin(entry, run, facts, draft, batch)
        if facts.producer_id >= 0:
            verdict, detail = self._judge_producer(entry, facts, draft)
        output = (facts.records, len(batch)) if verdict is Verdict.TAKE else (0, 0)
        return verdict, detail, output

    def _bookings(self, entry: Input, facts: BatchFacts, draft: Draft) -> Bookings:
        """What is booked before `_judge`."""
        run = self._machine.state.sessions.open_run_of(entry.session)
        dedup_id = "" if run is None or run.dedup_id is None else run.dedup_id
        views = self._dedup, self._transactions
        return Bookings(views, draft, entry, facts.producer_id, dedup_id)

    def _judge_twin(
        self, entry: Input, run: Run, facts: BatchFacts, draft: Draft, batch: bytes
    ) -> Judged:
        dedup_id = run.dedup_id or ""
        first = unwrap(self._dedup.last_id(entry.number, run.dedup_base or 0), facts.sequence)
        last = first + facts.records - 1
        mark = self._dedup.watermark(dedup_id, entry.partition, first)
        judged = judge_ids(mark, first, facts.records)
        output = (facts.records, len(batch)) if judged.verdict is Verdict.TAKE else (0, 0)
        if judged.verdict is Verdict.SLICE:
            output = (facts.records - judged.detail, len(slice_batch(batch, judged.detail)))
            if output[1] > HELD_BATCH_BYTES:
                raise DecompressionError(f"what is new in a batch unpacks to {output[1]} bytes")
        self._dedup.set_last_id(entry.number, last)
        draft.unwrapped[entry.number] = last
        if judged.verdict is not Verdict.DUPLICATE:
            self._dedup.set_watermark(dedup_id, entry.partition, last)
            draft.watermarks[dedup_id] = last
        return judged.verdict, judged.detail, output

    def _judge_producer(self, entry: Input, facts: BatchFacts, draft: Draft) -> tuple[Verdict, int]:
        if facts.is_transactional and entry.partition in self._machine.state.keys.by_partition:
            return Verdict.INVALID_TRANSACTION, -1
        judged = self._dedup.judge(facts, entry.partition)
        if judged.verdict is Verdict.TAKE:
            view, logs = self._transactions, self._machine.state.open_transactions.by_partition
            if facts.is_transactional or view.begun or entry.partition in logs:
                verdict = view.judge(entry.partition, facts)
                if verdict is not Verdict.TAKE:
                    return verdict, -1
            if facts.is_transactional:
                begin = view.begin(entry.partition, facts, draft.next_offset)
                draft.begins += [] if begin is None else [begin]
            last = last_sequence(facts.sequence, facts.records)
            sent = facts.producer_id, facts.epoch, facts.sequence, last
            sequence = Sequence5(*sent, draft.next_offset)
            self._dedup.add_sequence(entry.partition, sequence)
            draft.sequences.setdefault(facts.producer_id, []).append(sequence)
            draft.learnt += 1
        return judged.verdict, judged.detail

    # --- finishing --------------------------------------------------------------------------------

    def _finish(self, draft: Draft, term: int) -> Merge:
        """Resolve what remains, segment roll and append time, and move the speculative tail."""
        state, tail, size = self._machine.state, draft.tail, draft.size
        append_ms = draft.append_ms
        settings = state.topics.by_id[state.partitions.by_number[draft.partition].topic_id].settings
        limit_bytes, limit_ms = self._limits.segment_bytes, self._limits.segment_ms
        if settings:
            limit_bytes = int(settings.get(SEGMENT_BYTES, limit_bytes))
            limit_ms = _segment_ms(settings, limit_ms)
        full = tail.segment_bytes + size > limit_bytes
        old = append_ms - tail.segment_started_ms > limit_ms
        roll = tail.segment_bytes > 0 and size > 0 and (full or old)
        fresh = roll or tail.next_offset == 0
        since = tail.segment_bytes + size, tail.segment_started_ms
        segment = (size, append_ms) if fresh else since
        self._tails[draft.partition] = Tail(draft.next_offset, *segment, append_ms)
        stamp = bool(settings) and settings.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME
        more = draft.begins, draft.ends, draft.left.runs, draft.mirrored, draft.left.version, stamp
        return Merge(
            draft.partition,
            tail.next_offset,
            term + state.epochs.base + state.epochs.by_partition.get(draft.partition, 0),
            append_ms,
            roll,
            draft.ranges,
            newest(draft.sequences) if draft.learnt else [],
            list(draft.watermarks.items()),
            list(draft.unwrapped.items()),
            None if more == _PLAIN else _extras(draft, roll=roll, stamp=stamp),
        )


def _extras(draft: Draft, *, roll: bool, stamp: bool) -> MergeExtras:
    """Return what an instruction has beyond a plain one."""
    if draft.mirrored is not None:
        if roll:
            draft.mirrored.tail.segment_base = draft.base_offset
        return MergeExtras(mirrored=mirrored_part(draft.mirrored))  # the batches stay as they are
    left = draft.left
    return MergeExtras(draft.begins, draft.ends, left.runs, left.version, left.refused, stamp)


def _segment_ms(settings: Mapping[str, str], default_ms: int) -> int:
    """How long a topic's segment may grow."""
    if CLEANUP_POLICY in settings:
        return longest_segment_ms(settings, default_ms)
    return int(settings.get(SEGMENT_MS, default_ms))


def majority_place(places: Iterable[SessionPosition], voters: int) -> SessionPosition | None:
    """The highest place that a majority of `voters` has reached; None if too few have reported."""
    ranked = sorted(places, reverse=True)
    needed = voters // 2 + 1
    return ranked[needed - 1] if len(ranked) >= needed else None
