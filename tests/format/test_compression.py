"""Codecs: round trips, both shapes of snappy, corrupt blobs, and the bound on the output."""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.format.compression import LIMIT_BYTES_DEFAULT, Codec, compress, decompress
from samelog.format.errors import DecompressionError
from tests.format.batches import damaged
from tests.patience import PATIENCE_S

ALL = list(Codec)
PACKED = [codec for codec in ALL if codec != Codec.NONE]
CODECS = st.sampled_from(ALL)
ROOT = Path(__file__).resolve().parents[2]


def sample(size: int) -> bytes:
    """Bytes that compress to about a quarter."""
    source = random.Random(size)
    words = [source.randbytes(16) for _ in range(8)]
    return b"".join(source.choice(words) for _ in range(size // 16 + 1))[:size]


def xerial(*blocks: bytes) -> bytes:
    """Snappy as Java's SnappyOutputStream writes it."""
    parts = [b"\x82SNAPPY\x00", (1).to_bytes(4, "big"), (1).to_bytes(4, "big")]
    for block in blocks:
        packed = bytes(cramjam.snappy.compress_raw(block))
        parts += (len(packed).to_bytes(4, "big"), packed)
    return b"".join(parts)


# --- round trips -------------------------------------------------------------------------------


@given(CODECS, st.binary(max_size=300))
def test_what_is_packed_unpacks(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 1_000_000, 3_000_000])
@pytest.mark.parametrize("codec", ALL)
def test_all_sizes_and_buffers(codec: Codec, size: int) -> None:
    data = sample(size)
    packed = compress(codec, bytearray(data))
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(b"xx" + packed)[2:]) == data


@pytest.mark.parametrize("codec", PACKED)
def test_data_that_does_not_compress(codec: Codec) -> None:
    data = random.Random(3).randbytes(200_000)
    assert decompress(codec, compress(codec, data)) == data


def test_lz4_blocks_are_independent_as_java_clients_demand() -> None:
    packed = compress(Codec.LZ4, sample(200_000))
    assert packed[4] & 0x20
    assert bytes(cramjam.lz4.decompress(packed)) == sample(200_000)


def test_zstd_frames_of_another_maker() -> None:
    data = sample(500_000)
    assert decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(data, level=9))) == data


def test_gzip_of_the_standard_library() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"data")) == b"data"


def test_snappy_in_java_framing() -> None:
    data = sample(100_000)
    assert decompress(Codec.SNAPPY, xerial(data[:32768], data[32768:65536], data[65536:])) == data
    assert decompress(Codec.SNAPPY, xerial()) == b""
    assert decompress(Codec.SNAPPY, xerial(b"")) == b""


# --- corrupt blobs -----------------------------------------------------------------------------


@given(st.sampled_from(PACKED), st.data())
def test_damaged_blobs_unpack_or_are_refused(codec: Codec, draw: st.DataObject) -> None:
    packed = draw.draw(st.sampled_from([compress(codec, sample(400)), compress(codec, b"ab")]))
    check(codec, draw.draw(damaged(packed)))


@given(st.data())
def test_damaged_java_framing_unpacks_or_is_refused(draw: st.DataObject) -> None:
    check(Codec.SNAPPY, draw.draw(damaged(xerial(sample(300), b"x"))))


@given(st.sampled_from(PACKED), st.binary(max_size=100))
def test_random_blobs_unpack_or_are_refused(codec: Codec, blob: bytes) -> None:
    check(codec, blob)


@given(st.binary(max_size=30))
def test_random_zstd_frames_unpack_or_are_refused(blob: bytes) -> None:
    check(Codec.ZSTD, bytes.fromhex("28b52ffd") + blob)


def check(codec: Codec, blob: bytes) -> None:
    """Whatever the blob: bytes within the limit or the one error, nothing else."""
    with suppress(DecompressionError):
        assert len(decompress(codec, blob, limit_bytes=100_000)) <= 100_000


@pytest.mark.parametrize("codec", PACKED)
def test_no_bytes_and_cut_off_blobs_are_refused(codec: Codec) -> None:
    packed = compress(codec, sample(1000))
    for size in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:size])


@pytest.mark.parametrize(
    "size", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00", b"\0\0\0\5a"]
)
def test_java_framing_with_a_wrong_block_size_is_refused(size: bytes) -> None:
    with pytest.raises(DecompressionError, match="cut off"):
        decompress(Codec.SNAPPY, xerial(b"x") + size)


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(DecompressionError, match="unknown"):
        decompress(codec, b"")
    with pytest.raises(ValueError, match="unknown"):
        compress(codec, b"")


# --- the bound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize("codec", ALL)
def test_the_limit_is_exact(codec: Codec, size: int) -> None:
    data = bytes(size)
    packed = compress(codec, data)
    assert decompress(codec, packed, limit_bytes=size) == data
    with pytest.raises(DecompressionError):
        decompress(codec, packed, limit_bytes=size - 1)


@pytest.mark.parametrize("window_log", [24, 27, 31, 41])
def test_a_zstd_window_beyond_the_limit_is_refused(window_log: int) -> None:
    descriptor = bytes([(window_log - 10) << 3])
    last_raw_block = (1 | 3 << 3).to_bytes(3, "little") + b"abc"
    frame = bytes.fromhex("28b52ffd00") + descriptor + last_raw_block
    with pytest.raises(DecompressionError, match="window"):
        decompress(Codec.ZSTD, frame, limit_bytes=1000)
    modest = bytes.fromhex("28b52ffd00") + bytes([(23 - 10) << 3]) + last_raw_block
    assert decompress(Codec.ZSTD, modest, limit_bytes=1000) == b"abc"


def test_the_default_limit() -> None:
    packed = compress(Codec.ZSTD, bytes(LIMIT_BYTES_DEFAULT))
    assert len(decompress(Codec.ZSTD, packed)) == LIMIT_BYTES_DEFAULT
    with pytest.raises(DecompressionError):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(LIMIT_BYTES_DEFAULT + 1)))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize(
    "bomb",
    [
        "gzip",
        "gzip-members",
        "snappy",
        "snappy-lie",
        "xerial",
        "lz4",
        "lz4-lie",
        "zstd",
        "zstd-lie",
    ],
)
def test_a_bomb_is_refused_in_little_memory(bomb: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.format.bombs", bomb],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match("refused: .*(whole buffer|more than|cannot unpack|too small)", done.stdout)
