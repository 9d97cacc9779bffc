"""Cells as texts, for formats that have nothing better: times, dates, decimals.

Invariant: a text that is written is read as the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.misfits import Misfit, RowMisfit, beginning
from samelog.typed.schema import Column
from samelog.typed.types import ColumnType, TypeKind

if TYPE_CHECKING:
    import pyarrow as pa

AS_TEXT = {TypeKind.TIMESTAMP, TypeKind.DATE, TypeKind.DECIMAL}


def write_texts(array: Any, column: Column, kind: ColumnType) -> list[str | None]:
    """Texts of times (RFC 3339), dates and decimals. Raises RowMisfit: a time that no text of four
    digits for the year has.
    """
    from pyarrow import compute

    texts = array.cast(import_arrow().string())
    if kind.kind is TypeKind.TIMESTAMP:
        texts = compute.replace_substring(texts, " ", "T", max_replacements=1)
    found: list[str | None] = texts.to_pylist()
    try:
        if read_texts(found, kind).equals(array):
            return found
    except ValueError:
        pass
    for index, text in enumerate(found):
        if text is not None and not _is_read_back(text, array.slice(index, 1), kind):
            raise RowMisfit(Misfit(index, column.name, kind.text, beginning(text)))
    return found


def _is_read_back(text: str, one: pa.Array, kind: ColumnType) -> bool:
    try:
        return bool(read_texts([text], kind).equals(one))
    except ValueError:
        return False


def read_texts(texts: Sequence[str | None], kind: ColumnType) -> pa.Array:
    """The values of texts. Raises ValueError, TypeError."""
    arrow = import_arrow()
    return arrow.array(texts, arrow.string()).cast(arrow_type(kind))


def read_floats(numbers: Sequence[Any], kind: ColumnType) -> pa.Array:
    """Numbers or texts as floats; what is finite stays finite. Raises OverflowError, ValueError,
    TypeError.
    """
    from pyarrow import compute

    arrow = import_arrow()
    exact = arrow.array(numbers)
    if arrow.types.is_null(exact.type) or not len(exact):
        return arrow.nulls(len(exact), arrow_type(kind))
    cast = exact.cast(arrow_type(kind))
    infinite = compute.is_inf(cast)
    if compute.any(infinite).as_py():
        for number, is_infinite in zip(numbers, infinite.to_pylist(), strict=True):
            if is_infinite and not _says_infinite(number):
                raise OverflowError(f"too large for {kind.text}")
    return cast


def _says_infinite(number: Any) -> bool:
    return "inf" in number.lower() if isinstance(number, str) else number in (_INF, -_INF)


_INF = float("inf")
