"""What a leader leaves out because of keys: nothing twice, nothing for what is not merged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.batch import leave_out
from samelog.format.compression import decompress
from samelog.format.errors import DecompressionError
from samelog.runtime.at_work import AtWork
from samelog.sequencer.keys import partition_keys
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.lookups import KeyLookups
from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.sequencer.merge import filters
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Merge, Verdict
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.keys import TellKeys
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import AlterTopicCommand, CreateTopicCommand
from samelog.sequencer.state.tables.transactions import AddToTransaction, InitProducer
from samelog.store.keys.key_store import NoKeys, stored_keys
from tests.examples import at_most
from tests.keys.looking import DiskKeys, at_once
from tests.patience import PATIENCE_S
from tests.sequencer.test_planner import TERM, Bytes

KEYED = {"dedup.key": "first"}
Key = bytes | None


def batch(*keys: Key, producer: int = -1, sequence: int = -1) -> bytes:
    return kernels.build_batches(
        [b"v" if key is None else b"v" + key for key in keys],
        keys=list(keys),
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )


class World:
    """A keyed topic, sessions, a planner, and the keys that were merged, as plain lists."""

    def __init__(self, sessions: str = "ab", **more: str) -> None:
        self.machine = StateMachine()
        made = self.machine.apply(CreateTopicCommand("t", "trades", 1, KEYED | more, 0))
        assert not isinstance(made, Rejection), made
        self.bytes = Bytes()
        self.planner = Planner(self.machine, PlannerLimits())
        self.keys = KeyFilter(self.machine, lambda number: False)
        self.planned: list[int] = []
        self.lookups = KeyLookups(self.keys, at_once, self.planned.append, AtWork())
        self.planner.filters = [self.keys]
        self.planner.reset()  # it looks whether there are such topics
        self.index = 0
        self.now_ms = 1000
        self.log: list[Key] = []
        for name in sessions:
            self.machine.apply(OpenRunCommand(name, name, "i", 0, name, None, None))
            self.machine.apply(OpenInputCommand(name, "t", 0))

    def plan(self) -> list[Merge]:
        ends, now = self.bytes.ends(), self.now_ms
        merges = self.planner.plan(ends, self.bytes, term=TERM, now_ms=now)
        if merges:
            self.index += 1
            self.planner.proposed(self.index, merges)
        return merges

    def commit(self, merges: list[Merge], index: int | None = None) -> None:
        for merge in merges:
            outcome = self.machine.apply(merge)
            assert not isinstance(outcome, Rejection), outcome
            self.execute(merge)
        self.planner.applied(self.index if index is None else index)

    def execute(self, merge: Merge) -> None:
        """Without any index."""
        for part in merge.ranges:
            data = self.bytes.files[part.input, part.run, part.roll][part.start : part.stop]
            if part.verdict == Verdict.LEAVE_OUT:
                assert merge.extras is not None
                data = bytes(leave_out(data, merge.extras.left_out[part.detail]))
            elif part.verdict != Verdict.TAKE:
                continue
            assert len(data) == part.size
            self.log += kernels.keys_of(data, 0, len(data), decompress)

    def read(self) -> None:
        """The keys of what is merged are read from the log, as each node does."""
        known = self.keys.partitions.setdefault(1, PartitionKeys(NoKeys()))
        known.read(stored_keys(self.log[known.read_to :]))

    def store(self) -> None:
        """The index gets what was read."""
        known = self.keys.partitions[1]
        piece = known.due(len(self.log))
        if piece is not None:
            known.store.advance(piece.entries, piece.stop, piece.sums)
            known.stored(piece)

    def look_up(self) -> bool:
        """Whether there was anything to be looked up; it is, as if in a thread."""
        known = self.keys.partitions[1]
        was_asking, index = known.is_asking, known.store
        if was_asking:
            if isinstance(index, DiskKeys):
                index.may_wait = True
            asyncio.run(self.lookups.ask(known))
            if isinstance(index, DiskKeys):
                index.may_wait = False
        return was_asking

    def run_dry(self) -> None:
        while merges := self.plan():
            self.commit(merges)

    def run_dry_from_disk(self) -> None:
        while True:
            self.run_dry()
            if not self.look_up():
                return

    def put(self, number: int, *keys: Key) -> None:
        self.bytes.put(number, batch(*keys))


def test_the_first_record_of_a_key_stays_whichever_session_brings_it() -> None:
    world = World()
    world.put(1, b"a", b"b", b"a")
    world.put(2, b"b", b"c")
    world.run_dry()
    assert sorted(world.log, key=str) == [b"a", b"b", b"c"]
    world.read()
    world.put(2, b"c", b"d", b"a")
    world.put(1, b"d")
    world.run_dry()
    assert sorted(world.log, key=str) == [b"a", b"b", b"c", b"d"]


def test_records_without_a_key_pass() -> None:
    world = World("a")
    world.put(1, None, b"a", None, b"a", None)
    world.run_dry()
    assert world.log == [None, b"a", None, None]


def test_what_is_proposed_counts_until_it_may_be_lost() -> None:
    world = World("a")
    world.put(1, b"a", b"b")
    first = world.plan()
    world.put(1, b"a", b"c")
    second = world.plan()
    assert [merge.next_offset - merge.base_offset for merge in (*first, *second)] == [2, 1]
    world.planner.reset()  # neither was committed
    world.run_dry()
    assert world.log == [b"a", b"b", b"c"]


def test_a_new_leader_plans_nothing_before_it_knows_all_keys() -> None:
    world = World("a")
    world.put(1, b"a", b"b")
    world.run_dry()
    world.planner.reset()
    world.put(1, b"a", b"c")
    assert world.plan() == []
    world.read()
    world.run_dry()
    assert world.log == [b"a", b"b", b"c"]


def test_what_fails_behind_the_judgement_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.put(1, b"a", b"b")
    world.run_dry()
    original: Callable[..., bytearray] = filters._left_of

    def fails(*_: object) -> bytearray:
        raise DecompressionError("too much")

    monkeypatch.setattr(filters, "_left_of", fails)
    world.put(1, b"a", b"c")
    assert world.plan() == []
    assert 1 in world.planner.damaged
    monkeypatch.setattr(filters, "_left_of", original)
    world.put(2, b"c")
    world.run_dry()
    assert world.log == [b"a", b"b", b"c"]


def test_a_producers_retry_is_known_by_its_sequences_as_sent() -> None:
    world = World("ab")
    world.put(1, b"a")
    world.run_dry()
    sent = batch(b"a", b"b", producer=7, sequence=0)
    world.bytes.put(2, sent)
    world.run_dry()
    assert [(each.first, each.last) for each in world.machine.state.producers.batches[7][1]] == [
        (0, 1)
    ]
    world.bytes.put(2, sent)
    (merge,) = world.plan()
    assert [part.verdict for part in merge.ranges] == [Verdict.DUPLICATE]
    world.commit([merge])
    assert world.log == [b"a", b"b"]


def test_transactional_batches_are_refused() -> None:
    """Also within a transaction that has the partition, as one of before an upgrade may."""
    world = World("a")
    world.machine.apply(InitProducer("x", 1000, -1, -1, 7, 0))
    world.machine.apply(AddToTransaction("x", 7, 0, [1], [], 5))
    data = bytearray(batch(b"a", producer=7, sequence=0))
    data[22] |= 16
    data[17:21] = kernels.crc32c(data[21:]).to_bytes(4, "big")
    world.bytes.put(1, bytes(data))
    (merge,) = world.plan()
    assert [part.verdict for part in merge.ranges] == [Verdict.INVALID_TRANSACTION]


# --- horizons -----------------------------------------------------------------------------------


def test_a_key_counts_for_so_many_records() -> None:
    world = World("a", **{"dedup.key.horizon": "3"})
    for key in (b"a", b"b", b"c", b"a", b"d", b"a", b"e"):
        world.put(1, key)
        world.run_dry()
    assert world.log == [b"a", b"b", b"c", b"d", b"a", b"e"]
    assert world.machine.state.keys.by_partition[1].floor == 3


def test_a_key_counts_for_so_long() -> None:
    world = World("a", **{"dedup.key.horizon": "64s"})
    world.put(1, b"a")
    world.run_dry()
    for seconds in (30, 33):
        world.now_ms += seconds * 1000
        world.put(1, b"a", b"%d" % seconds)
        world.run_dry()
    assert world.log == [b"a", b"30", b"33"]
    for number in range(2):
        world.now_ms += 3000
        world.put(1, b"x%d" % number)
        world.run_dry()
    world.put(1, b"a")
    world.run_dry()
    assert world.log == [b"a", b"30", b"33", b"x0", b"x1", b"a"]


def test_a_key_expires_on_a_quiet_topic() -> None:
    world = World("a", **{"dedup.key.horizon": "5s"})
    for seconds in (1, 21, 42):
        world.now_ms = seconds * 1000
        world.put(1, b"a")
        world.run_dry()
    assert world.log == [b"a", b"a", b"a"]


@settings(max_examples=at_most(100))
@given(st.lists(st.integers(1, 90_000), max_size=20))
def test_a_key_counts_for_its_horizon_and_at_most_a_64th_longer(pauses_ms: list[int]) -> None:
    """One key, sent again after any pauses."""
    world, counted_ms = World("a", **{"dedup.key.horizon": "64s"}), -1
    for pause in [0, *pauses_ms]:
        world.now_ms += pause
        before = len(world.log)
        world.put(1, b"a")
        world.run_dry()
        is_new, age = len(world.log) > before, world.now_ms - counted_ms
        if counted_ms >= 0:
            assert is_new >= (age > 64_000 + 1_000), age
            assert is_new <= (age >= 64_000), age
        counted_ms = world.now_ms if is_new else counted_ms


def test_what_is_proposed_and_not_committed_counts_whatever_the_horizon() -> None:
    world = World("a", **{"dedup.key.horizon": "5s"})
    world.put(1, b"a")
    world.run_dry()
    world.now_ms += 20_000
    world.put(1, b"a")
    under_way = world.plan()
    world.put(1, b"a")
    world.now_ms += 1_000
    behind, index = world.plan(), world.index
    world.commit(under_way, index - 1)
    world.commit(behind, index)
    assert world.log == [b"a", b"a"]


@settings(max_examples=at_most(50))
@given(
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), min_size=1), max_size=8),
    st.sampled_from(["unlimited", "1", "3", "5"]),
    st.integers(0, 3),
)
def test_the_log_is_what_the_plain_rule_says(
    sent: list[list[Key]], horizon: str, reads: int
) -> None:
    world = World("a", **{"dedup.key.horizon": horizon})
    reach = None if horizon == "unlimited" else int(horizon)
    expected: list[Key] = []
    for number, keys in enumerate(sent):
        world.put(1, *keys)
        world.run_dry()
        if number % 3 == reads:
            world.read()
        for key in keys:
            since = 0 if reach is None else max(0, len(expected) - reach)
            if key is None or key not in expected[since:]:
                expected.append(key)
    assert world.log == expected


# --- lookups beside the event loop --------------------------------------------------------------


def on_disk(sessions: str, *keys: bytes) -> World:
    """A world whose index has these, on a disk only."""
    world = World(sessions)
    world.put(1, *keys)
    world.run_dry()
    world.read()
    world.keys.partitions[1].store = DiskKeys()
    world.store()
    return world


def test_the_event_loop_never_waits_for_a_disk() -> None:
    """What all sessions send is asked for together, and planned when the index has said it."""
    world = on_disk("ab", b"a")
    known = world.keys.partitions[1]
    world.put(1, b"a", b"b")
    world.put(1, b"c")
    world.put(2, b"d", b"a")
    assert world.plan() == []
    assert known.asked == {b"\x00a", b"\x00b", b"\x00c", b"\x00d"}
    assert not world.keys.is_ready(1, 1)
    assert world.plan() == []
    assert world.look_up()
    world.run_dry_from_disk()
    assert sorted(world.log, key=str) == [b"a", b"b", b"c", b"d"]
    assert not world.planner.damaged


def test_what_follows_a_batch_that_is_put_off_does_not_overtake_it() -> None:
    world = on_disk("a", b"a")
    for keys in ((None,), (b"b",), (None,), (b"a", b"c"), (None,)):
        world.put(1, *keys)
    world.run_dry_from_disk()
    assert world.log == [b"a", None, b"b", None, b"c", None]


def test_few_lookups_are_enough_for_many_batches() -> None:
    world = on_disk("abcd", b"a")
    for number in range(400):
        world.put(1 + number % 4, b"%d" % number)
    lookups = 0
    while world.look_up() or not lookups:
        lookups += 1
        world.run_dry()
    assert len(world.log) == 401
    assert lookups < 10


def test_what_an_index_gets_while_it_is_asked_counts() -> None:
    """Another leader has merged the key meanwhile; before or after the answer is here."""
    for is_late in (False, True):
        known, key = PartitionKeys(DiskKeys()), b"\x00k"
        assert known.find([key]) is None
        known.ask([key])
        if is_late:
            known.told({})
        known.read([key])
        piece = known.due(1)
        assert piece is not None
        known.stored(piece)
        known.told({})
        assert known.find([key]) == {key: 0}


def test_answers_that_nobody_takes_do_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_keys, "ANSWERED_KEYS", 2)
    known = PartitionKeys(DiskKeys())
    for keys in ([b"a", b"b", b"c"], [b"d"]):
        known.ask(keys)
        known.told({})
    assert known.find([b"d"]) is not None
    assert known.find([b"a"]) is None


def test_no_partition_waits_for_what_another_one_asks() -> None:
    async def body() -> None:
        gate, planned = asyncio.Event(), asyncio.Queue[int]()
        slow, fast = PartitionKeys(DiskKeys()), PartitionKeys(DiskKeys())

        async def in_thread(work: Callable[..., Any], /, *arguments: Any) -> Any:
            if getattr(work, "__self__", None) is slow.store:
                await gate.wait()
            return {}

        keys = KeyFilter(StateMachine(), lambda number: True)
        keys.partitions.update({1: slow, 2: fast})
        for known in (slow, fast):
            known.ask([b"\x00k"])
        lookups = KeyLookups(keys, in_thread, planned.put_nowait, AtWork())
        running = asyncio.create_task(lookups.run())
        assert await planned.get() == 2
        assert slow.is_asking
        gate.set()
        assert await planned.get() == 1
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(asyncio.wait_for(body(), PATIENCE_S))


@settings(max_examples=at_most(50))
@given(
    st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", None]), min_size=1), max_size=8),
    st.sampled_from(["unlimited", "1", "3", "5"]),
    st.integers(0, 3),
)
def test_an_index_on_disk_says_what_one_in_memory_does(
    sent: list[list[Key]], horizon: str, stored: int
) -> None:
    logs = []
    for index in (NoKeys(), DiskKeys()):
        world = World("a", **{"dedup.key.horizon": horizon})
        world.keys.partitions[1] = PartitionKeys(index)
        for number, keys in enumerate(sent):
            world.put(1, *keys)
            world.run_dry_from_disk()
            if isinstance(index, DiskKeys) and number % 3 == stored:
                world.read()
                world.store()
        logs.append(world.log)
    assert logs[0] == logs[1]


# --- the state ----------------------------------------------------------------------------------


def test_settings_that_do_not_go_together_are_refused() -> None:
    machine = StateMachine()
    both = KEYED | {"cleanup.policy": "compact"}
    assert isinstance(machine.apply(CreateTopicCommand("t", "a", 1, both, 0)), Rejection)
    machine.apply(CreateTopicCommand("t", "a", 1, KEYED, 0))
    machine.apply(CreateTopicCommand("u", "b", 1, {}, 0))
    for refused in (
        AlterTopicCommand("t", {"cleanup.policy": "compact"}, []),
        AlterTopicCommand("t", {"dedup.key": "none"}, []),
        AlterTopicCommand("t", {}, ["dedup.key"]),
        AlterTopicCommand("u", {"dedup.key": "first"}, []),
    ):
        assert isinstance(machine.apply(refused), Rejection), refused
    changed = AlterTopicCommand("t", {"dedup.key.horizon": "7d"}, [])
    assert not isinstance(machine.apply(changed), Rejection)
    assert StateMachine.decode(machine.encode()).state.keys.by_partition.keys() == {1}


def test_staged_records_are_refused() -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t", "a", 1, KEYED, 0))
    machine.apply(OpenRunCommand("s", "s", "i", 0, "r", None, None, "stage"))
    refused = machine.apply(OpenInputCommand("s", "t", 0))
    assert isinstance(refused, Rejection)
    assert refused.code == "KEYED"


def test_a_digest_counts_once_a_majority_tells_the_same() -> None:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t", "a", 1, KEYED, 0))
    keyed = machine.state.keys.by_partition[1]
    for member, digest in ((1, 5), (2, 6), (2, 6)):
        machine.apply(TellKeys(1, 0, member, digest, [1, 2, 3]))
        assert keyed.agreed == {}
    machine.apply(TellKeys(1, 0, 3, 6, [1, 2, 3]))
    assert (keyed.agreed, keyed.told) == ({0: 6}, {})
    machine.apply(TellKeys(1, 0, 1, 5, [1, 2, 3]))
    assert keyed.agreed == {0: 6}


def test_digests_do_not_depend_on_how_a_log_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_table, "BLOCK_RECORDS", 4)
    keys = stored_keys([b"%d" % at if at % 3 else None for at in range(23)])
    whole, pieces = PartitionKeys(NoKeys()), PartitionKeys(NoKeys())
    whole.read(keys)
    for at in range(0, 23, 5):
        pieces.read(keys[at : at + 5])
    assert whole.sums == pieces.sums
    assert len(whole.sums) == 6
    assert whole.sums[1] == kernels.digest_keys(keys[4:8], 4)
