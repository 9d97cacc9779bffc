"""Pieces that nodes compute of merged logs: once for equal filters, in a thread, bounded."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samelog.format import _kernels as kernels
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.filtering import pieces
from samelog.sequencer.filtering.pieces import PieceSource, RowFilters
from samelog.store.disk.detached import DetachedRead
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.passing import Passing
from samelog.typed.filters.selection import RowsWanted
from samelog.wire.bounds import RowsAsked
from samelog.wire.errors import FaultCode
from tests.replicator.fake_source import FakeMerged
from tests.runtime.peers import in_loop


class Counted(Passing):
    """Counts what is computed, and in which threads."""

    def __init__(self, where: str) -> None:
        super().__init__(RowsWanted(where), {}, 0)
        self.sizes: list[int] = []
        self.threads: set[int] = set()

    def piece(self, data: bytes, *args: Any, **options: Any) -> Any:
        self.sizes.append(len(data))
        self.threads.add(threading.get_ident())
        return super().piece(data, *args, **options)


def append(stream: FakeMerged, records: int = 400) -> None:
    stream.append(
        kernels.build_batches(
            [b"v" * 100] * records, timestamps=1, batch_bytes=2000, max_record_bytes=500
        )
    )


def source_of(stream: FakeMerged, passing: Passing, key: str = "f") -> PieceSource:
    return PieceSource(
        stream,
        key,
        lambda: passing,
        lambda: (),
        is_committed=False,
        name=key,
    )


@pytest.fixture
def stream(tmp_path: Path) -> FakeMerged:
    made = FakeMerged(tmp_path / "t-0", 0)
    append(made)
    return made


def test_equal_filters_are_computed_once(
    stream: FakeMerged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 5000)
    passing = Counted("_offset >= 0")

    async def main() -> None:
        filters, source = RowFilters(), source_of(stream, passing)

        async def read() -> list[bytes]:
            found, offset = [], 0
            while offset < source.end:
                piece = await filters.piece(source, object(), offset)
                found.append(piece.data)
                offset = piece.next_offset
            return found

        one, *others = await asyncio.gather(*(read() for _ in range(5)))
        assert all(other == one for other in others)
        assert await read() == one
        assert len(passing.sizes) == len(one) > 5
        assert max(passing.sizes) <= 5000  # looked at together
        assert threading.get_ident() not in passing.threads
        other = source_of(stream, Counted("_offset < 0"), key="other")
        assert (await filters.piece(other, 1, 0)).data != one[0]

    in_loop(main)


def test_what_is_kept_is_bounded(stream: FakeMerged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "KEPT_BYTES", 3000)
    monkeypatch.setattr(pieces, "FILTERS_KEPT", 2)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 2500)

    async def main() -> None:
        filters = RowFilters()
        for key in "abcde":
            source, offset = source_of(stream, Counted("_offset >= 0"), key), 0
            while offset < source.end:
                offset = (await filters.piece(source, 1, offset)).next_offset
        assert filters._kept_bytes <= 3000
        assert len(filters._filters) == 2
        assert not filters._under_way

    in_loop(main)


class Skipping(Passing):
    """Cannot read the first record that it looks at."""

    def piece(self, *args: Any, **options: Any) -> Any:
        return super().piece(*args, **options)._replace(unread=1, newest_unread=0)


def test_filters_are_parsed_in_the_thread(stream: FakeMerged) -> None:
    threads: list[int] = []

    def make() -> Passing:
        threads.append(threading.get_ident())
        return Counted("TRUE")

    async def main() -> None:
        filters = RowFilters()
        source = replace(source_of(stream, Counted("TRUE")), make=make)
        await asyncio.gather(*(filters.piece(source, 1, 0) for _ in range(3)))
        await filters.piece(source, 1, source.end - 1)

    in_loop(main)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_counts_of_what_is_unread_are_bounded(
    stream: FakeMerged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "UNREAD_KEPT", 3)

    async def main() -> None:
        filters = RowFilters()
        asked = [
            RowsAsked(where, (), 0)
            for where in ("_offset >= 0", "TRUE", "_offset >= 1", "_offset >= 2")
        ]
        for each in asked:
            passing = Skipping(RowsWanted(each.where), {}, 0)
            source = replace(source_of(stream, passing, each.where), name=(0, each[:3]))
            await filters.piece(source, 1, 0)
        assert [filters.unread(0, each) for each in asked] == [(0, -1), *[(1, 0)] * 3]

    in_loop(main)


def test_what_comes_together_at_the_end_is_looked_at_together(stream: FakeMerged) -> None:
    passing = Counted("_offset >= 0")

    async def main() -> None:
        filters, source = RowFilters(), source_of(stream, passing)
        piece = await filters.piece(source, 1, 0)
        append(stream, 1)
        next_one = asyncio.ensure_future(filters.piece(source, 1, piece.next_offset))
        await asyncio.sleep(0)
        for _ in range(3):
            append(stream, 1)
        assert (await next_one).next_offset == stream.log.next_offset
        assert len(passing.sizes) == 2

    in_loop(main)


def test_a_filter_that_is_none_and_a_log_that_is_damaged_are_refused(stream: FakeMerged) -> None:
    def bad() -> Passing:
        raise BadFilter("no column 'a'")

    async def main() -> None:
        filters = RowFilters()
        source = PieceSource(stream, "bad", bad, lambda: (), is_committed=False, name="bad")
        with pytest.raises(RequestRefused, match="no column 'a'") as refused:
            await filters.piece(source, 1, 0)
        assert refused.value.code is FaultCode.OUT_OF_RANGE
        file = next(path for path in stream.path.iterdir() if path.suffix == ".log")
        damaged = bytearray(file.read_bytes())
        damaged[100] ^= 1
        file.write_bytes(bytes(damaged))
        with pytest.raises(RequestRefused, match="cannot read") as refused:
            await filters.piece(source_of(stream, Counted("TRUE")), 1, 0)
        assert refused.value.code is FaultCode.NOT_READY
        assert stream.suspicions == 1

    in_loop(main)


def test_the_loop_reads_nothing(stream: FakeMerged, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a filter looks into is read where it is looked into, even of a log that was closed."""
    readers: set[int] = set()
    read = DetachedRead.__call__

    def noted(self: DetachedRead) -> bytes:
        readers.add(threading.get_ident())
        stream.log.close()
        return read(self)

    monkeypatch.setattr(DetachedRead, "__call__", noted)

    async def main() -> None:
        filters, source = RowFilters(), source_of(stream, Counted("TRUE"))
        piece = await filters.piece(source, 1, 0)
        assert piece.next_offset > 0
        assert filters.looked_bytes > 0

    in_loop(main)
    assert len(readers) == 1
    assert threading.get_ident() not in readers
