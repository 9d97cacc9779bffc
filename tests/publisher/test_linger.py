"""Records that linger to share a batch."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from samelog import Publisher
from samelog.format import _kernels as kernels
from samelog.format.errors import RecordTooLarge
from samelog.publisher import BudgetExceeded, PublisherClosed
from tests.publisher import reading

FOR_EVER_MS = 60_000


def wait_until_written(session: Path, count: int) -> None:
    between_looks = threading.Event()
    for _ in range(1000):
        if (session / "t-0").exists() and len(reading.values(session)) >= count:
            return
        between_looks.wait(0.01)
    raise AssertionError("the batch was not written")


def test_lingering_records_share_a_batch_after_a_while(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, linger_ms=50) as publisher:
        for number in range(10):
            publisher.append(b"%d" % number)
        wait_until_written(tmp_path / "s", 10)
        publisher.append(b"10")
        wait_until_written(tmp_path / "s", 11)
    assert reading.values(tmp_path / "s") == [b"%d" % number for number in range(11)]
    assert len(reading.batch_sizes(tmp_path / "s")) < 11


def test_a_full_batch_does_not_wait(tmp_path: Path) -> None:
    with Publisher(
        "t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS, batch_bytes=1000
    ) as publisher:
        for _ in range(20):
            publisher.append(bytes(100))
        written = reading.batch_sizes(tmp_path / "s")
    assert len(written) >= 2
    assert all(5 <= size <= 9 for size in written)
    assert len(reading.values(tmp_path / "s")) == 20


def test_a_batch_never_passes_its_size_but_with_one_large_record(tmp_path: Path) -> None:
    with Publisher(
        "t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS, batch_bytes=1000
    ) as publisher:
        for size in (100, 5000, 900, 100, 0, 950):
            publisher.append(bytes(size), headers=[("h" * 20, bytes(size // 10))])
    data = reading.raw(tmp_path / "s")
    for _, size, records, *_ in kernels.batch_headers(data, 0, len(data)):
        assert size <= 1000 or records == 1


def test_flush_and_close_write_what_lingers(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS) as publisher:
        publisher.append(b"a")
        publisher.flush()
        assert reading.values(tmp_path / "s") == [b"a"]
        publisher.append(b"b")
    assert reading.values(tmp_path / "s") == [b"a", b"b"]


def test_many_records_go_behind_what_lingers(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS) as publisher:
        publisher.append(b"a")
        publisher.append_many([b"b", b"c"])
        publisher.append(b"d")
    assert reading.values(tmp_path / "s") == [b"a", b"b", b"c", b"d"]


def test_nothing_lingers_in_a_closed_publisher(tmp_path: Path) -> None:
    publisher = Publisher("t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS)
    publisher.append(b"a")
    publisher.close()
    with pytest.raises(PublisherClosed):
        publisher.append(b"b")
    with pytest.raises(PublisherClosed):
        publisher.append(b"b", topic="u")
    assert reading.values(tmp_path / "s") == [b"a"]


def test_a_refused_record_spoils_no_batch(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, linger_ms=FOR_EVER_MS) as publisher:
        publisher.append(b"a")
        with pytest.raises(RecordTooLarge):
            publisher.append(bytes(2 << 20))
        with pytest.raises(TypeError, match="the value is a str"):
            publisher.append("text")  # type: ignore[arg-type]
        publisher.append(b"b", headers={"h": b"x"})
    assert reading.values(tmp_path / "s") == [b"a", b"b"]


def append_until_full(publisher: Publisher) -> int:
    for number in itertools.count():
        try:
            publisher.append(b"%08d" % number + bytes(500))
        except BudgetExceeded:
            return number
    raise AssertionError("unreachable")


def test_a_batch_without_room_is_kept_and_goes_first_later(tmp_path: Path) -> None:
    with Publisher(
        "t",
        session="s",
        directory=tmp_path,
        linger_ms=1,
        batch_bytes=2000,
        budget_bytes=32 << 10,
        on_full="raise",
    ) as publisher:
        appended = append_until_full(publisher)
        sealed = [n for n in reading.log_names(tmp_path / "s") if ".sealed-" in n]
        kept = len(reading.raw(tmp_path / "s"))
        first = reading.values(tmp_path / "s")
        reading.release(tmp_path / "s", sealed[0].split(".sealed-")[0], sealed[0])
        publisher.flush()
        publisher.append(b"%08d" % appended)
    assert kept <= 32 << 10
    released = first[: len(first) - len(set(first) & set(reading.values(tmp_path / "s")))]
    found = [*released, *reading.values(tmp_path / "s")]
    assert [int((value or b"")[:8]) for value in found] == list(range(appended + 1))
