"""Which codec a schema's values have.

Invariant: each format has one, and one codec serves a schema in a process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.arrow_values import ArrowCodec
from samelog.typed.values.avro_values import AvroCodec
from samelog.typed.values.codec import ValueCodec
from samelog.typed.values.csv_values import CsvCodec
from samelog.typed.values.json_values import JsonCodec

_CODECS: dict[SchemaFormat, Callable[[Schema], ValueCodec]] = {
    SchemaFormat.ARROW: ArrowCodec,
    SchemaFormat.AVRO: AvroCodec,
    SchemaFormat.CSV: CsvCodec,
    SchemaFormat.JSON: JsonCodec,
}


@lru_cache(maxsize=256)
def codec_of(schema: Schema) -> ValueCodec:
    """The codec of a schema's format. Raises ArrowMissing."""
    return _CODECS[schema.format](schema)
