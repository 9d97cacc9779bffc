"""Every message but Produce's and Fetch's, read and written by Kafka's own descriptions.

A response is a value of the type that stands beside its API, whose fields have the names of Kafka's
description. What a version does not have is left out of that version; what a type does not have
keeps its default. The throttle time is added here, not by handlers.

Bytes behind a request's end are passed over, as Kafka's broker does: librdkafka 2.16 sends some
behind Metadata. Tagged fields that are not known are skipped, as the protocol demands (KIP-482).

Invariant: reading raises MalformedRequest and nothing else, whatever the bytes; nothing is written
of a field that no version has, or of null where the description forbids it (InvalidResponse).
Also: a message has no more elements than bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from samelog.format.errors import InvariantError
from samelog.format.steps import StepWork
from samelog.kafka.codec.descriptions import (
    NEEDED,
    Field,
    Structure,
    structure_of,
)
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import InvalidResponse, MalformedRequest
from samelog.kafka.codec.primitives import (
    ELEMENTS_AT_ONCE,
    ELEMENTS_UNLIMITED,
    UUID_BYTES,
    WRITTEN_AT_ONCE,
    ByteBuffer,
    MessageReader,
    MessageWriter,
)

BODY_BYTES = 2 << 20
"""Limit of every request but Produce: values take many times as much memory as their bytes."""
THROTTLE = "throttle_time_ms"
_FLOAT64 = struct.Struct(">d")
_UINT16 = 1 << 16
_LONG = ("", "bytes", "string", "uuid")
"""What could be null, and is no number."""
PartT = TypeVar("PartT")
FieldReader = Callable[[MessageReader], Any]
FieldWriter = Callable[[MessageWriter, Any], None]


class Entity(msgspec.Struct, frozen=True):
    """A part of a response."""


class ResponseBody(Entity, frozen=True):
    """A response as a whole. Implements api.KafkaResponse."""

    def record_bytes(self) -> int:
        """None of these has records."""
        return 0

    def encode(self, key: int, version: int, throttle_ms: int) -> list[ByteBuffer]:
        """The body. Raises InvalidResponse, ManyElements."""
        return [write_response(key, version, self, throttle_ms)]

    def encoding(self, key: int, version: int, throttle_ms: int) -> StepWork[list[ByteBuffer]]:
        """As `encode`, in steps, for a response of any size. Raises InvalidResponse."""
        structure, given = _with_throttle(key, version, self, throttle_ms)
        writer = MessageWriter(flexible=structure.is_flexible, elements=ELEMENTS_UNLIMITED)
        try:
            yield from _writing(structure, writer, given)
        except (TypeError, OverflowError) as error:
            raise InvalidResponse(f"{structure.name}: {error}") from error
        return writer.drain()


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
    """A request's body. Raises MalformedRequest, ManyElements."""
    structure = structure_of("request", key, version)
    reader = MessageReader(body, flexible=structure.is_flexible, elements=ELEMENTS_AT_ONCE)
    return _reader_of(structure)(reader)


def reading_request(key: int, version: int, reader: MessageReader) -> StepWork[Any]:
    """As `read_request`, in steps, for a request of as many elements as `reader` takes."""
    return _reading(structure_of("request", key, version), reader)


def read_response(key: int, version: int, body: ByteBuffer) -> Any:
    """A response's body, as a client would read it. Raises MalformedRequest."""
    return read_message(structure_of("response", key, version), body)


def read_message(structure: Structure, body: ByteBuffer) -> Any:
    """A message with the fields of its version. Raises MalformedRequest."""
    return _reader_of(structure)(MessageReader(body, flexible=structure.is_flexible))


def write_response(key: int, version: int, response: ResponseBody, throttle_ms: int = 0) -> bytes:
    """A response's body; `throttle_ms`: how long the client is to wait. Raises InvalidResponse."""
    structure, given = _with_throttle(key, version, response, throttle_ms)
    return write_message(structure, given, WRITTEN_AT_ONCE)


def _with_throttle(
    key: int, version: int, response: ResponseBody, throttle_ms: int
) -> tuple[Structure, msgspec.Struct | Mapping[str, Any]]:
    structure = structure_of("response", key, version)
    if not structure.has(THROTTLE):
        return structure, response
    return structure, msgspec.structs.asdict(response) | {THROTTLE: throttle_ms}


def write_request(key: int, version: int, tree: Mapping[str, Any]) -> bytes:
    """A request's body, as a client would write it. Raises InvalidResponse."""
    return write_message(structure_of("request", key, version), tree)


def write_message(
    structure: Structure,
    given: msgspec.Struct | Mapping[str, Any],
    elements: int = ELEMENTS_UNLIMITED,
) -> bytes:
    """A message that has the fields of a value. Raises InvalidResponse, ManyElements."""
    writer = MessageWriter(flexible=structure.is_flexible, elements=elements)
    try:
        _write(structure, writer, given)
    except (TypeError, OverflowError) as error:
        raise InvalidResponse(f"{structure.name}: {error}") from error
    return b"".join(map(bytes, writer.drain()))


