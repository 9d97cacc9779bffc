"""Values in Confluent's wire format, each by the schema that a registry has under its id.

Fields go by their names into the columns of the query. Invariant: what a column cannot hold makes
the value a bad one, and is never rounded; a registry that does not answer ends the query, because
nothing is known of the values then.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from samelog.admin.registry import SchemaRegistry
from samelog.spark.errors import NotReadable
from samelog.spark.payload.value_formats import Parse
from samelog.typed.framing import Frames
from samelog.typed.schema import NobodyAnswers

if TYPE_CHECKING:
    import pyarrow as pa


@lru_cache(maxsize=8)
def _frames(url: str) -> Frames:
    """Of this process: what an id means is asked once."""
    return Frames(SchemaRegistry(url))


def framed_parser(schema: pa.Schema, url: str) -> Parse:
    """Raises ArrowNotImplementedError if no value could have such columns."""
    import pyarrow as pa

    pa.Table.from_pylist([{}], schema=schema)
    return partial(_parse, schema, _frames(url))


def _parse(schema: pa.Schema, frames: Frames, values: pa.Array) -> pa.Table:
    import pyarrow as pa

    try:
        records = [frames.record(value) for value in values.to_pylist()]
    except NobodyAnswers as error:
        raise NotReadable(f"the schemas of values are not known: {error}") from error
    kinds = [(field.name, field.type) for field in schema]
    rows = [{name: _cell(record.get(name), kind) for name, kind in kinds} for record in records]
    try:
        return pa.Table.from_pylist(rows, schema=schema)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"a field does not fit its column: {error}") from error


def _cell(cell: Any, kind: Any) -> Any:
    """What Arrow would make another number of is refused. Raises ValueError."""
    import pyarrow as pa

    if cell is None:
        return None
    if pa.types.is_list(kind) and isinstance(cell, list):
        return [_cell(item, kind.value_type) for item in cell]
    if pa.types.is_struct(kind) and isinstance(cell, Mapping):
        return {field.name: _cell(cell.get(field.name), field.type) for field in kind}
    if pa.types.is_integer(kind) and isinstance(cell, float) and cell.is_integer():
        return int(cell)
    is_number = isinstance(cell, int) and not isinstance(cell, bool)
    if pa.types.is_integer(kind) and not is_number:
        raise ValueError(f"{cell!r} is no {kind}")
    if pa.types.is_temporal(kind) and is_number:
        raise ValueError(f"{cell!r} is no {kind}: nobody says in which unit")
    return cell
