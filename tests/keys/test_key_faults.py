"""Keys that count once where it is hard: what is compressed, times, voids, errors of LMDB."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec, compress
from samelog.format.errors import CorruptLog, DecompressionError
from samelog.kafka.apis.checks import check_unpacked
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.runtime.at_work import AtWork
from samelog.sequencer.ingest import batch_check
from samelog.sequencer.ingest.batch_check import Taken, without_long
from samelog.sequencer.ingest.checking import CheckedBatches
from samelog.sequencer.keys import keeper
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.lookups import KeyLookups
from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.sequencer.merge import filters
from samelog.sequencer.merge.drafts import JOINED_BYTES
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.instructions import Verdict, VoidRecordsCommand
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.keys import BLOCK_RECORDS, KeyedPartition, TellKeys, horizon_of
from samelog.sequencer.state.tables.topics import AlterTopicCommand
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys.key_store import FOLDER, KeysUnavailable, NoKeys, open_keys
from tests.keys.looking import DiskKeys
from tests.keys.test_key_filter import World, batch
from tests.keys.test_key_keeping import Kept

HORIZON = "dedup.key.horizon"


def packed(*keys: bytes, value: bytes) -> bytes:
    """A compressed batch."""
    plain = kernels.build_batches(
        [value] * len(keys),
        keys=[*keys],
        timestamps=5,
        batch_bytes=64 << 20,
        max_record_bytes=1 << 24,
    )
    data = bytearray(plain[:61] + compress(Codec.ZSTD, plain[61:]))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= Codec.ZSTD
    data[17:21] = kernels.crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_what_unpacks_to_much_is_merged_in_small_pieces() -> None:
    world, each = World("a"), 400_000
    for number in range(20):
        world.bytes.put(1, packed(b"a", b"%d" % number, value=bytes(each)))
    merges = []
    while planned := world.plan():
        merges += planned
        world.commit(planned)
    assert len(world.log) == 21
    sizes = [part.size for merge in merges for part in merge.ranges]
    assert max(sizes) <= JOINED_BYTES
    assert max(merge.size for merge in merges) < 4 * each


def test_a_batch_that_is_not_planned_leaves_no_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put(1, b"a")
    world.run_dry()
    original: Callable[..., bytearray] = filters._left_of

    def fails(*_: object) -> bytearray:
        raise DecompressionError("too much")

    monkeypatch.setattr(filters, "_left_of", fails)
    sent = batch(b"a", b"b", producer=7, sequence=0)
    world.bytes.put(1, sent)
    assert world.plan() == []
    monkeypatch.setattr(filters, "_left_of", original)
    world.bytes.put(2, sent)
    (merge,) = world.plan()
    assert [part.verdict for part in merge.ranges] == [Verdict.LEAVE_OUT]
    world.commit([merge])
    assert world.log == [b"a", b"b"]


class Unreadable(NoKeys):
    """An index that a disk does not give."""

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        return {}

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        raise DiskFault("keys", "read", errno.EIO)


def test_an_index_that_cannot_be_read_stops_its_partition() -> None:
    world = World("a")
    world.put(1, b"a")
    world.run_dry()
    world.read()
    known = world.keys.partitions[1]
    known.stored(known.due(1))  # type: ignore[arg-type]
    known.store = Unreadable()
    sent = batch(b"a", b"b", producer=7, sequence=0)
    world.bytes.put(1, sent)
    assert world.plan() == []
    assert world.look_up()
    for _ in range(2):
        assert world.plan() == []
    assert isinstance(known.fault, DiskFault)
    assert not world.planner.damaged, "its bytes are as they were"
    opened = world.keys.partitions[1] = PartitionKeys(DiskKeys({b"\x00a": 0}))
    opened.read_to = opened.covered_to = 1
    world.run_dry_from_disk()
    assert world.log == [b"a", b"b"]


def test_what_a_disk_does_not_give_is_asked_for_once() -> None:
    """Whoever looks after indexes opens it again."""

    async def body() -> None:
        asked, failed = list[Any](), asyncio.Event()

        async def in_thread(work: Callable[..., Any], /, *arguments: Any) -> Any:
            asked.append(arguments)
            failed.set()
            raise DiskFault("keys", "read", errno.EIO)

        keys, known = KeyFilter(StateMachine(), lambda number: True), PartitionKeys(DiskKeys())
        keys.partitions[1] = known
        known.ask([b"\x00k"])
        lookups = KeyLookups(keys, in_thread, lambda number: None, AtWork())
        running = asyncio.create_task(lookups.run())
        await failed.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        assert isinstance(known.fault, DiskFault)
        assert len(asked) == 1
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(body())


class Rotten(NoKeys):
    """An index with a damaged page in memory."""

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        raise CorruptLog("keys", 0, "rotten")


def test_a_damaged_page_stops_its_partition() -> None:
    world = World("ab")
    world.keys.partitions[1] = known = PartitionKeys(Rotten())
    for session in (1, 2):
        world.put(session, b"a")
    assert world.plan() == []
    assert isinstance(known.fault, CorruptLog)
    assert not known.is_asking
    assert not world.planner.damaged


# --- at ingest ----------------------------------------------------------------------------------


def test_a_client_is_told_what_is_too_large_for_keys() -> None:
    topic, data = cast(Any, SimpleNamespace(name="t", settings={"dedup.key": "first"})), bytes(9)
    for unpacked, records, is_refused in ((8 << 20, 1, True), (9, 1 << 18, True), (9, 9, False)):
        taken = CheckedBatches(Taken(memoryview(data), records, None), unpacked)
        if is_refused:
            with pytest.raises(ApiError) as told:
                check_unpacked(topic, memoryview(data), taken)
            assert told.value.code is ErrorCode.message_too_large
        else:
            check_unpacked(topic, memoryview(data), taken)


def test_batches_before_one_of_too_many_records_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_check, "KEYED_RECORDS", 2)
    small, large = batch(b"a", b"b"), batch(b"a", b"b", b"c")
    taken = without_long(Taken(memoryview(small + large + small), 7, None))
    assert bytes(taken.data) == small
    assert taken.refusal is not None
    assert without_long(Taken(memoryview(small), 2, None)).refusal is None


# --- the state ----------------------------------------------------------------------------------


def test_keys_go_on_counting_when_the_horizon_becomes_a_time() -> None:
    world = World("a")
    world.put(1, b"a")
    world.run_dry()
    world.machine.apply(AlterTopicCommand("t", {HORIZON: "64s"}, []))
    world.put(1, b"b")
    world.run_dry()
    world.now_ms += 30_000
    world.put(1, b"a", b"c")
    world.run_dry()
    assert world.log == [b"a", b"b", b"c"]
    world.now_ms += 70_000
    for key in (b"d", b"a"):
        world.put(1, key)
        world.run_dry()
    assert world.log == [b"a", b"b", b"c", b"d", b"a"]


@pytest.mark.parametrize(("shorter", "still_s"), [("64s", 64), ("1s", 1)])
def test_keys_count_for_a_shorter_horizon_whole(shorter: str, still_s: int) -> None:
    """The steps of the longer one say less of when records were appended."""
    world = World("a", **{HORIZON: "6400s"})
    world.put(1, b"old")
    world.run_dry()
    world.now_ms += 99_000
    world.put(1, b"new")
    world.run_dry()
    world.machine.apply(AlterTopicCommand("t", {HORIZON: shorter}, []))
    world.now_ms += 1000 * still_s - 500
    for key in (b"x", b"new"):
        world.put(1, key)
        world.run_dry()
    assert world.log == [b"old", b"new", b"x"]
    world.now_ms += 101_000
    for key in (b"y", b"new", b"old"):
        world.put(1, key)
        world.run_dry()
    assert world.log == [b"old", b"new", b"x", b"y", b"new", b"old"]


@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.sampled_from(["", "64s", "640s", "100"])), max_size=30
    )
)
def test_no_key_counts_for_less_than_the_horizon(steps: list[tuple[int, str]]) -> None:
    """Whatever it was before: what counts no more was appended so long ago."""
    keyed, settings, merged, now_ms = KeyedPartition(), {HORIZON: "640s"}, list[int](), 0
    for seconds, changed in steps:
        settings[HORIZON] = changed or settings[HORIZON]
        now_ms, before = now_ms + 1000 * seconds, keyed.floor
        keyed.merged(len(merged), len(merged) + 1, now_ms, settings)
        merged.append(now_ms)
        if keyed.floor > before:
            span_ms = horizon_of(settings).ms
            assert span_ms is not None
            assert merged[keyed.floor - 1] <= now_ms - span_ms


def test_keys_go_on_counting_when_the_horizon_is_a_time_no_more() -> None:
    world = World("a", **{HORIZON: "64s"})
    world.put(1, b"a")
    world.run_dry()
    world.machine.apply(AlterTopicCommand("t", {}, [HORIZON]))
    for key in (b"b", b"a"):
        world.now_ms += 100_000
        world.put(1, key)
        world.run_dry()
    world.machine.apply(AlterTopicCommand("t", {HORIZON: "64s"}, []))
    world.put(1, b"a", b"b")
    world.run_dry()
    assert world.log == [b"a", b"b"]


def test_digests_of_blocks_with_void_records_count_no_more() -> None:
    world = World("a")
    world.put(1, b"a", b"b")
    world.run_dry()
    machine, keyed = world.machine, world.machine.state.keys.by_partition[1]
    for block in (0, 1):
        for member in (1, 2):
            assert machine.apply(TellKeys(1, block, member, 5, [1, 2, 3])) is not None
    assert keyed.agreed == {0: 5, 1: 5}
    machine.state.partitions.by_number[1].next_offset = 3 * BLOCK_RECORDS
    void = VoidRecordsCommand(1, BLOCK_RECORDS, BLOCK_RECORDS + 5, 0, 1, 5, 5)
    assert not isinstance(machine.apply(void), Rejection)
    for member in (1, 2, 3):
        machine.apply(TellKeys(1, 1, member, 5, [1, 2, 3]))
    assert (keyed.agreed, keyed.told) == ({0: 5}, {})


# --- the index on disk --------------------------------------------------------------------------


def failing(error: Exception) -> Callable[..., Any]:
    def fails(*_: object, **__: object) -> Any:
        raise error

    return fails


def test_only_a_damaged_index_is_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = lmdb.Error("x")
    cast(Any, refused).code = errno.EACCES
    for error, kind in (
        (lmdb.CorruptedError("x"), CorruptLog),
        (lmdb.InvalidError("x"), CorruptLog),
        (lmdb.MemoryError("x"), KeysUnavailable),
        (lmdb.LockError("x"), KeysUnavailable),
        (refused, DiskFault),
        (lmdb.MapFullError("x"), KeysUnavailable),
    ):
        monkeypatch.setattr(lmdb, "open", failing(error))
        with pytest.raises(kind):
            open_keys(OsFileSystem(), str(tmp_path / "keys"))


def test_an_index_that_cannot_be_opened_is_kept_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path / "log")
    kept.append(b"a")
    kept.sync()
    kept.look()
    kept.keeper.close()
    path = Path(kept.log.path) / FOLDER / "data.mdb"
    mark = path.with_name("mark")
    mark.touch()
    with monkeypatch.context() as patched:
        patched.setattr(lmdb, "open", failing(lmdb.MemoryError("no memory")))
        kept.look()
        assert any("no memory" in each for each in kept.keeper.troubles)
    kept.now += keeper.AGAIN_AFTER_S
    kept.look()
    assert not kept.keeper.troubles
    assert mark.exists()
    assert kept.filter.partitions[1].store.find([b"\x00a"]) == {b"\x00a": 0}
    kept.keeper.close()


def test_a_leader_plans_again_when_a_whole_index_is_opened(tmp_path: Path) -> None:
    kept, planned = Kept(tmp_path / "log"), list[int]()
    kept.append(b"a")
    kept.sync()
    kept.look()
    kept.keeper.close()
    cast(Any, kept.keeper._parts.coordinator).plan_again = planned.append
    kept.group.is_leader = True
    kept.look()
    assert planned == [1]
    kept.keeper.close()


def test_an_index_is_closed_behind_the_thread_that_commits(tmp_path: Path) -> None:
    store = cast(Any, open_keys(OsFileSystem(), str(tmp_path / "keys")))
    with store._in_use():
        thread = threading.Thread(target=store.close)
        thread.start()
        thread.join()
        assert store._environment.stat() is not None
    with pytest.raises(lmdb.Error):
        store._environment.stat()
    with pytest.raises(KeysUnavailable):
        store.advance([], 1, {})
