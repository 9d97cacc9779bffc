"""`compression.type` of a topic: the codec in which batches of Kafka's producers are stored there.

The node that accepts a batch of another codec recompresses it before it is in any log, so that all
nodes have the same bytes.

Invariant: a batch is stored in the codec of its topic, whatever its producer chose.
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.format.batch import CODEC_BITS
from samelog.format.compression import Codec
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.topic_settings import COMPRESSION_TYPE, UNCOMPRESSED

_ATTRIBUTES_AT = 21
_CODECS: Mapping[str, Codec] = {
    UNCOMPRESSED: Codec.NONE,
    **{codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE},
}


def other_codec(topic: Topic, batch: memoryview) -> Codec | None:
    """The codec in which a sound batch is to be stored, None if that is the one that it has."""
    wanted = _CODECS.get(topic.settings.get(COMPRESSION_TYPE, ""))
    return None if wanted is None or wanted == batch[_ATTRIBUTES_AT + 1] & CODEC_BITS else wanted
