"""Handlers get so many records at once or after so long; what they fail for is not dealt with."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from samelog import Record, Subscriber
from samelog.subscriber import handling
from samelog.subscriber.handling import Skipped
from tests.cli.fake_nodes import FakeCluster
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing, numbers
from tests.subscriber.test_rows import Copies


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def reader(root: Path, **options: Any) -> Subscriber:
    return Subscriber("t", directory=root, **{"name": "n", **options})


def values(batch: list[Record]) -> list[bytes | None]:
    return [record.value for record in batch]


def stored(root: Path) -> int:
    """Where the subscriber goes on after a restart."""
    with reader(root, auto_commit=False) as again:
        return again.position()


def running(subscriber: Subscriber, *arguments: Any, **options: Any) -> threading.Thread:
    thread = threading.Thread(target=subscriber.run, args=arguments, kwargs=options)
    thread.start()
    return thread


def test_a_handler_is_called_with_so_many_or_after_so_long(
    tmp_path: Path, growing: Growing
) -> None:
    growing.append(b"0", b"1")
    found: list[list[bytes | None]] = []
    came = threading.Event()

    def handle(batch: list[Record]) -> None:
        found.append(values(batch))
        came.set()

    with reader(tmp_path) as subscriber:
        thread = running(subscriber, handle, batch=4, throttle_s=3600.0)
        growing.append(b"2", b"3", b"4")  # it waits for two more, however long
        assert came.wait(PATIENCE_S)
        assert found == [[b"0", b"1", b"2", b"3"]]
        subscriber.stop_soon()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert found == [[b"0", b"1", b"2", b"3"]]  # what was being gathered is not handed out
    came.clear()
    with reader(tmp_path) as subscriber:
        thread = running(subscriber, handle, batch=4, throttle_s=0.01)
        assert came.wait(PATIENCE_S)
        subscriber.stop_soon()
        thread.join(PATIENCE_S)
    assert found[1:] == [[b"4"]]


def test_stopping_leaves_the_position_before_what_failed(tmp_path: Path, growing: Growing) -> None:
    growing.count(0, 10)

    def handle(batch: list[Record]) -> None:
        if batch[0].offset == 4:
            raise RuntimeError("no good")

    with reader(tmp_path, follow=False) as subscriber:
        with pytest.raises(RuntimeError, match="no good"):
            subscriber.run(handle, batch=4)
        assert subscriber.position() == 4
        found: list[bytes | None] = []
        subscriber.run(lambda batch: found.extend(values(batch)), batch=4)
        assert found == numbers(4, 10)
    with reader(tmp_path, start="earliest", follow=False) as subscriber:
        with pytest.raises(ZeroDivisionError):
            subscriber.run(lambda record: 1 // (record.offset - 7))
        assert subscriber.position() == 7
    assert stored(tmp_path) == 7


def test_retrying_calls_with_the_same_and_stores_nothing_meanwhile(
    tmp_path: Path, growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handling, "RETRY_S", 0.001)
    growing.count(0, 6)
    calls: list[tuple[list[bytes | None], int]] = []

    with reader(tmp_path, commit_interval_s=0.0, follow=False) as subscriber:

        def handle(batch: list[Record]) -> None:
            calls.append((values(batch), subscriber._engine.cursors["t", 0].done))
            if batch[0].offset == 3 and len(calls) < 4:
                raise RuntimeError("not yet")

        subscriber.run(handle, batch=3, on_error="retry")
    first, second = (numbers(0, 3), 0), (numbers(3, 6), 3)
    assert calls == [first, second, second, second]
    assert stored(tmp_path) == 6


@pytest.mark.parametrize("batch", [None, 2])
def test_closing_ends_retrying_and_what_failed_is_not_dealt_with(
    tmp_path: Path, growing: Growing, batch: int | None
) -> None:
    growing.count(0, 2)
    failed = threading.Event()

    def handle(found: object) -> None:
        failed.set()
        raise RuntimeError("never")

    with reader(tmp_path) as subscriber:
        thread = running(subscriber, handle, batch=batch, on_error="retry")
        assert failed.wait(PATIENCE_S)
        subscriber.stop_soon()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert stored(tmp_path) == 0


@pytest.mark.parametrize(
    ("batch", "gone"), [(None, [(1, 2), (3, 4)]), (2, [(0, 2), (2, 4)]), (4, [(0, 4)])]
)
def test_what_is_skipped_is_told_by_offset(
    tmp_path: Path,
    growing: Growing,
    batch: int | None,
    gone: list[tuple[int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    growing.count(0, 5)
    skipped: list[Skipped] = []
    found: list[int] = []

    def handle(given: Record | list[Record]) -> None:
        offsets = [each.offset for each in (given if isinstance(given, list) else [given])]
        if {1, 3} & {*offsets}:
            raise ValueError(f"odd {offsets}")
        found.extend(offsets)

    with reader(tmp_path, follow=False) as subscriber:
        subscriber.run(handle, batch=batch, on_error="skip", on_skipped=skipped.append)
    assert [(each.first_offset, each.next_offset) for each in skipped] == gone
    assert {(each.topic, each.partition, type(each.error)) for each in skipped} == {
        ("t", 0, ValueError)
    }
    assert sorted([*found, *(n for first, end in gone for n in range(first, end))]) == [*range(5)]
    assert f"t-0: offsets {gone[0][0]} to {gone[0][1] - 1} are skipped" in caplog.text
    assert stored(tmp_path) == 5


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with FakeCluster(tmp_path, 1) as cluster:
        yield Copies(tmp_path / "copies", cluster)


def test_batches_are_rows_tables_or_frames(copies: Copies) -> None:
    copies.append(b'{"a":1}', b'{"a":2}', b'{"a":3}', version=b"1")
    found: list[Any] = []
    for form in ("rows", "arrow", "pandas"):
        with copies.reader() as subscriber:
            subscriber.run(found.append, batch=2, as_=form)
    assert [[row.values for row in batch] for batch in found[:2]] == [
        [{"a": 1, "b": None}, {"a": 2, "b": None}],
        [{"a": 3, "b": None}],
    ]
    assert [batch["a"].to_pylist() for batch in found[2:4]] == [[1, 2], [3]]
    assert [list(batch["_offset"]) for batch in found[4:]] == [[0, 1], [2]]


def test_options_that_mean_nothing_are_refused(tmp_path: Path, growing: Growing) -> None:
    with reader(tmp_path) as subscriber:
        for wrong in ({"as_": "rows"}, {"as_": "x", "batch": 1}, {"on_error": "x"}):
            with pytest.raises(
                ValueError, match=r"goes with batch|is not one of re|is not one of st"
            ):
                subscriber.run(print, **wrong)
