"""Snapshot files: all or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.consensus import CorruptRecord, Snapshot
from samelog.consensus.snapshot_file import StoredSnapshot, decode_snapshot, encode_snapshot
from samelog.consensus.types import FileOwner
from samelog.format.errors import UnsupportedFormat

U32 = st.integers(0, 2**32 - 1)
NODES = st.lists(U32, max_size=7).map(tuple)
NUMBERS = st.integers(0, 2**62)
STORED = st.builds(
    StoredSnapshot,
    st.builds(FileOwner, st.text(max_size=20), U32, U32, U32),
    st.builds(Snapshot, NUMBERS, NUMBERS, NODES, NODES, st.binary(max_size=100)),
)
EXAMPLE = encode_snapshot(
    StoredSnapshot(FileOwner("demo", 1, 6, 7), Snapshot(9, 2, (0, 1, 2), (300,), b"state"))
)


@given(STORED)
def test_round_trip(stored: StoredSnapshot) -> None:
    assert decode_snapshot(encode_snapshot(stored)) == stored


def test_any_damage_is_noticed() -> None:
    for place in range(len(EXAMPLE)):
        damaged = bytearray(EXAMPLE)
        damaged[place] ^= 0x10
        with pytest.raises((CorruptRecord, UnsupportedFormat)):
            decode_snapshot(damaged)
    for cut in range(len(EXAMPLE)):
        with pytest.raises(CorruptRecord):
            decode_snapshot(EXAMPLE[:cut])
    with pytest.raises(CorruptRecord):
        decode_snapshot(EXAMPLE + b"\0")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptRecord, UnsupportedFormat)):
        decode_snapshot(data)
    with pytest.raises((CorruptRecord, UnsupportedFormat)):
        decode_snapshot(EXAMPLE[:10] + data)


def test_other_versions_are_refused() -> None:
    with pytest.raises(UnsupportedFormat, match="version 2"):
        decode_snapshot(EXAMPLE[:8] + b"\x00\x02" + EXAMPLE[10:])


def test_the_bytes_are_the_documented_ones() -> None:
    fixed = "53414d45534e4150 0001 0004 00000001 00000006 00000007 0000000000000009 "
    fixed += "0000000000000002 00000003 00000001"
    assert EXAMPLE[:48] == bytes.fromhex(fixed)
    assert EXAMPLE[52:60] == (5).to_bytes(8, "big")
    assert EXAMPLE[60:80] == b"demo" + bytes.fromhex("00000000 00000001 00000002 0000012c")
    assert EXAMPLE[84:] == b"state"


def test_names_of_clusters_are_bounded() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode_snapshot(
            StoredSnapshot(FileOwner("x" * 2000, 0, 0, 0), Snapshot(1, 1, (0,), (), b""))
        )
