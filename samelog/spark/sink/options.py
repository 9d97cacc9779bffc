"""The options of a query that writes, checked.

Invariant: as in `samelog.spark.options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name, check_topic_name
from samelog.spark.errors import BadOption

SINK_ID_MAX = 100
"""Characters; sessions are named after it."""
_KNOWN = {name.lower(): name for name in ("topic", "sinkId", "batchId", "config")}
_SPARKS_OWN = ("checkpointlocation", "path")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """`topic`: of all rows, whatever their column says. `sink_id`: under which the cluster
    remembers the last batch; by default that of the query, which its checkpoint keeps. `batch_id`:
    of the micro-batch that a batch query writes, within `foreachBatch`.
    """

    topic: str | None = None
    sink_id: str | None = None
    batch_id: int | None = None
    config: str | None = None


def parse_sink_options(told: Mapping[str, str]) -> SinkOptions:
    """The options as Spark hands them over. Raises BadOption."""
    texts = {}
    for name, text in told.items():
        lower = name.lower()
        if lower.startswith("kafka.") or lower in _SPARKS_OWN:
            continue
        if lower not in _KNOWN:
            raise BadOption(f"{name} is no option; those there are: {', '.join(_KNOWN.values())}")
        texts[_KNOWN[lower]] = text
    sink_id, topic = texts.get("sinkId"), texts.get("topic")
    try:
        if topic is not None:
            check_topic_name(topic)
        if sink_id is not None:
            check_session_name(sink_id)
    except InvalidName as error:
        raise BadOption(f"{'topic' if sink_id is None else 'topic or sinkId'}: {error}") from error
    if sink_id is not None and len(sink_id) > SINK_ID_MAX:
        raise BadOption(f"sinkId has {len(sink_id)} characters; {SINK_ID_MAX} are allowed")
    return SinkOptions(topic, sink_id, _batch_id(texts.get("batchId")), texts.get("config"))


def _batch_id(text: str | None) -> int | None:
    if text is not None and not (text.isascii() and text.isdigit()):
        raise BadOption(f"batchId: {text!r} is no number of a batch, as foreachBatch gives it")
    return None if text is None else int(text)
