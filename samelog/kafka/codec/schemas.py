"""Every message but Produce's and Fetch's, by the library that has Kafka's own descriptions.

A response is a value of the type that stands beside its API, whose fields have the names of Kafka's
description. What a version does not have is left out of that version; what a type does not have
keeps its default. The throttle time is added here, not by handlers. Times are in milliseconds.
Descriptions are loaded when a version is first used.

Bytes behind a request's end are passed over, as Kafka's broker does: librdkafka 2.16 sends some
behind Metadata.

A message is gone over by the library's description of it, before the library reads it. The library
sets memory aside for whatever number of elements is claimed, and refuses tagged fields that it does
not know, which the protocol demands to be skipped (KIP-482) and newer clients may send at any time.
So every message is checked here first, and such fields are taken out.

Invariant: reading raises MalformedRequest and nothing else, whatever the bytes; nothing is written
of a field that no version has, or of null where the description forbids it (InvalidResponse).
Also: a message that passes has no more elements than bytes; but for unknown tagged fields it
is left as it is, byte for byte.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
from collections.abc import Mapping, Sequence
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta, i64Timedelta

from samelog.kafka.codec.errors import InvalidResponse, MalformedRequest
from samelog.kafka.codec.primitives import ByteBuffer, MessageReader, MessageWriter

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
request_structure, response_structure = cache(load_request_schema), cache(load_response_schema)
"""By key and version; the library looks for the module each time."""
PartT = TypeVar("PartT")


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
        for _ in range(reader.count(nullable=shape.is_nullable) if shape.is_array else 1):
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
            count = reader.count(nullable=shape.is_nullable)
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


BODY_BYTES = 2 << 20
"""No request but Produce is ever longer; values take many times as much memory as their bytes."""
THROTTLE = "throttle_time"
_DURATIONS = {"timedelta_i32": i32Timedelta, "timedelta_i64": i64Timedelta}


class _Moment:
    """Of the wall clock."""

    @staticmethod
    def parse(since_1970: datetime.timedelta) -> datetime.datetime:
        """The library's value."""
        return datetime.datetime.fromtimestamp(0, datetime.UTC) + since_1970


_TIMES = {**_DURATIONS, "datetime_i64": _Moment}


class Entity(msgspec.Struct, frozen=True):
    """A part of a response."""


class ResponseBody(Entity, frozen=True):
    """A response as a whole. Implements api.KafkaResponse."""

    def record_bytes(self) -> int:
        """None of these has records."""
        return 0

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body. Raises InvalidResponse."""
        return [write_response(key, version, self, throttle_ms)]


class TopicAnswers(Entity, Generic[PartT], frozen=True):
    """The partitions of a topic."""

    name: str
    partitions: Sequence[PartT]


class PartitionError(Entity, frozen=True):
    """What became of one partition, where nothing else is told."""

    partition_index: int
    error_code: ErrorCode


class TopicsResponse(ResponseBody, Generic[PartT], frozen=True):
    """A response that tells of partitions, by topic, and of nothing else."""

    topics: Sequence[TopicAnswers[PartT]]


def read_request(key: int, version: int, body: memoryview) -> Any:
    """A request's body. Raises MalformedRequest."""
    if len(body) > BODY_BYTES:
        raise MalformedRequest(
            f"{len(body)} bytes; at most {BODY_BYTES} are taken of such a request"
        )
    return _read(request_structure(key, version), body)


def read_response(key: int, version: int, body: bytes) -> Any:
    """A response's body, as a client would read it. Raises MalformedRequest."""
    return _read(response_structure(key, version), memoryview(body))


def _read(structure: Any, body: memoryview) -> Any:
    try:
        return entity_reader(structure)(checked(structure, body), 0)[0]
    except (SerialError, ValueError, OverflowError, KeyError) as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from error


def write_response(key: int, version: int, response: ResponseBody, throttle_ms: int = 0) -> bytes:
    """A response's body; `throttle_ms`: how long the client is to wait. Raises InvalidResponse."""
    structure = response_structure(key, version)
    values = _values(structure, response)
    throttle = _plans(structure).get(THROTTLE)
    if throttle is not None:
        values[THROTTLE] = _value(structure, throttle, throttle_ms)
    return _write(structure, structure(**values))


def write_request(key: int, version: int, tree: Mapping[str, Any]) -> bytes:
    """A request's body, as a client would write it. Raises InvalidResponse."""
    structure = request_structure(key, version)
    return _write(structure, build(structure, tree))


def _write(structure: Any, entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(structure)(out, entity)
    return out.getvalue()


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldPlan:
    """How a field of the library's structure is made of a given value."""

    name: str
    structure: Any
    time: Any
    is_array: bool
    is_nullable: bool


@cache
def _plans(structure: Any) -> dict[str, _FieldPlan]:
    return {field.name: _plan(field) for field in dataclasses.fields(structure)}


def _plan(field: dataclasses.Field[Any]) -> _FieldPlan:
    shape = shape_of(field)
    time = _TIMES.get(shape.kind)
    return _FieldPlan(field.name, shape.structure, time, shape.is_array, shape.is_nullable)


@cache
def _plans_of(structure: Any, names: tuple[str, ...]) -> tuple[_FieldPlan, ...]:
    """Those of the named fields that this version has. Raises InvalidResponse for a name that no
    version has. Checked once for each set of names.
    """
    plans = _plans(structure)
    unknown = {name for name in names if name not in plans}
    unknown -= _names_of_other_versions(structure) if unknown else set()
    if unknown:
        raise InvalidResponse(f"{structure.__name__} has no {', '.join(sorted(unknown))}")
    return tuple(plans[name] for name in names if name in plans)


def _names_of_other_versions(structure: Any) -> set[str]:
    package, _, kind = structure.__module__.rsplit(".", 2)
    found = set()
    for version in schema_name_map[api_key_map[structure.__api_key__]]:
        module = importlib.import_module(f"{package}.v{version}.{kind}")
        same = getattr(module, structure.__name__, None)
        if same is not None:
            found |= {field.name for field in dataclasses.fields(same)}
    return found


def build(structure: Any, given: Entity | Mapping[str, Any]) -> Any:
    """One of the library's structures, of a value that has its fields. Raises InvalidResponse."""
    return structure(**_values(structure, given))


def _values(structure: Any, given: Entity | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        names, read = tuple(given), given.__getitem__
    else:
        names, read = given.__struct_fields__, partial(getattr, given)
    return {
        plan.name: _value(structure, plan, read(plan.name)) for plan in _plans_of(structure, names)
    }


def _value(structure: Any, plan: _FieldPlan, value: Any) -> Any:
    if value is None:
        if not plan.is_nullable:
            raise InvalidResponse(f"{plan.name} of {structure.__name__} may not be null")
        return None
    if plan.time is not None:
        return plan.time.parse(datetime.timedelta(milliseconds=value))
    if plan.structure is not None and plan.is_array:
        return tuple([build(plan.structure, element) for element in value])
    if plan.structure is not None:
        return build(plan.structure, value)
    return tuple(value) if plan.is_array else value
