"""`compression.type` of a topic: the codec in which batches of Kafka's producers are stored there.

A batch of another codec is compressed anew by the node that takes it, before it is in any log: so
all nodes have the same bytes.

Invariant: only the codec, the length and the CRC of a batch change; its records stay to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.format import _kernels as kernels
from samelog.format.batch import CODEC_BITS, HEADER_BYTES, LENGTH_PREFIX_BYTES
from samelog.format.compression import Codec, compress, unpack
from samelog.sequencer.state.topic_settings import COMPRESSION_TYPE, UNCOMPRESSED
from samelog.sequencer.state.types import Topic

_ATTRIBUTES_AT = 21
_CODECS: Mapping[str, Codec] = {
    UNCOMPRESSED: Codec.NONE,
    **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE},
}


def other_codec(topic: Topic, batch: memoryview) -> Codec | None:
    """The codec in which a sound batch is to be stored, None if that is the one that it has."""
    wanted = _CODECS.get(topic.settings.get(COMPRESSION_TYPE, ""))
    return None if wanted is None or wanted == batch[_ATTRIBUTES_AT + 1] & CODEC_BITS else wanted


def recompressed(batch: memoryview, codec: Codec, limit_bytes: int) -> bytes:
    """A sound batch in another codec. `limit_bytes`: what it may unpack to."""
    attributes = int.from_bytes(batch[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big")
    body = unpack(attributes & CODEC_BITS, batch[HEADER_BYTES:], limit_bytes=limit_bytes)
    changed = (attributes & ~CODEC_BITS | codec).to_bytes(2, "big")
    covered = b"".join(
        (changed, batch[_ATTRIBUTES_AT + 2 : HEADER_BYTES], compress(codec, bytes(body)))
    )
    length = (len(covered) + _ATTRIBUTES_AT - LENGTH_PREFIX_BYTES).to_bytes(4, "big")
    crc = kernels.crc32c(covered).to_bytes(4, "big")
    return b"".join((batch[:8], length, batch[12:17], crc, covered))