# --- reading --------------------------------------------------------------------------------------


def _bool(reader: MessageReader) -> bool:
    return reader.int8() != 0


def _error_code(reader: MessageReader) -> ErrorCode:
    try:
        return ErrorCode(reader.int16())
    except ValueError as error:
        raise MalformedRequest(str(error)) from error


def _uuid(reader: MessageReader) -> UUID | None:
    found = reader.uuid()
    return UUID(bytes=found) if any(found) else None


def _bytes(reader: MessageReader) -> bytes:
    found = reader.nullable_bytes()
    if found is None:
        raise MalformedRequest("bytes are null that may not be")
    return bytes(found)


def _nullable_bytes(reader: MessageReader) -> bytes | None:
    found = reader.nullable_bytes()
    return None if found is None else bytes(found)


def _float64(reader: MessageReader) -> float:
    return float(_FLOAT64.unpack(reader.raw(_FLOAT64.size))[0])


def _uint16(reader: MessageReader) -> int:
    return reader.int16() % _UINT16


_READ: Mapping[str, FieldReader] = {
    "bool": _bool,
    "bytes": _bytes,
    "error_code": _error_code,
    "float64": _float64,
    "int8": MessageReader.int8,
    "int16": MessageReader.int16,
    "int32": MessageReader.int32,
    "int64": MessageReader.int64,
    "string": MessageReader.string,
    "uint16": _uint16,
    "uuid": _uuid,
}
_READ_NULLABLE = {"bytes": _nullable_bytes, "string": MessageReader.nullable_string, "uuid": _uuid}


@cache
def _reader_of(structure: Structure) -> FieldReader:
    plain = tuple(_field_reader(field) for field in structure.fields)
    tagged = tuple((field.tag, field.default, _field_reader(field)) for field in structure.tagged)
    make = structure.type

    def read(reader: MessageReader) -> Any:
        values = [each(reader) for each in plain]
        if not tagged:
            reader.skip_tags()
            return make(*values)
        found = reader.tags()
        for tag, default, each in tagged:
            data = found.get(tag)
            values.append(default if data is None else _tagged(each, data, reader))
        return make(*values)

    return read


def _tagged(read: FieldReader, data: memoryview, reader: MessageReader) -> Any:
    """A tagged field's value; its elements are those of the message that `reader` reads."""
    part = MessageReader(data, flexible=True, elements=reader.elements_left)
    found = read(part)
    reader.elements_left = part.elements_left
    return found


def _reading(structure: Structure, reader: MessageReader) -> StepWork[Any]:
    """As what `_reader_of` returns, with a step for each element of an array."""
    values: list[Any] = []
    for field in structure.fields:
        if _has_arrays(field):
            values.append((yield from _reading_field(field, reader)))
        else:
            values.append(_field_reader(field)(reader))
    found = reader.tags()
    for field in structure.tagged:
        data = found.get(field.tag)
        read = _field_reader(field)
        values.append(field.default if data is None else _tagged(read, data, reader))
    return structure.type(*values)


def _reading_field(field: Field, reader: MessageReader) -> StepWork[Any]:
    if not field.is_array:
        if field.is_nullable and reader.int8() < 0:
            return None
        return (yield from _reading(_structure(field), reader))
    count = reader.nullable_count() if field.is_nullable else reader.count()
    if count is None:
        return None
    found: list[Any] = []
    nests = field.structure is not None and any(map(_has_arrays, field.structure.fields))
    read = _READ[field.kind] if field.structure is None else _reader_of(field.structure)
    for _ in range(count):
        if nests:
            found.append((yield from _reading(_structure(field), reader)))
        else:
            found.append(read(reader))
        yield
    return tuple(found)


def _structure(field: Field) -> Structure:
    if field.structure is None:
        raise InvariantError(f"{field.name} is a {field.kind}, no structure")
    return field.structure


@cache
def _has_arrays(field: Field) -> bool:
    """Whether an array is in a field, however deep."""
    within = field.structure is not None and any(map(_has_arrays, field.structure.fields))
    return field.is_array or within


@cache
def _field_reader(field: Field) -> FieldReader:
    if field.is_array:
        one = _READ[field.kind] if field.structure is None else _reader_of(field.structure)
        return partial(_array, one, field.is_nullable)
    if field.structure is None:
        return (_READ_NULLABLE if field.is_nullable else _READ)[field.kind]
    whole = _reader_of(field.structure)
    if not field.is_nullable:
        return whole
    return lambda reader: None if reader.int8() < 0 else whole(reader)


def _array(one: FieldReader, is_nullable: bool, reader: MessageReader) -> tuple[Any, ...] | None:
    return reader.array(one, nullable=is_nullable)


# --- writing --------------------------------------------------------------------------------------


def _write_bytes(writer: MessageWriter, value: bytes | None) -> None:
    writer.size(-1 if value is None else len(value))
    writer.raw(b"" if value is None else bytes(value))


