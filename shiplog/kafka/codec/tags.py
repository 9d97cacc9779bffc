"""Takes tagged fields that are not known out of a message, so that it can be read.

The protocol demands that they are skipped (KIP-482), the library that reads messages for us refuses
them. Newer clients may send them at any time. This goes over the message by the library's own
description of it, and is needed for such messages only.

Invariant: everything else stays as it is, byte for byte.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from shiplog.kafka.codec.primitives import Reader, Writer

_SIZES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_NULL = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How one field lies in a message."""

    kind: str
    """A primitive's name; empty for a structure."""
    structure: Any
    is_array: bool
    is_nullable: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How a structure lies in a message: fields in order, then the tags that are known."""

    fields: tuple[Shape, ...]
    tags: frozenset[int]


@cache
def layout_of(structure: Any) -> Layout:
    """The layout of one of the library's structures."""
    fields = dataclasses.fields(structure)
    plain = tuple(shape_of(field) for field in fields if "tag" not in field.metadata)
    return Layout(plain, frozenset(f.metadata["tag"] for f in fields if "tag" in f.metadata))


def shape_of(field: dataclasses.Field[Any]) -> Shape:
    """How a field of one of the library's structures lies in a message."""
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    is_structure = dataclasses.is_dataclass(inner)
    kind = "" if is_structure else field.metadata["kafka_type"]
    return Shape(kind, inner if is_structure else None, is_array, nullable)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    inner = next(part for part in get_args(annotation) if part is not NoneType)
    return inner, True


def without_unknown_tags(structure: Any, data: memoryview) -> bytes:
    """`data`, a message of a flexible version, less the tagged fields that `structure` does not
    have. Raises MalformedRequest.
    """
    reader, writer = Reader(data, flexible=True), Writer(flexible=True)
    _copy(structure, reader, writer)
    reader.finish()
    return b"".join(bytes(part) for part in writer.take())


def _copy(structure: Any, reader: Reader, writer: Writer) -> None:
    layout = layout_of(structure)
    for shape in layout.fields:
        count = 1
        if shape.is_array:
            start = reader.at
            count = reader.count()
            writer.raw(reader.data[start : reader.at].tobytes())
        for _ in range(count):
            _copy_one(shape, reader, writer)
    known = [(tag, bytes(value)) for tag, value in reader.tags().items() if tag in layout.tags]
    writer.tags(known)


def _copy_one(shape: Shape, reader: Reader, writer: Writer) -> None:
    if shape.structure is None:
        start = reader.at
        if shape.kind in _SIZES:
            reader.raw(_SIZES[shape.kind])
        else:
            reader.nullable_bytes()
        writer.raw(reader.data[start : reader.at].tobytes())
        return
    if shape.is_nullable and not shape.is_array:
        marker = reader.int8()
        writer.int8(marker)
        if marker == _NULL:
            return
    _copy(shape.structure, reader, writer)
