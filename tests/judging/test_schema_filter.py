"""A leader merges no record that does not fit: what the planner leaves out, and tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from samelog.config.authorisation import NODE_PREFIX
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.dedup import dedup_producer_id
from samelog.format.transactions import TRANSACTIONAL
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.refusing import schema_filter
from samelog.sequencer.refusing.schema_filter import REFUSED_MOST, SchemaFilter
from samelog.sequencer.refusing.verdicts import Verdicts
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, MergeExtras, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.schemas import SetSchemaCommand
from samelog.sequencer.state.tables.sessions import ForgetRefused, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import AlterTopicCommand, CreateTopicCommand
from samelog.sequencer.state.tables.transactions import AddToTransaction, InitProducer
from samelog.typed.judging import FITS, BatchMisfits
from samelog.typed.versions import SCHEMA_HEADER
from tests.judging.judges import InlineJudge
from tests.sequencer.test_planner import TERM, Bytes
from tests.typed.known import schema_text

NODE = {"schema.enforce": "node"}
FIRST, SECOND = schema_text("a int32"), schema_text("a int64")
GOOD, BAD, WIDE = b'{"a":1}', b'{"a":"x"}', b'{"a":%d}' % 2**40
PRODUCER = 77


def batch(*values: bytes | None, producer: int = -1, sequence: int = -1) -> bytes:
    return kernels.build_batches(
        list(values),
        keys=[b"%d" % number for number in range(len(values))],
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )


class World:
    """A topic that is checked, sessions, a planner, and what is merged."""

    def __init__(self, sessions: str = "a", text: str = FIRST, **settings: str) -> None:
        self.machine = StateMachine()
        self.apply(CreateTopicCommand("t", "ticks", 1, NODE | settings, 0))
        self.apply(SetSchemaCommand("t", 0, text, 1))
        self.judge = InlineJudge()
        self.work: list[Coroutine[Any, Any, None]] = []
        self.cluster = self.group_0()
        self.is_cut_off = False
        self.schemas = SchemaFilter(
            self.machine,
            self.judge,
            self.work.append,
            cluster=self.cluster,
            catch_up=self._catch_up,
        )
        self.asked_for: list[int] = []
        self.schemas.plan_inputs = self.asked_for.extend
        self.planner = Planner(self.machine, PlannerLimits())
        self.keys = KeyFilter(self.machine, lambda number: False)
        self.planner.filters = [self.schemas, self.keys]
        self.planner.reset()
        self.bytes = Bytes()
        self.index = 0
        self.merged: list[Merge] = []
        self.extras: list[MergeExtras] = []
        self.values: list[bytes | None] = []
        for name in sessions:
            self.open(name)

    def group_0(self) -> StateMachine:
        """The state of the cluster."""
        return self.machine

    async def _catch_up(self) -> None:
        """What group 0 has is here, unless nobody leads it."""
        if self.is_cut_off:
            raise TimeoutError

    def apply(self, command: Any) -> Any:
        outcome = self.machine.apply(command)
        assert not isinstance(outcome, Rejection), outcome
        return outcome

    def open(self, name: str, identity: str = "i", dedup_id: str | None = None) -> None:
        base = None if dedup_id is None else 0
        self.apply(OpenRunCommand(name, name, identity, 0, name, dedup_id, base))
        self.apply(OpenInputCommand(name, "t", 0))

    def put(self, number: int, *batches: bytes) -> None:
        self.bytes.put(number, b"".join(batches))

    def check(self) -> None:
        """What was asked is answered."""

        async def main(work: list[Coroutine[Any, Any, None]]) -> None:
            await asyncio.gather(*work)

        while self.work:
            work, self.work[:] = [*self.work], []
            asyncio.run(main(work))

    def plan(self) -> list[Merge]:
        ends = self.bytes.ends()
        merges = self.planner.plan(ends, self.bytes, term=TERM, now_ms=1000)
        if merges:
            self.index += 1
            self.planner.proposed(self.index, merges)
        return merges

    def commit(self, merges: list[Merge]) -> None:
        for merge in merges:
            self.apply(merge)
            assert merge.extras is not None
            assert merge.extras.version is not None
            self.merged.append(merge)
            self.extras.append(merge.extras)
            self._execute(merge, merge.extras)
        self.planner.applied(self.index)

    def _execute(self, merge: Merge, extras: MergeExtras) -> None:
        """As every node does, which knows no schema."""
        for part in merge.ranges:
            data: bytes | bytearray = self.bytes.files[part.input, part.run, part.roll]
            data = data[part.start : part.stop]
            if part.verdict == Verdict.LEAVE_OUT:
                data = kernels.leave_out(data, extras.left_out[part.detail], decompress)
            elif part.verdict == Verdict.SLICE:
                data = kernels.slice_batch(bytes(data), part.detail, decompress)
            elif part.verdict != Verdict.TAKE:
                continue
            assert len(data) == part.size
            found = kernels.decode_records(data, 0, len(data), "t", 0, decompress)
            self.values += [record.value for record in found]

    def run_dry(self) -> None:
        while True:
            merges = self.plan()
            if merges:
                self.commit(merges)
            elif self.work:
                self.check()
            else:
                return


def test_nothing_is_planned_before_it_is_checked() -> None:
    world = World()
    world.put(1, batch(GOOD, BAD, GOOD), batch(GOOD))
    assert world.plan() == []
    assert world.plan() == []
    assert world.judge.asked == 0
    world.check()
    assert (world.judge.asked, world.asked_for) == (2, [1])
    world.commit(world.plan())
    (merge,), (extras,) = world.merged, world.extras
    assert (extras.version, extras.left_out) == (1, [[1, 1]])
    assert merge.next_offset == 3
    assert world.values == [GOOD, GOOD, GOOD]


def test_what_is_refused_is_told_in_the_instruction() -> None:
    world = World()
    first = batch(GOOD)
    world.put(1, first, batch(GOOD, BAD, b"nothing"))
    world.run_dry()
    (refused,) = [each for extras in world.extras for each in extras.refused]
    assert (refused.input, refused.place, refused.runs) == (1, (0, 0, len(first)), (1, 2))
    assert [(each.record, each.column, each.expected) for each in refused.told] == [
        (1, "a", "int32"),
        (2, "", "a JSON object"),
    ]
    assert world.machine.state.sessions.inputs[1].refused == [refused]
    assert world.schemas.refused_records == 2


def test_sessions_that_are_not_checked_yet_hold_nobody_up() -> None:
    world = World("ab")
    world.put(1, batch(GOOD))
    world.plan()
    work = world.work.pop()
    world.put(2, batch(GOOD), batch(BAD))
    assert world.plan() == []
    world.check()
    world.commit(world.plan())
    assert {part.input for part in world.merged[0].ranges} == {2}
    work.close()


def test_a_kafka_clients_batch_is_refused_as_a_whole_and_teaches_no_sequence() -> None:
    world = World("")
    world.open("kafka-0", identity=f"{NODE_PREFIX}n0")
    world.put(1, batch(GOOD, BAD, producer=PRODUCER, sequence=0))
    world.run_dry()
    (part,) = world.merged[0].ranges
    assert (part.verdict, part.records, part.size) == (Verdict.REFUSED, 0, 0)
    assert world.extras[0].refused[part.detail].told[0].record == 1
    assert world.merged[0].sequences == []
    assert world.machine.state.sessions.inputs[1].refused == [], "its client has its answer"
    world.put(1, batch(GOOD, BAD, producer=PRODUCER, sequence=0))  # the answer was lost
    world.put(1, batch(GOOD, GOOD, producer=PRODUCER, sequence=0))
    world.put(1, batch(GOOD, GOOD, producer=PRODUCER, sequence=0))
    world.put(1, batch(BAD), batch(GOOD, BAD))  # of a producer that is not idempotent
    world.run_dry()
    found = [part.verdict for merge in world.merged for part in merge.ranges]
    assert found == [
        *[Verdict.REFUSED] * 2,
        Verdict.TAKE,
        Verdict.DUPLICATE,
        *[Verdict.REFUSED] * 2,
    ]
    assert world.values == [GOOD, GOOD]


def test_what_was_merged_stays_merged_when_the_schema_is_another_one() -> None:
    world = World("", **{"schema.compatibility": "none"})
    world.open("kafka-0", identity=f"{NODE_PREFIX}n0")
    sent = batch(GOOD, producer=PRODUCER, sequence=0)
    world.put(1, sent)
    world.run_dry()
    world.apply(SetSchemaCommand("t", 1, schema_text("b string"), 2))
    world.put(1, sent)
    world.run_dry()
    (part,) = world.merged[-1].ranges
    assert (part.verdict, part.detail) == (Verdict.DUPLICATE, 0)


def transactional(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[22] |= TRANSACTIONAL
    changed[17:21] = kernels.crc32c(memoryview(changed)[21:]).to_bytes(4, "big")
    return bytes(changed)


def test_a_refused_batch_begins_no_transaction() -> None:
    world = World("")
    world.open("kafka-0", identity=f"{NODE_PREFIX}n0")
    world.apply(InitProducer("tx", 1000, -1, -1, PRODUCER, 0))
    world.apply(AddToTransaction("tx", PRODUCER, 0, [1], [], 2))
    bad = transactional(batch(BAD, producer=PRODUCER, sequence=0))
    good = transactional(batch(GOOD, producer=PRODUCER, sequence=0))
    world.put(1, bad, good)
    world.run_dry()
    verdicts = [part.verdict for merge in world.merged for part in merge.ranges]
    assert verdicts == [Verdict.REFUSED, Verdict.TAKE]
    begins = [begin for extras in world.extras for begin in extras.begins]
    assert [begin.offset for begin in begins] == [0]


def test_a_version_that_came_meanwhile_has_it_judged_again() -> None:
    world = World()
    world.put(1, batch(WIDE))
    world.plan()
    world.check()
    late = world.plan()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    assert world.machine.apply(late[0]) == Rejection("UNCHECKED", "judged by version 1, there is 2")
    world.planner.reset()
    world.run_dry()
    assert (world.extras[-1].version, world.values) == (2, [WIDE])


def test_an_instruction_that_names_no_version_is_rejected() -> None:
    world = World()
    world.put(1, batch(BAD))
    world.apply(AlterTopicCommand("t", {"schema.enforce": "off"}, []))
    world.planner.reset()
    (plain,) = world.plan()
    assert plain.extras is None
    world.apply(AlterTopicCommand("t", NODE, []))
    outcome = world.machine.apply(plain)
    assert isinstance(outcome, Rejection)
    assert outcome.code == "UNCHECKED"
    world.planner.reset()
    world.run_dry()
    assert world.values == []


def test_a_topic_without_a_schema_takes_everything() -> None:
    world = World()
    world.apply(CreateTopicCommand("u", "any", 1, NODE, 0))
    world.apply(OpenInputCommand("a", "u", 0))
    world.put(2, batch(BAD))
    world.run_dry()
    assert [extras.version for extras in world.extras] == [0]
    assert world.judge.asked == 0


def test_a_twin_moves_on_behind_what_is_refused() -> None:
    """T7: what the other one brings of it later is late, too."""
    world = World("")
    producer = dedup_producer_id("feed")
    for name in "ab":
        world.open(name, dedup_id="feed")

    def numbered(*values: bytes, first: int) -> bytes:
        return batch(*values, producer=producer, sequence=first)

    world.put(1, numbered(GOOD, BAD, GOOD, first=0))
    world.run_dry()
    assert world.machine.state.watermarks.by_dedup_id["feed"][1] == 2
    world.put(2, numbered(GOOD, BAD, GOOD, GOOD, first=0))
    world.run_dry()
    assert world.values == [GOOD, GOOD, GOOD]
    assert [each.input for extras in world.extras for each in extras.refused] == [1]


def test_what_is_refused_has_no_key_that_counts() -> None:
    world = World(**{"dedup.key": "first"})
    world.put(1, batch(BAD), batch(GOOD))  # of the same key
    world.run_dry()
    assert world.values == [GOOD]


def test_more_is_refused_only_when_what_was_before_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_filter, "LOOK_S", 0.001)
    world = World("ab")
    rounds = REFUSED_MOST // 64 + 4
    for _ in range(rounds):
        world.put(1, batch(BAD))
    world.put(1, batch(GOOD))
    world.put(2, batch(GOOD))
    waiting: list[Coroutine[Any, Any, None]] = []
    for _ in range(2 * rounds):
        merges = world.plan()
        if merges:
            world.commit(merges)
            continue
        waiting += [each for each in world.work if "_plan_when_kept" in str(each)]
        world.work[:] = [each for each in world.work if each not in waiting]
        if not world.work:
            break
        world.check()
    refused = world.machine.state.sessions.inputs[1].refused
    assert sum(each.weight for each in refused) <= REFUSED_MOST + 128
    assert world.values == [GOOD], "the other session goes on"
    place = refused[-1].place
    world.apply(ForgetRefused(1, *place))
    assert world.machine.state.sessions.inputs[1].refused == []
    world.work[:] = waiting
    world.check()
    assert world.asked_for[-1] == 1
    world.run_dry()
    assert world.values == [GOOD, GOOD]
    assert len([each for extras in world.extras for each in extras.refused]) == rounds


def test_nothing_is_taken_unchecked_while_nobody_can_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_filter, "AGAIN_AFTER_S", 0.0)
    world = World()
    given_away: list[bool] = []
    world.schemas.hand_over = lambda: given_away.append(True)
    world.judge.why_not, world.judge.is_for_long = "pyarrow is not installed", True
    world.put(1, batch(GOOD))
    for _ in range(3):
        assert world.plan() == []
        world.check()
    assert given_away == [True]
    (trouble,) = world.schemas.troubles
    assert trouble == "records of 'ticks' cannot be checked: pyarrow is not installed"
    world.judge.why_not = ""
    world.run_dry()
    assert (world.values, world.schemas.troubles) == ([GOOD], [])


def test_a_topic_is_checked_from_now_on_only_when_nothing_staged_waits() -> None:
    world = World("")
    world.apply(AlterTopicCommand("t", {"schema.enforce": "off"}, []))
    world.apply(OpenRunCommand("s", "s", "i", 0, "s", None, None, "stage"))
    world.apply(OpenInputCommand("s", "t", 0))
    outcome = world.machine.apply(AlterTopicCommand("t", NODE, []))
    assert isinstance(outcome, Rejection)
    assert "staged" in outcome.message


def test_a_snapshot_has_what_was_refused_and_which_topics_are_checked() -> None:
    world = World()
    world.put(1, batch(BAD))
    world.run_dry()
    read = StateMachine.decode(world.machine.encode())
    assert read.state.schemas.enforced == {"t": None}
    assert read.state.sessions.inputs[1].refused == world.machine.state.sessions.inputs[1].refused


def test_a_verdict_is_of_the_very_bytes() -> None:
    """Other bytes with the same CRC and length are another batch."""
    known, data, misfits = Verdicts(), batch(BAD), BatchMisfits([0], [])
    other = data[:-1] + bytes([data[-1] ^ 1])
    assert known.begin(1, (1, 1), [data]) == [data]
    assert known.begin(1, (1, 1), [data]) == []
    known.end(1, (1, 1), [data], [misfits])
    assert known.find(1, (1, 1), data) is misfits
    assert known.find(1, (1, 1), other) is None
    assert known.find(1, (2, 1), data) is None
    assert known.find(1, (1, 2), data) is None
    assert known.find(2, (1, 1), data) is None
    known.end(1, (1, 1), [other], [FITS])
    assert known.find(1, (1, 1), other) is FITS


def test_old_versions_count_as_long_as_the_topic_says() -> None:
    world = World()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    old, new = marked(GOOD, 1), marked(WIDE, 2)
    world.put(1, old, new)
    world.run_dry()
    assert world.values == [GOOD, WIDE]
    world.apply(AlterTopicCommand("t", {"schema.accept": "2"}, []))
    world.put(1, old, new)
    world.run_dry()
    assert world.values == [GOOD, WIDE, WIDE]
    (refused,) = [each for extras in world.extras for each in extras.refused]
    assert refused.told[0].expected == "a record of version 2 or newer"


def test_the_newest_version_counts_whatever_the_topic_says() -> None:
    world = World(**{"schema.accept": "7"})
    world.put(1, marked(GOOD, 1))
    world.run_dry()
    assert world.values == [GOOD]


def test_a_verdict_by_an_older_setting_is_none() -> None:
    world = World()
    world.apply(SetSchemaCommand("t", 1, SECOND, 2))
    world.put(1, marked(GOOD, 1))
    world.plan()
    world.check()
    world.apply(AlterTopicCommand("t", {"schema.accept": "2"}, []))
    assert world.plan() == []
    world.run_dry()
    assert world.values == []


def marked(value: bytes, version: int) -> bytes:
    """A batch of one record with a mark."""
    return kernels.build_batches(
        [value],
        headers=[[(SCHEMA_HEADER, b"%d" % version)]],
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
    )


def test_records_of_compacted_topics_are_checked_and_tombstones_fit() -> None:
    world = World(**{"cleanup.policy": "compact"})
    world.put(1, batch(GOOD, None, BAD))
    world.run_dry()
    assert world.values == [GOOD, None]
