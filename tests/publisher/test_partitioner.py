"""Which partition a record goes to; the kernels that a publisher has for itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog import Publisher
from samelog.format import _kernels as kernels
from samelog.format.errors import RecordTooLarge
from tests.publisher import reading

# org.apache.kafka.common.utils.UtilsTest.testMurmur2
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    bytes([97, 98, 99]): 479470107,
}
WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The plain Python twin of the kernel."""
    value = 0x9747B28C ^ len(data)
    whole = len(data) - len(data) % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & WORD
        word = (word ^ word >> 24) * 0x5BD1E995 & WORD
        value = (value * 0x5BD1E995 & WORD) ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & WORD
    value = (value ^ value >> 13) * 0x5BD1E995 & WORD
    return value ^ value >> 15


@pytest.mark.parametrize("key", KAFKA_VECTORS)
def test_the_hash_is_kafkas(key: bytes) -> None:
    assert kernels.murmur2(key) == murmur2(key) == KAFKA_VECTORS[key] & WORD


@given(st.binary(max_size=50))
def test_the_hash_equals_its_twin(key: bytes) -> None:
    assert kernels.murmur2(memoryview(key)) == murmur2(key)


@given(st.lists(st.binary(max_size=40_000), max_size=4), st.integers(0, 100))
def test_a_write_puts_all_bytes_at_their_place(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], start: int
) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    at = start
    for piece in pieces:
        kernels.write_at(descriptor, piece, at)
        at += len(piece)
    os.close(descriptor)
    assert path.read_bytes()[start:] == b"".join(pieces)


@given(
    value=st.one_of(st.none(), st.binary(max_size=40), st.just(bytes(40_000))),
    key=st.one_of(st.none(), st.binary(max_size=10)),
    headers=st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=3), st.none()), max_size=2)),
    timestamp=st.integers(-1, 1 << 40),
    room=st.integers(0, 300),
)
def test_writing_one_record_is_building_and_writing_it(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[tuple[str, None]] | None,
    timestamp: int,
    room: int,
) -> None:
    path = tmp_path_factory.mktemp("record") / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    expected = kernels.build_record(value, key, headers, timestamp)
    end = kernels.write_record(descriptor, 7, 7 + room, value, key, headers, timestamp, 1 << 20)
    os.close(descriptor)
    if len(expected) <= min(room, 32 << 10):
        assert end == 7 + len(expected)
        assert path.read_bytes()[7:] == expected
    else:
        assert end == -1
        assert path.read_bytes() == b""


def test_failed_writes_say_why(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernels.write_at(-1, b"x", 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kernels.write_record(-1, 0, 1 << 20, b"x", None, None, 0, 1 << 20)
    with pytest.raises(RecordTooLarge):
        kernels.write_record(-1, 0, 1 << 20, bytes(100), None, None, 0, 50)
    with pytest.raises(TypeError):
        kernels.write_record(-1, 0, 1 << 20, "x", None, None, 0, 50)  # type: ignore[arg-type]


def by_partition(session: Path, partitions: int) -> dict[int, list[bytes | None]]:
    return {
        number: reading.values(session, "t", number)
        for number in range(partitions)
        if (session / f"t-{number}").exists()
    }


@pytest.mark.parametrize("is_many", [False, True])
def test_a_key_decides_as_in_kafka(tmp_path: Path, is_many: bool) -> None:
    keys = [b"%d" % number for number in range(40)]
    with Publisher("t", session="s", directory=tmp_path, partitions=4) as publisher:
        if is_many:
            publisher.append_many(keys, keys=keys)
        else:
            for key in keys:
                publisher.append(key, key=key)
    expected: dict[int, list[bytes]] = {}
    for key in keys:
        expected.setdefault((murmur2(key) & 0x7FFFFFFF) % 4, []).append(key)
    assert by_partition(tmp_path / "s", 4) == expected


def test_records_without_a_key_fill_one_partition_after_the_other(tmp_path: Path) -> None:
    with Publisher(
        "t", session="s", directory=tmp_path, partitions=3, batch_bytes=1000
    ) as publisher:
        for number in range(60):
            publisher.append(b"%02d" % number + bytes(98))
    found = [len(values) for values in by_partition(tmp_path / "s", 3).values()]
    assert sum(found) == 60
    assert min(found) >= 15
    first = reading.values(tmp_path / "s", "t", 0)
    assert [(value or b"")[:2] for value in first[:6]] == [b"%02d" % n for n in range(6)]


def test_many_records_without_a_key_stay_together(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, partitions=3) as publisher:
        for _ in range(3):
            publisher.append_many([b"a", b"b"])
        publisher.append_many([b"c", b"d"], keys=[None, None])
    found = by_partition(tmp_path / "s", 3)
    assert found == {0: [b"a", b"b", b"c", b"d"], 1: [b"a", b"b"], 2: [b"a", b"b"]}


def test_a_named_partition_counts_more_than_a_key(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, partitions=3) as publisher:
        publisher.append(b"a", key=b"k", partition=2)
        publisher.append_many([b"b"], keys=[b"k"], partition=1)
        for wrong in (-1, 3):
            with pytest.raises(ValueError, match=f"partition {wrong} is not one"):
                publisher.append(b"c", partition=wrong)
    assert by_partition(tmp_path / "s", 3) == {1: [b"b"], 2: [b"a"]}
