"""Goes over a message by the library's description of it, before the library reads it.

The library sets memory aside for whatever number of elements is claimed, and refuses tagged fields
that it does not know, which the protocol demands to be skipped (KIP-482) and newer clients may send
at any time. So every message is checked here first, and such fields are taken out.

Invariant: a message that passes has no more elements than bytes; but for unknown tagged fields it
is left as it is, byte for byte.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from samelog.kafka.codec.primitives import MessageReader, MessageWriter

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
class FieldShape:
    """How one field lies in a message."""

    kind: str
    """A primitive's name; empty for a structure."""
    structure: Any
    is_array: bool
    is_nullable: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """How a structure lies in a message: fields in order, then the tags that are known."""

    fields: tuple[FieldShape, ...]
    tags: frozenset[int]


@cache
def layout_of(structure: Any) -> Layout:
    """The layout of one of the library's structures."""
    fields = dataclasses.fields(structure)
    plain = tuple(shape_of(field) for field in fields if "tag" not in field.metadata)
    return Layout(plain, frozenset(f.metadata["tag"] for f in fields if "tag" in f.metadata))


def shape_of(field: dataclasses.Field[Any]) -> FieldShape:
    """How a field of one of the library's structures lies in a message."""
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    is_structure = dataclasses.is_dataclass(inner)
    kind = "" if is_structure else field.metadata["kafka_type"]
    return FieldShape(kind, inner if is_structure else None, is_array, nullable)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) not in (UnionType, Union):
        return annotation, False
    inner = next(part for part in get_args(annotation) if part is not NoneType)
    return inner, True


def checked(structure: Any, data: memoryview) -> memoryview:
    """`data` as the library can read it. Raises MalformedRequest."""
    reader = MessageReader(data, flexible=structure.__flexible__)
    unknown: list[int] = []
    _walk(structure, reader, unknown)
    if not unknown:
        return data
    reader, writer = MessageReader(data, flexible=True), MessageWriter(flexible=True)
    _copy(structure, reader, writer)
    return memoryview(b"".join(bytes(part) for part in writer.drain()))


def _walk(structure: Any, reader: MessageReader, unknown: list[int]) -> None:
    """Go over a structure; note tags that are not known."""
    layout = layout_of(structure)
    for shape in layout.fields:
        for _ in range(reader.count() if shape.is_array else 1):
            if shape.structure is None:
                _skip(shape, reader)
            elif shape.is_array or not shape.is_nullable or reader.int8() != _NULL:
                _walk(shape.structure, reader, unknown)
    unknown.extend(tag for tag in reader.tags() if tag not in layout.tags)


def _skip(shape: FieldShape, reader: MessageReader) -> None:
    if shape.kind in _SIZES:
        reader.raw(_SIZES[shape.kind])
    elif shape.kind == "string":
        reader.skip_string()
    else:
        reader.nullable_bytes()


def _copy(structure: Any, reader: MessageReader, writer: MessageWriter) -> None:
    """Copy a structure of a flexible version, less the tags that are not known."""
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


def _copy_one(shape: FieldShape, reader: MessageReader, writer: MessageWriter) -> None:
    if shape.structure is None:
        start = reader.at
        _skip(shape, reader)
        writer.raw(reader.data[start : reader.at].tobytes())
        return
    if shape.is_nullable and not shape.is_array:
        marker = reader.int8()
        writer.int8(marker)
        if marker == _NULL:
            return
    _copy(shape.structure, reader, writer)
