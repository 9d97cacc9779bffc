"""A node unpacks what every reader unpacks to the same bytes, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from samelog.format.compression import Codec, decompress
from samelog.format.errors import DecompressionError
from tests.format.oddities import Oddity, oddities

RECORDS = b"the records of a batch, long enough to compress, to compress, to compress" * 3
TABLE = list(oddities(RECORDS))


def named(oddity: Oddity) -> str:
    return f"{oddity.codec.name.lower()}: {oddity.what}"


@pytest.mark.parametrize("oddity", TABLE, ids=named)
def test_what_is_odd(oddity: Oddity) -> None:
    if oddity.is_taken:
        assert decompress(oddity.codec, oddity.blob) == RECORDS
    else:
        with pytest.raises(DecompressionError):
            decompress(oddity.codec, oddity.blob)


@pytest.mark.parametrize("oddity", [each for each in TABLE if each.is_taken], ids=named)
def test_what_is_taken_is_read_by_kafka_python(oddity: Oddity) -> None:
    codec: Any = pytest.importorskip("kafka.codec")
    read = {
        Codec.GZIP: codec.gzip_decode,
        Codec.LZ4: codec.lz4_decode,
        Codec.ZSTD: codec.zstd_decode,
        Codec.SNAPPY: codec.snappy_decode,
    }[oddity.codec]
    assert bytes(read(oddity.blob)) == RECORDS
