"""What the formats have in common: values into tables, and which ones do not fit.

One decoder both checks and reads, so that who checks cannot take what a reader refuses, or sees
otherwise (docs/typed.md, T15).

Invariant: a value gives its rows, or a misfit and a row of nulls; one value never changes what
another one gives. A value that is null is a row of nulls, and fits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.misfits import Misfit, beginning
from samelog.typed.schema import Column, Schema
from samelog.typed.types import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

Cells = Sequence[Any]
"""What a parser made of a value, by column; None: null."""


class Unfit(ValueError):
    """A value does not fit; `column` is empty if it is none of the format."""

    def __init__(self, column: str, expected: str, found: object) -> None:
        super().__init__(f"{column}: not {expected}")
        self.column, self.expected, self.found = column, expected, found

    def at(self, index: int) -> Misfit:
        """The same, of a record."""
        return Misfit(index, self.column, self.expected, beginning(self.found))


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """`table` has the rows; `sources` says which value each is of (None: one row for each value, in
    order); `misfits` are the values that do not fit, in order.
    """

    table: pa.Table
    misfits: list[Misfit]
    sources: Sequence[int] | None = None


def reading_schema(schema: Schema) -> pa.Schema:
    """The columns of what is read: any may be null, in the row of a null value."""
    arrow = import_arrow()
    return arrow.schema([(column.name, arrow_type(column.type)) for column in schema.columns])


class ValueCodec(ABC):
    """One schema's values."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    @abstractmethod
    def encode(self, table: pa.Table) -> list[bytes]:
        """The values of a table's rows, whose columns are the schema's. Raises RowMisfit."""

    @abstractmethod
    def decode(self, values: Sequence[bytes | None]) -> DecodedValues:
        """The rows of the values, and what does not fit."""

    def check(self, values: Sequence[bytes | None]) -> list[Misfit]:
        """What does not fit."""
        return self.decode(values).misfits


class RowCodec(ValueCodec):
    """Of formats where a value is one row: parsed one by one, finished by column."""

    @abstractmethod
    def parse(self, value: bytes) -> Cells:
        """The cells of a value. Raises Unfit."""

    @abstractmethod
    def finish(self, cells: Cells, column: Column) -> pa.Array:
        """The cells of a column, none of which need be right, in its type. Raises ValueError,
        TypeError, OverflowError.
        """

    def decode(self, values: Sequence[bytes | None]) -> DecodedValues:
        """The rows, after parsing each value and finishing each column."""
        misfits: dict[int, Misfit] = {}
        rows = self._parse_all(values, misfits)
        by_column: Sequence[Cells] = list(zip(*rows, strict=True))
        columns = [
            self._finish(by_column[place] if rows else (), column, misfits)
            for place, column in enumerate(self.schema.columns)
        ]
        arrow = import_arrow()
        table = arrow.Table.from_arrays(columns, schema=reading_schema(self.schema))
        return DecodedValues(_without(table, misfits), [misfits[n] for n in sorted(misfits)])

    def _parse_all(self, values: Sequence[bytes | None], misfits: dict[int, Misfit]) -> list[Cells]:
        nothing: Cells = (None,) * len(self.schema.columns)
        rows = []
        for index, value in enumerate(values):
            row = nothing
            if value is not None:
                try:
                    row = self.parse(value)
                    self._check_nulls(row, value)
                except Unfit as unfit:
                    row, misfits[index] = nothing, unfit.at(index)
            rows.append(row)
        return rows

    def _check_nulls(self, row: Cells, value: bytes) -> None:
        if None in row:
            for cell, column in zip(row, self.schema.columns, strict=True):
                if cell is None and not column.is_nullable:
                    raise Unfit(column.name, column.type.text, value)

    def _finish(self, cells: Cells, column: Column, misfits: dict[int, Misfit]) -> Any:
        try:
            return self.finish(cells, column)
        except (ValueError, TypeError, OverflowError):
            kept = list(cells)
        for index, cell in enumerate(cells):
            try:
                self.finish((cell,), column)
            except (ValueError, TypeError, OverflowError):
                kept[index] = None
                misfits.setdefault(index, Unfit(column.name, column.type.text, cell).at(index))
        return self.finish(kept, column)


def finish_lists(
    cells: Cells,
    kind: ColumnType,
    item: ColumnType,
    finish: Callable[[Cells, ColumnType], pa.Array],
) -> pa.Array:
    """Lists, whose items `finish` makes."""
    arrow = import_arrow()
    offsets: list[int | None] = []
    items: list[Any] = []
    for cell in cells:
        offsets.append(None if cell is None else len(items))
        items += cell or ()
    places = arrow.array([*offsets, len(items)], arrow.int32())
    return arrow.ListArray.from_arrays(places, finish(items, item), type=arrow_type(kind))


def _without(table: pa.Table, misfits: dict[int, Misfit]) -> pa.Table:
    """The rows of misfits are null in every column."""
    if not misfits:
        return table
    arrow = import_arrow()
    places = arrow.array(
        [None if n in misfits else n for n in range(table.num_rows)], arrow.int64()
    )
    return table.take(places)
