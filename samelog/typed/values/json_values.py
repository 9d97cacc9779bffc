"""Values that are JSON objects: decoded by msgspec, by types made of the schema.

Times, dates and decimals are texts, bytes are base64. Invariant: a number of an integer column is
written without a fraction and within its type; members that the schema lacks do not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.misfits import Misfit, RowMisfit, beginning
from samelog.typed.schema import Column, Schema
from samelog.typed.types import ColumnType, TypeKind
from samelog.typed.values.codec import Cells, RowCodec, Unfit, finish_lists
from samelog.typed.values.texts import AS_TEXT, read_floats, read_texts, write_texts

if TYPE_CHECKING:
    import pyarrow as pa

_PATH = re.compile(r"(?: - at `\$\.(.+)`|field `(.+)`)$", re.DOTALL)
_PLAIN: dict[TypeKind, type] = {
    TypeKind.BOOL: bool,
    TypeKind.FLOAT: float,
    TypeKind.STRING: str,
    TypeKind.BINARY: bytes,
    TypeKind.TIMESTAMP: str,
    TypeKind.DATE: str,
    TypeKind.DECIMAL: str,
}


class JsonCodec(RowCodec):
    """JSON objects of one schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._row = _row_type(schema)
        self._decode = msgspec.json.Decoder(self._row).decode
        self._unfinished = [
            (place, column)
            for place, column in enumerate(schema.columns)
            if not _is_checked_by_type(column.type)
        ]

    def check(self, values: Sequence[bytes | None]) -> list[Misfit]:
        """What does not fit; tables are made only of columns whose types msgspec does not know."""
        if self._unfinished:
            return self.decode(values).misfits
        decode = self._decode
        try:
            for value in values:
                if value is not None:
                    decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._misfits(values)
        return []

    def _misfits(self, values: Sequence[bytes | None]) -> list[Misfit]:
        misfits: dict[int, Misfit] = {}
        self._parse_all(values, misfits)
        return list(misfits.values())

    def parse(self, value: bytes) -> Cells:
        """The members, in the order of the columns. Raises Unfit."""
        try:
            return msgspec.structs.astuple(self._decode(value))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._unfit(value, str(error)) from None

    def _parse_all(self, values: Sequence[bytes | None], misfits: dict[int, Misfit]) -> list[Cells]:
        """One by one only if one of them does not fit."""
        nothing: Cells = (None,) * len(self.schema.columns)
        decode, cells = self._decode, msgspec.structs.astuple
        try:
            return [nothing if value is None else cells(decode(value)) for value in values]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return super()._parse_all(values, misfits)

    def _check_nulls(self, row: Cells, value: bytes) -> None:
        """The types have done it."""

    def _unfit(self, value: bytes, message: str) -> Unfit:
        match = _PATH.search(message)
        path = (match[1] or match[2]) if match else ""
        name = path if path in self.schema.by_name else re.split(r"[.\[]", path, maxsplit=1)[0]
        column = self.schema.by_name.get(name)
        if column is not None:
            return Unfit(name, column.type.text, value)
        if path:
            return Unfit(path, "a column of the schema", value)
        return Unfit("", "a JSON object", value)

    def finish(self, cells: Cells, column: Column) -> pa.Array:
        """A column of what msgspec decoded."""
        return finish_cells(cells, column.type)

    def encode(self, table: pa.Table) -> list[bytes]:
        """An object for each row, with all columns. Raises RowMisfit."""
        columns = [
            _plain(table.column(column.name).combine_chunks(), column, column.type)
            for column in self.schema.columns
        ]
        encode, names = msgspec.json.Encoder().encode, self.schema.names
        return [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


@lru_cache(maxsize=256)
def _row_type(schema: Schema) -> type[msgspec.Struct]:
    """A struct of these columns; its fields have names of their own, since columns may be called
    anything.
    """
    fields: list[Any] = []
    for place, column in enumerate(schema.columns):
        kind = json_type(column.type)
        if column.is_nullable:
            kind = kind | None
        field = (f"c{place}", kind)
        fields.append((*field, column.default) if column.may_lack else field)
    return msgspec.defstruct(
        "Row",
        fields,
        rename={f"c{place}": name for place, name in enumerate(schema.names)},
        forbid_unknown_fields=True,
        frozen=True,
        kw_only=True,
        gc=False,
    )


def json_type(kind: ColumnType) -> Any:
    """The type that msgspec decodes the cells of a column as."""
    if kind.item is not None:
        return list[json_type(kind.item) | None]  # type: ignore[misc]
    if kind.kind is TypeKind.INTEGER:
        least, most = kind.limits
        return Annotated[int, msgspec.Meta(ge=least, le=None if kind.text == "uint64" else most)]
    return _PLAIN[kind.kind]


def _is_checked_by_type(kind: ColumnType) -> bool:
    if kind.item is not None:
        return _is_checked_by_type(kind.item)
    return kind.kind not in AS_TEXT and kind.text not in ("uint64", "float32")


def finish_cells(cells: Cells, kind: ColumnType) -> Any:
    """What msgspec decoded, in the column's type. Raises ValueError, TypeError, OverflowError."""
    arrow = import_arrow()
    if kind.item is not None:
        return finish_lists(cells, kind, kind.item, finish_cells)
    if kind.kind in AS_TEXT:
        return read_texts(cells, kind)
    if kind.kind is TypeKind.FLOAT:
        return read_floats(cells, kind)
    return arrow.array(cells, arrow_type(kind))


def _plain(array: Any, column: Column, kind: ColumnType) -> list[Any]:
    """What msgspec encodes. Raises RowMisfit."""
    if kind.item is not None:
        return _plain_lists(array, column, kind.item)
    if kind.kind in AS_TEXT:
        return list(write_texts(array, column, kind))
    values: list[Any] = array.to_pylist()
    if kind.kind is TypeKind.FLOAT:
        for index, value in enumerate(values):
            if value is not None and not math.isfinite(value):
                raise RowMisfit(Misfit(index, column.name, "a number of JSON", beginning(value)))
    return values


def _plain_lists(array: Any, column: Column, item: ColumnType) -> list[Any]:
    """A misfit names the row that has the list."""
    rows: list[Any] = []
    for index in range(len(array)):
        one = array[index]
        try:
            rows.append(_plain(one.values, column, item) if one.is_valid else None)
        except RowMisfit as found:
            inner = found.misfit
            raise RowMisfit(Misfit(index, inner.column, inner.expected, inner.found)) from None
    return rows
