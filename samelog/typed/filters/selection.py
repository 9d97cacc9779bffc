"""Which rows a reader wants, and which of their columns: the same for whoever reads.

Invariant: a row that is left out did not meet the condition; what could not be read is neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from samelog.typed.arrow_types import import_arrow
from samelog.typed.filters.filter import Filter
from samelog.typed.filters.operands import BadFilter
from samelog.typed.reading import TypedRows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """A condition (docs/typed.md, "Filters") and columns; None: all."""

    where: str | None = None
    columns: Sequence[str] | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.where is None and self.columns is None


class Selection:
    """What is wanted of rows with these columns. Raises BadFilter, ArrowMissing."""

    def __init__(self, wanted: RowsWanted, rows: pa.Schema, records: pa.Schema) -> None:
        """`records`: the columns of the records that rows are of."""
        self._columns = None if wanted.columns is None else list(wanted.columns)
        unknown = sorted({*(self._columns or ())} - {*rows.names})
        if unknown:
            known = ", ".join(rows.names)
            raise BadFilter(f"there is no column {unknown[0]!r}; there are {known}")
        self._filter = None if wanted.where is None else Filter(wanted.where, rows, records)

    def of(self, found: TypedRows, records: pa.Table) -> TypedRows:
        """The rows and columns that are wanted."""
        table, sources = found.table, found.sources
        if self._filter is not None:
            arrow = import_arrow()
            taken = records.take(arrow.array(sources, arrow.int64()))
            mask = self._filter.mask(table, taken)
            table, passed = table.filter(mask), mask.to_pylist()
            sources = [source for source, passes in zip(sources, passed, strict=True) if passes]
        if self._columns is not None:
            table = table.select(self._columns)
        return replace(found, table=table, sources=sources)
