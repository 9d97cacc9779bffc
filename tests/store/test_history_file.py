"""The history of archived files: found again, whatever a crash or rot leaves of it."""

from __future__ import annotations

import resource
import struct
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.history import (
    RECORD_BYTES,
    ArchivedFile,
    CopyNote,
    decode_record,
    encode_record,
)
from samelog.store.merged.history_file import HistoryFile
from tests.store.storage import FS

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


def entry(number: int) -> ArchivedFile:
    """Files of ten records."""
    return ArchivedFile(
        10 * number, 10 * number + 10, 500, 1, 2, 3, 4, bytes([number % 256]) * 32, "time"
    )


def make(path: Path, count: int) -> HistoryFile:
    history = HistoryFile(FS, str(path))
    assert history.append([entry(number) for number in range(count)])
    return history


COPIES = st.builds(CopyNote, NUMBERS, st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 8) - 1))


@given(
    st.tuples(*[NUMBERS] * 7),
    st.binary(min_size=32, max_size=32),
    st.text(max_size=50),
    st.none() | COPIES,
)
@example((0,) * 7, bytes(32), "x" * 35 + "\1", None)
def test_records_survive(
    numbers: tuple[int, ...], sha256: bytes, reason: str, copy: CopyNote | None
) -> None:
    record = encode_record(ArchivedFile._make((*numbers, sha256, reason, copy)))
    found = decode_record(record)
    assert found is not None
    assert len(record) == RECORD_BYTES
    assert (*found[:8], found.copy) == (*numbers, sha256, copy)
    assert reason.encode().rstrip(b"\0").startswith(found.reason.encode())


def test_a_record_of_a_version_that_copied_nothing_is_read() -> None:
    """Its reason takes all the room."""
    body = struct.pack(
        ">qqqqqqq32s36s", *range(7), bytes(32), b"time+retention.bytes+limit+disk+abcd"
    )
    found = decode_record(body + struct.pack(">I", kernels.crc32c(body)))
    assert found is not None
    assert (found.reason, found.copy) == ("time+retention.bytes+limit+disk+abcd", None)


@given(st.binary(max_size=200))
def test_whatever_bytes_are_a_record_or_none(data: bytes) -> None:
    decode_record(data)


def test_what_is_added_is_found_by_its_offset(tmp_path: Path) -> None:
    history = make(tmp_path / "h", 9)
    history.close()
    again = HistoryFile(FS, str(tmp_path / "h"))
    assert (again.end, again.count) == (90, 9)
    for offset in range(95):
        first = -(-offset // 10)
        assert again.read(offset, 3) == [
            entry(number) for number in range(first, min(first + 3, 9))
        ]
    again.close()


def test_nothing_is_added_twice_or_behind_a_gap(tmp_path: Path) -> None:
    history = make(tmp_path / "h", 3)
    assert not history.append([entry(5)])
    assert history.append([entry(1), entry(2), entry(3)])
    assert history.append([entry(0)])
    assert history.read(0, 99) == [entry(number) for number in range(4)]
    history.close()


def test_what_a_crash_left_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "h"
    make(path, 3).close()
    whole = path.read_bytes()
    for torn in (whole[:-1], whole + b"x" * 40, whole[:-RECORD_BYTES] + bytes(RECORD_BYTES)):
        path.write_bytes(torn)
        history = HistoryFile(FS, str(path))
        assert history.append([entry(2), entry(3)])
        assert history.read(0, 9) == [entry(number) for number in range(4)]
        history.close()


def test_a_rotten_record_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "h"
    make(path, 8).close()
    for rotten in range(7):
        data = bytearray(path.read_bytes())
        data[rotten * RECORD_BYTES + 3] ^= 1
        other = tmp_path / f"rotten-{rotten}"
        other.write_bytes(data)
        history = HistoryFile(FS, str(other))
        assert history.read(0, 9) == [entry(number) for number in range(8) if number != rotten]
        assert history.read(70, 1) == [entry(7)]
        assert history.end == 80
        history.close()


def test_a_million_files_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with path.open("wb") as file:
        for number in range(1_000_000 // 1000):
            file.write(b"".join(encode_record(entry(1000 * number + at)) for at in range(1000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    history = HistoryFile(FS, str(path))
    assert (history.count, history.end) == (1_000_000, 10_000_000)
    assert history.read(5_000_000, 2) == [entry(500_000), entry(500_001)]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # KiB
    history.close()
