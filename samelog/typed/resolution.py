"""Rows that were written with one version of a schema, as rows of another: by Avro's rules.

Invariant: rows come out with the reader's columns and equal values, or are misfits. Nothing becomes
null that was not, and nothing is rounded but large integers by float64 (docs/typed.md, T10).
"""

from __future__ import annotations

from typing import Any

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.compatibility import problems_reading
from samelog.typed.misfits import Misfit, beginning
from samelog.typed.schema import Column, Schema
from samelog.typed.types import TypeKind
from samelog.typed.values.codec import DecodedValues, reading_schema


class Unresolvable(ValueError):
    """What was written with one version is never read as another."""


class Resolution:
    """From a writer's schema to a reader's. Raises Unresolvable."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        problems = problems_reading(reader, writer)
        if problems:
            raise Unresolvable("; ".join(problems))
        self._writer, self._reader = writer, reader

    def resolve(self, decoded: DecodedValues) -> DecodedValues:
        """The rows with the reader's columns; those of misfits mean nothing. A column that the
        writer lacks has its default.
        """
        if self._writer.fingerprint == self._reader.fingerprint:
            return decoded
        misfits = {misfit.index: misfit for misfit in decoded.misfits}
        columns = [self._column(decoded, column, misfits) for column in self._reader.columns]
        table = import_arrow().Table.from_arrays(columns, schema=reading_schema(self._reader))
        return DecodedValues(table, [misfits[n] for n in sorted(misfits)], decoded.sources)

    def _column(self, decoded: DecodedValues, column: Column, misfits: dict[int, Misfit]) -> Any:
        arrow, kind = import_arrow(), arrow_type(column.type)
        if column.name not in self._writer.by_name:
            return arrow.repeat(arrow.scalar(column.default, kind), decoded.table.num_rows)
        written = decoded.table.column(column.name)
        try:
            return written.cast(kind, safe=column.type.kind is not TypeKind.FLOAT)
        except ValueError:  # bytes that are no text: of all that widens, only these may fail
            return _one_by_one(decoded, written, column, misfits)


def _one_by_one(
    decoded: DecodedValues, written: Any, column: Column, misfits: dict[int, Misfit]
) -> Any:
    arrow, kind = import_arrow(), arrow_type(column.type)
    sources = decoded.sources or range(decoded.table.num_rows)
    kept: list[Any] = []
    for row, index in enumerate(sources):
        one = written.slice(row, 1).combine_chunks()
        try:
            kept.append(one.cast(kind))
        except ValueError:
            shown = beginning(one[0].as_py())
            misfits.setdefault(index, Misfit(index, column.name, column.type.text, shown))
            kept.append(arrow.nulls(1, kind))
    return arrow.chunked_array(kept, kind)
