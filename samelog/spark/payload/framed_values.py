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
from samelog.spark.errors import BadOption, NotReadable
from samelog.typed.framing import Frames
from samelog.typed.schema import NobodyAnswers
from samelog.typed.values.halves import Parse

if TYPE_CHECKING:
    import pyarrow as pa


@lru_cache(maxsize=8)
def _frames(url: str) -> Frames:
    """Of this process: what an id means is asked once. Raises BadOption."""
    try:
        return Frames(SchemaRegistry(url))
    except ValueError as error:
        raise BadOption(f"registry: {error}") from error


def framed_parser(schema: pa.Schema, url: str) -> Parse:
    """Raises ArrowNotImplementedError if no value could have such columns, and BadOption."""
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
    """A cell as Arrow takes it, and what it is inside. Raises ValueError."""
    import pyarrow as pa

    if pa.types.is_list(kind) and isinstance(cell, list):
        return [_cell(item, kind.value_type) for item in cell]
    if pa.types.is_struct(kind) and isinstance(cell, Mapping):
        return {field.name: _cell(cell.get(field.name), field.type) for field in kind}
    if isinstance(cell, int | float):
        return _number(cell, is_whole=pa.types.is_integer(kind), is_time=pa.types.is_temporal(kind))
    return cell


def _number(cell: float, *, is_whole: bool, is_time: bool) -> float:
    """Arrow would cut a fraction, and take any number for a time. Raises ValueError."""
    if is_time:
        raise ValueError(f"{cell!r} is no time: nobody says in which unit")
    if is_whole and (isinstance(cell, bool) or cell != cell // 1):
        raise ValueError(f"{cell!r} is no whole number")
    return int(cell) if is_whole else cell