def _write_uuid(writer: MessageWriter, value: UUID | None) -> None:
    writer.raw(bytes(UUID_BYTES) if value is None else value.bytes)


def _write_float64(writer: MessageWriter, value: float) -> None:
    writer.raw(_FLOAT64.pack(float(value)))


def _write_uint16(writer: MessageWriter, value: int) -> None:
    writer.raw(int.to_bytes(value, 2))


_WRITE: Mapping[str, FieldWriter] = {
    "bool": MessageWriter.int8,
    "bytes": _write_bytes,
    "error_code": MessageWriter.int16,
    "float64": _write_float64,
    "int8": MessageWriter.int8,
    "int16": MessageWriter.int16,
    "int32": MessageWriter.int32,
    "int64": MessageWriter.int64,
    "string": MessageWriter.nullable_string,
    "uint16": _write_uint16,
    "uuid": _write_uuid,
}


class _FieldStep(NamedTuple):
    """Writes one field. `name` is None where the value that is given has no such field."""

    name: str | None
    default: Any
    write: FieldWriter
    field: Field


def _write(structure: Structure, writer: MessageWriter, given: Any) -> None:
    names, value_of = _fields_of(given)
    plain, tagged = _steps(structure, names)
    for step in plain:
        step.write(writer, step.default if step.name is None else value_of(step.name))
    if tagged:
        _write_tagged(writer, tagged, value_of)
    else:
        writer.tags()


def _fields_of(given: Any) -> tuple[tuple[str, ...], Callable[[str], Any]]:
    """The names of a value's fields, and what returns the field of a name."""
    if isinstance(given, Mapping):
        return tuple(given), given.__getitem__
    return given.__struct_fields__, partial(getattr, given)


def _writing(structure: Structure, writer: MessageWriter, given: Any) -> StepWork[None]:
    """As `_write`, with a step for each element of an array."""
    names, value_of = _fields_of(given)
    plain, tagged = _steps(structure, names)
    for step in plain:
        value = step.default if step.name is None else value_of(step.name)
        inner = step.field.structure
        if inner is None or value is None or not _has_arrays(step.field):
            step.write(writer, value)
        elif step.field.is_array:
            writer.count(len(value))
            for each in value:
                yield from _writing(inner, writer, each)
                yield
        else:
            if step.field.is_nullable:
                writer.int8(1)
            yield from _writing(inner, writer, value)
    _write_tagged(writer, tagged, value_of)


def _write_tagged(
    writer: MessageWriter,
    tagged: Sequence[tuple[int, _FieldStep]],
    value_of: Callable[[str], Any],
) -> None:
    fields = []
    for tag, step in tagged:
        value = step.default if step.name is None else value_of(step.name)
        if value != step.default:
            part = MessageWriter(flexible=True)
            step.write(part, value)
            fields.append((tag, b"".join(map(bytes, part.drain()))))
    writer.tags(fields)


@cache
def _steps(
    structure: Structure, names: tuple[str, ...]
) -> tuple[tuple[_FieldStep, ...], tuple[tuple[int, _FieldStep], ...]]:
    """How a value with these fields is written: what is plain, and what has tags. Raises
    InvalidResponse for a name that no version has, and where one is missing. Checked once for each
    set of names.
    """
    unknown = set(names) - structure.all_names
    if unknown:
        raise InvalidResponse(f"{structure.name} has no {', '.join(sorted(unknown))}")
    plain = tuple(_step(structure, field, names) for field in structure.fields)
    tagged = tuple((field.tag, _step(structure, field, names)) for field in structure.tagged)
    return plain, tagged


def _step(structure: Structure, field: Field, names: tuple[str, ...]) -> _FieldStep:
    is_given = field.name in names
    if not is_given and field.default is NEEDED:
        raise InvalidResponse(f"{structure.name} needs {field.name}")
    name, write = field.name if is_given else None, _field_writer(structure, field)
    return _FieldStep(name, field.default, write, field)


def _field_writer(structure: Structure, field: Field) -> FieldWriter:
    write = _WRITE[field.kind] if field.structure is None else partial(_write, field.structure)
    if field.is_array:
        write = partial(_write_array, write)
    elif field.structure is not None and field.is_nullable:
        write = partial(_write_nullable, write)
    is_number = not field.is_array and field.kind not in _LONG
    if field.is_nullable or is_number:
        return write
    return partial(_write_needed, write, f"{field.name} of {structure.name}")


def _write_needed(write: FieldWriter, name: str, writer: MessageWriter, value: Any) -> None:
    if value is None:
        raise InvalidResponse(f"{name} may not be null")
    write(writer, value)


def _write_nullable(write: FieldWriter, writer: MessageWriter, value: Any) -> None:
    writer.int8(-1 if value is None else 1)
    if value is not None:
        write(writer, value)


def _write_array(write: FieldWriter, writer: MessageWriter, value: Sequence[Any] | None) -> None:
    writer.count(-1 if value is None else len(value))
    for each in value or ():
        write(writer, each)
