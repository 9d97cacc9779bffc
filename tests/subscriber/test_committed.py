"""Subscribers that read what is committed."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import Subscriber
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.subscriber import Isolation
from samelog.subscriber.committed_reader import CommittedReader
from samelog.subscriber.tail_reader import Chunk
from tests.examples import at_most
from tests.patience import PATIENCE_S
from tests.store.compacting import KeyedLog, Order, rewrite
from tests.store.storage import FS, open_merged, sync_merged
from tests.subscriber.merged import Growing
from tests.subscriber.transactions import Transactions

COMMITTED = Isolation.READ_COMMITTED


@pytest.fixture
def log(tmp_path: Path) -> Transactions:
    return Transactions(Growing(tmp_path))


def present(subscriber: Subscriber) -> list[bytes | None]:
    return [record.value for record in subscriber.present()]


def test_what_is_open_waits_and_what_was_aborted_never_comes(
    tmp_path: Path, log: Transactions
) -> None:
    log.plain(3)
    log.send(1, 2)
    log.send(2, 2)
    log.plain(2)
    with Subscriber("t", directory=tmp_path, isolation="read_committed") as subscriber:
        assert present(subscriber) == [b"000000", b"000001", b"000002"]
        assert subscriber.caught_up
        assert subscriber.position() == 3
        log.end(2, is_commit=True)
        assert present(subscriber) == []
        log.end(1, is_commit=False)
        assert present(subscriber) == [b"000005", b"000006", b"000007", b"000008"]
        assert subscriber.position() == log.stable == 11
    with Subscriber("t", directory=tmp_path) as subscriber:
        assert len(present(subscriber)) == 9  # markers are no records


STEPS = st.sampled_from(["plain", "send", "commit", "abort", "roll", "read", "seek", "again"])
COUNTS, PRODUCERS = st.integers(1, 30), st.integers(1, 3)


@given(st.data())
@settings(max_examples=at_most(60), deadline=None)
def test_it_reads_what_its_twin_says(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("twin")
    log = Transactions(Growing(root))
    with ExitStack() as stack:
        stack.callback(log.growing.log.close)
        play(root, log, data, stack)
    with Subscriber("t", directory=root, isolation=COMMITTED, follow=False) as whole:
        assert [record.value for record in whole] == log.committed()
    with Subscriber("t", directory=root, isolation=COMMITTED, follow=False) as whole:
        assert whole.arrow_records(timeout=0.0)["value"].to_pylist() == log.committed()


def play(root: Path, log: Transactions, data: st.DataObject, stack: ExitStack) -> None:
    """Any steps; whoever reads gets what its twin says."""
    start, found = 0, []
    reader = stack.enter_context(Subscriber("t", directory=root, isolation=COMMITTED))
    for step in data.draw(st.lists(STEPS, max_size=40)):
        match step:
            case "plain":
                log.plain(data.draw(COUNTS))
            case "send":
                log.send(data.draw(PRODUCERS), data.draw(COUNTS))
            case "commit" | "abort":
                log.end(data.draw(PRODUCERS), is_commit=step == "commit")
            case "roll":
                log.growing.roll()
            case "read":
                found += [record.value for record in reader.batch(data.draw(COUNTS), 0.0)]
            case "seek":
                found += present(reader)
                assert found == log.committed(start)
                start, found = data.draw(st.integers(0, log.growing.log.next_offset)), []
                reader.seek(0, start)
            case _:
                reader.close()
                start, found = data.draw(st.integers(0, log.growing.log.next_offset)), []
                again = Subscriber("t", directory=root, isolation=COMMITTED, start=start)
                reader = stack.enter_context(again)
    found += present(reader)
    assert found == log.committed(start)


def test_a_decision_in_a_later_segment_wakes_who_waits(tmp_path: Path, log: Transactions) -> None:
    log.send(1, 3)
    log.growing.roll()
    log.plain(3)
    found: list[bytes | None] = []

    def read() -> None:
        with Subscriber("t", directory=tmp_path, isolation=COMMITTED) as subscriber:
            found.extend(record.value for record in islice(subscriber, 6))

    thread = threading.Thread(target=read)
    thread.start()
    log.end(1, is_commit=True)
    thread.join(PATIENCE_S)
    assert found == log.committed()


def test_the_end_that_there_is_at_the_start_is_that_of_what_is_decided(
    tmp_path: Path, log: Transactions
) -> None:
    log.plain(2)
    log.send(1, 2)
    log.plain(2)
    with Subscriber("t", directory=tmp_path, isolation=COMMITTED, follow=False) as subscriber:
        assert [record.value for record in subscriber] == log.committed()


def test_latest_is_where_the_oldest_open_transaction_begins(
    tmp_path: Path, log: Transactions
) -> None:
    log.plain(2)
    log.send(1, 2)
    with Subscriber("t", directory=tmp_path, isolation=COMMITTED, start="latest") as subscriber:
        assert present(subscriber) == []
        log.send(1, 1)
        log.end(1, is_commit=True)
        assert present(subscriber) == log.committed(2)


def test_a_position_goes_on_behind_what_was_aborted(tmp_path: Path, log: Transactions) -> None:
    log.send(1, 2)
    log.end(1, is_commit=False)
    with Subscriber("t", directory=tmp_path, isolation=COMMITTED, name="n") as subscriber:
        assert present(subscriber) == []
        assert subscriber.batch(1, 0.0) == []
        subscriber.commit()
    log.plain(1)
    with Subscriber("t", directory=tmp_path, isolation=COMMITTED, name="n") as subscriber:
        assert subscriber.position() == 3
        assert present(subscriber) == log.committed(3)


def test_what_is_compacted_under_a_reader_is_read_as_it_is_now(tmp_path: Path) -> None:
    """Compaction takes what was aborted, and the marker; who has the old file open has both."""
    keyed = KeyedLog(open_merged(tmp_path / "flights-0"))
    keyed.append([(b"a", b"1")])
    keyed.transact([(b"b", b"2")], is_commit=False)
    keyed.append([(b"c", b"3")])
    stop = keyed.log.next_offset
    keyed.log.roll()
    sync_merged(keyed.log)
    keyed.log.save_marks()
    reader = CommittedReader.open(FS, keyed.log.path)
    assert reader is not None
    assert len(values(reader.read(1))) == 1
    keyed.log.swap(rewrite(keyed.log, stop, Order(tombstones_below=stop)))
    assert keyed.log.aborted(0, stop) == []
    assert values(reader.read(1 << 20)) + values(reader.read(1 << 20)) == [b"3"]
    assert reader.next_offset == stop
    reader.close()


def values(chunk: Chunk | None) -> list[bytes | None]:
    if chunk is None:
        return []
    records = kernels.decode_records(chunk.data, 0, chunk.size, "flights", 0, decompress)
    return [record.value for record in records]


def test_isolation_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="serializable"):
        Subscriber("t", directory=tmp_path, isolation="serializable")
