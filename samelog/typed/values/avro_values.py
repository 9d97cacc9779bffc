"""Values that are records in Avro's binary encoding, without a header.

Logical types are numbers on the way: the encoding is the same, and nothing is rounded by a library.
Invariant: a value is one record, to its last byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from samelog.format.arrow import ArrowMissing
from samelog.typed.arrow_types import arrow_type, import_arrow
from samelog.typed.schema import Column, Schema
from samelog.typed.types import ColumnType, TypeKind
from samelog.typed.values.codec import Cells, RowCodec, Unfit, finish_lists
from samelog.typed.values.texts import read_floats

if TYPE_CHECKING:
    import pyarrow as pa

_EXACT = Context(prec=80)
_UNITS = {"ms": "timestamp-millis", "us": "timestamp-micros", "ns": "timestamp-nanos"}


class AvroCodec(RowCodec):
    """Avro records of one schema."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._library = import_fastavro()
        self._plain = self._library.parse_schema(avro_schema(schema, is_plain=True))

    def parse(self, value: bytes) -> Cells:
        """The fields of a record. Raises Unfit."""
        stream = BytesIO(value)
        try:
            record: Any = self._library.schemaless_reader(stream, self._plain, None)
        except Exception:  # noqa: BLE001  # the library raises whatever its decoding stumbles over
            raise Unfit("", "an Avro record of the schema", value) from None
        if stream.tell() != len(value):
            raise Unfit("", "one Avro record, with nothing behind it", value)
        return [record[f"c{place}"] for place in range(len(self.schema.columns))]

    def finish(self, cells: Cells, column: Column) -> pa.Array:
        """A column of what the library decoded."""
        return _finish(cells, column.type)

    def encode(self, table: pa.Table) -> list[bytes]:
        """A record for each row."""
        columns = [
            _plain(table.column(column.name).combine_chunks(), column.type)
            for column in self.schema.columns
        ]
        names = [f"c{place}" for place in range(len(columns))]
        write, values = self._library.schemaless_writer, []
        for row in zip(*columns, strict=True):
            stream = BytesIO()
            write(stream, self._plain, dict(zip(names, row, strict=True)))
            values.append(stream.getvalue())
        return values


def avro_schema(schema: Schema, *, is_plain: bool = False) -> dict[str, Any]:
    """The schema as Avro's JSON, for registries. `is_plain`: without logical types, and with fields
    whose names any column may have; the encoding is the same.
    """
    fields = []
    for place, column in enumerate(schema.columns):
        kind = _avro_type(column.type, is_plain=is_plain)
        field: dict[str, Any] = {"name": f"c{place}" if is_plain else column.name, "type": kind}
        if column.is_nullable:
            field["type"] = ["null", kind]
        if not is_plain and column.may_lack:
            if column.is_nullable and column.default is not None:
                field["type"] = [kind, "null"]
            field["default"] = column.default
        fields.append(field)
    return {"type": "record", "name": "Row", "fields": fields}


def _avro_type(kind: ColumnType, *, is_plain: bool) -> Any:
    if kind.item is not None:
        item = _avro_type(kind.item, is_plain=is_plain)
        return {"type": "array", "items": ["null", item]}
    if kind.kind is TypeKind.INTEGER:
        return "int" if kind.bits < 32 or kind.text == "int32" else "long"
    logical = _logical(kind)
    if logical is None:
        return _NAMES[kind.text]
    return _BASES[kind.kind] if is_plain else {"type": _BASES[kind.kind], **logical}


def _logical(kind: ColumnType) -> dict[str, Any] | None:
    """What Avro says of a number or bytes that mean something else."""
    match kind.kind:
        case TypeKind.DATE:
            return {"logicalType": "date"}
        case TypeKind.TIMESTAMP:
            unit = _UNITS[kind.unit]
            return {"logicalType": unit if kind.zone else f"local-{unit}"}
        case TypeKind.DECIMAL:
            return {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return None


_BASES = {TypeKind.DATE: "int", TypeKind.TIMESTAMP: "long", TypeKind.DECIMAL: "bytes"}
_NAMES = {
    "bool": "boolean",
    "float32": "float",
    "float64": "double",
    "string": "string",
    "binary": "bytes",
}


@lru_cache(maxsize=1)
def import_fastavro() -> Any:
    """The library. Raises ArrowMissing."""
    try:
        import fastavro
    except ImportError as error:
        raise ArrowMissing(
            "values of Avro need fastavro: install samelog with the extra 'typed'"
        ) from error
    return fastavro


def _finish(cells: Cells, kind: ColumnType) -> Any:
    arrow = import_arrow()
    if kind.item is not None:
        return finish_lists(cells, kind, kind.item, _finish)
    match kind.kind:
        case TypeKind.FLOAT:
            return read_floats(cells, kind)
        case TypeKind.DATE:
            return arrow.array(cells, arrow.int32()).cast(arrow_type(kind))
        case TypeKind.TIMESTAMP:
            return arrow.array(cells, arrow.int64()).cast(arrow_type(kind))
        case TypeKind.DECIMAL:
            return arrow.array([_to_decimal(cell, kind) for cell in cells], arrow_type(kind))
        case _:
            return arrow.array(cells, arrow_type(kind))


def _to_decimal(cell: bytes | None, kind: ColumnType) -> Decimal | None:
    if cell is None:
        return None
    if len(cell) > 17:
        raise OverflowError(f"more than {kind.precision} digits")
    return Decimal(int.from_bytes(cell, "big", signed=True)).scaleb(-kind.scale, _EXACT)


def _plain(array: Any, kind: ColumnType) -> Sequence[Any]:
    """What the library encodes."""
    arrow = import_arrow()
    if kind.item is not None:
        return [_plain(one.values, kind.item) if one.is_valid else None for one in array]
    match kind.kind:
        case TypeKind.DATE:
            array = array.cast(arrow.int32())
        case TypeKind.TIMESTAMP:
            array = array.cast(arrow.int64())
        case TypeKind.DECIMAL:
            return [_to_bytes(cell, kind) for cell in array.to_pylist()]
    cells: list[Any] = array.to_pylist()
    return cells


def _to_bytes(cell: Decimal | None, kind: ColumnType) -> bytes | None:
    if cell is None:
        return None
    number = int(cell.scaleb(kind.scale, _EXACT))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
