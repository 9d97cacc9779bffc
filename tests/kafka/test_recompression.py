"""Batches in the codec that their topic has."""

from __future__ import annotations

from itertools import product

import pytest

from samelog.format import _kernels as kernels
from samelog.format import recompression as packing
from samelog.format.batch import HEADER_BYTES, read_header
from samelog.format.compression import Codec, decompress
from samelog.kafka import recompression
from samelog.sequencer.state.tables.topics import Topic
from tests.kafka.batches import packed

LIMIT_BYTES = 1 << 20


def topic(**settings: str) -> Topic:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Topic("t1", "t", named, 0, [1])


@pytest.mark.parametrize(("before", "after"), list(product(Codec, Codec)))
def test_only_the_codec_the_length_and_the_crc_change(before: Codec, after: Codec) -> None:
    batch = memoryview(packed(before, b"value" * 99, b"other"))
    made = memoryview(packing.recompressed(batch, after, LIMIT_BYTES))
    old, new = read_header(batch), read_header(made)
    assert (new.codec, new.size) == (after, len(made))
    body = decompress(after, made[HEADER_BYTES:])
    assert body == decompress(before, batch[HEADER_BYTES:])
    assert kernels.crc32c(made[21:]) == int.from_bytes(made[17:21], "big")
    same = [(0, 8), (12, 17), (23, HEADER_BYTES)]
    assert [made[a:b] for a, b in same] == [batch[a:b] for a, b in same]
    assert new.attributes & ~7 == old.attributes & ~7


def test_which_batches_have_another_codec_than_their_topic() -> None:
    gzip = memoryview(packed(Codec.GZIP, b"value"))
    plain = memoryview(packed(Codec.NONE, b"value"))
    assert recompression.other_codec(topic(), gzip) is None
    assert recompression.other_codec(topic(compression_type="producer"), gzip) is None
    assert recompression.other_codec(topic(compression_type="gzip"), gzip) is None
    assert recompression.other_codec(topic(compression_type="lz4"), gzip) is Codec.LZ4
    assert recompression.other_codec(topic(compression_type="uncompressed"), gzip) is Codec.NONE
    assert recompression.other_codec(topic(compression_type="uncompressed"), plain) is None
