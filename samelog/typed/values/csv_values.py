"""Values that are one line with the columns in their order, as RFC 4180 has lines.

A cell that is empty and not in quotation marks is null. Invariant: a line without quotation marks
is split at its commas; one with them is parsed strictly.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.schema import Column
from samelog.typed.types import ColumnType, TypeKind
from samelog.typed.values.codec import Cells, RowCodec, Unfit
from samelog.typed.values.texts import AS_TEXT, read_floats, read_texts, write_texts

if TYPE_CHECKING:
    import pyarrow as pa

_CELL = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^",\r\n]*))(?P<comma>,|\Z)')
_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_BOOLS = {"true": True, "false": False, None: None}
_NEEDS_QUOTES = re.compile('[",\r\n]')


class CsvCodec(RowCodec):
    """Lines of one schema."""

    def parse(self, value: bytes) -> Cells:
        """The cells of a line. Raises Unfit."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise Unfit("", "a line of UTF-8", value) from None
        cells = _split(text)
        if len(cells) != len(self.schema.columns):
            raise Unfit("", f"a line of {len(self.schema.columns)} columns", value)
        return cells

    def finish(self, cells: Cells, column: Column) -> pa.Array:
        """A column of texts, in its type."""
        kind = column.type
        if kind.kind in AS_TEXT:
            return read_texts(cells, kind)
        if kind.kind is TypeKind.FLOAT:
            return read_floats(cells, kind)
        return import_arrow().array(_READ[kind.kind](cells), arrow_type(kind))

    def encode(self, table: pa.Table) -> list[bytes]:
        """A line for each row. Raises RowMisfit."""
        columns = [
            _texts(table.column(column.name).combine_chunks(), column, column.type)
            for column in self.schema.columns
        ]
        return [",".join(row).encode() for row in zip(*columns, strict=True)]


def _split(text: str) -> list[str | None]:
    """Raises Unfit."""
    if '"' in text:
        return list(_quoted_cells(text))
    if "\n" in text or "\r" in text:
        raise Unfit("", "one line", text)
    return [cell or None for cell in text.split(",")]


def _quoted_cells(text: str) -> Iterator[str | None]:
    at, comma = 0, ","
    while comma:
        match = _CELL.match(text, at)
        if match is None:
            break
        quoted = match["quoted"]
        yield match["plain"] or None if quoted is None else quoted.replace('""', '"')
        at, comma = match.end(), match["comma"]
    if comma or at != len(text):
        raise Unfit("", "a line whose quotation marks are paired", text)


def _integers(cells: Cells) -> list[int | None]:
    for cell in cells:
        if cell is not None and not _INTEGER.fullmatch(cell):
            raise ValueError("no integer")
    return [None if cell is None else int(cell) for cell in cells]


def _bools(cells: Cells) -> list[bool | None]:
    try:
        return [_BOOLS[cell] for cell in cells]
    except KeyError as error:
        raise ValueError(f"{error} is not true or false") from error


def _bytes(cells: Cells) -> list[bytes | None]:
    return [None if cell is None else base64.b64decode(cell, validate=True) for cell in cells]


def _as_they_are(cells: Cells) -> Cells:
    return cells


_READ: dict[TypeKind, Any] = {
    TypeKind.INTEGER: _integers,
    TypeKind.BOOL: _bools,
    TypeKind.BINARY: _bytes,
    TypeKind.STRING: _as_they_are,
}


def _texts(array: Any, column: Column, kind: ColumnType) -> list[str]:
    """Cells as they are written; a text that is empty has quotation marks, a null has none."""
    if kind.kind in AS_TEXT:
        return [cell or "" for cell in write_texts(array, column, kind)]
    write = _WRITE.get(kind.kind, repr)
    return ["" if cell is None else write(cell) for cell in array.to_pylist()]


def _quoted(cell: str) -> str:
    if cell and not _NEEDS_QUOTES.search(cell):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _base64(cell: bytes) -> str:
    return _quoted(base64.b64encode(cell).decode())


def _bool(cell: bool) -> str:
    return str(cell).lower()


_WRITE: dict[TypeKind, Callable[[Any], str]] = {
    TypeKind.STRING: _quoted,
    TypeKind.BINARY: _base64,
    TypeKind.BOOL: _bool,
}
