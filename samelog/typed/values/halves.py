"""Decodes many values at once, and in halves down to the bad ones where some cannot be decoded.

Invariant: every value has a row, in order; a bad value never changes what another one gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from samelog.typed.arrow_types import import_arrow

if TYPE_CHECKING:
    import pyarrow as pa

Parse = Callable[["pa.Array"], "pa.Table"]
"""A row for each of the values, none of which is null; raises ArrowException or ValueError."""


class Decoded(NamedTuple):
    """`columns` has the rows; `sources`: which value each row is of (None: a row for each value, in
    order); `bad`: value -> why it cannot be decoded; its row is null.
    """

    columns: pa.Table
    sources: pa.Array | None
    bad: dict[int, str]


def decode_each(values: pa.Array, parse: Parse, schema: pa.Schema) -> Decoded:
    """A row for each value; that of a value that is null, or bad, is null."""
    arrow = import_arrow()
    present = values.is_valid()
    bad: dict[int, str] = {}
    places = count_up(0, len(values)).filter(present)
    tables = []
    for start, size, found in _halving(values.drop_null(), parse):
        if isinstance(found, str):
            bad[places[start].as_py()] = found
        elif size:
            tables.append(found)
    table = arrow.concat_tables(tables) if tables else schema.empty_table()
    if bad or values.null_count:
        table = table.take(_places(present, bad))
    return Decoded(table, None, bad)


def count_up(first: int, count: int) -> pa.Array:
    """The numbers [first, first + count), without any Python work for each."""
    from pyarrow import compute

    arrow = import_arrow()
    ones = arrow.repeat(arrow.scalar(1, arrow.int64()), count)
    return compute.cumulative_sum(ones, start=first - 1)


def _halving(
    values: pa.Array, parse: Parse, start: int = 0
) -> Iterator[tuple[int, int, pa.Table | str]]:
    """(first value, how many, their rows or why there are none) of pieces that parse or are one."""
    arrow = import_arrow()
    size = len(values)
    if size == 0:
        return
    try:
        yield start, size, parse(values)
    except arrow.ArrowNotImplementedError:
        raise  # of the schema: no value would do
    except (arrow.ArrowException, ValueError) as error:
        if size == 1:
            yield start, 1, str(error)
            return
        half = size // 2
        yield from _halving(values.slice(0, half), parse, start)
        yield from _halving(values.slice(half), parse, start + half)


def _places(present: pa.Array, bad: dict[int, str]) -> pa.Array:
    """Where the rows are of the values that have one; null for the others."""
    arrow = import_arrow()
    places, row = [], 0
    for value, is_present in enumerate(present.to_pylist()):
        has_row = is_present and value not in bad
        places.append(row if has_row else None)
        row += has_row
    return arrow.array(places, arrow.int64())
