"""Every message but Produce's and Fetch's, by the library that has Kafka's own descriptions.

Handlers speak of answers as trees of dicts, under the library's (that is Kafka's) names: what a
version does not have is left out of that version, what a tree does not have keeps its default;
the throttle time is not the handlers' business.
Durations are in milliseconds. Descriptions are loaded when a version is first used.

Bytes behind a request's end are passed over, as Kafka's broker does: librdkafka 2.16 sends some
behind Metadata.

Invariant: reading raises MalformedRequest and nothing else, whatever the bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
from collections.abc import Mapping
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta, i64Timedelta

from samelog.kafka.codec.errors import MalformedRequest
from samelog.kafka.codec.structure import checked, shape_of

Tree = Mapping[str, Any]

BODY_BYTES = 2 << 20
"""No request but Produce is ever longer; values take many times as much memory as their bytes."""
_DURATIONS = {"timedelta_i32": i32Timedelta, "timedelta_i64": i64Timedelta}


def read_request(key: int, version: int, body: memoryview) -> Any:
    """A request's body. Raises MalformedRequest."""
    if len(body) > BODY_BYTES:
        raise MalformedRequest(
            f"{len(body)} bytes; at most {BODY_BYTES} are taken of such a request"
        )
    return _read(load_request_schema(key, version), body)


def read_response(key: int, version: int, body: bytes) -> Any:
    """An answer's body, as a client would read it. Raises MalformedRequest."""
    return _read(load_response_schema(key, version), memoryview(body))


def _read(structure: Any, body: memoryview) -> Any:
    try:
        return entity_reader(structure)(checked(structure, body), 0)[0]
    except (SerialError, ValueError, OverflowError, KeyError) as error:
        raise MalformedRequest(f"{type(error).__name__}: {error}") from error


def write_response(key: int, version: int, tree: Tree, throttle_ms: int = 0) -> bytes:
    """An answer's body; `throttle_ms`: how long the client is to wait."""
    return _write(load_response_schema(key, version), {**tree, "throttle_time": throttle_ms})


def write_request(key: int, version: int, tree: Tree) -> bytes:
    """A request's body, as a client would write it."""
    return _write(load_request_schema(key, version), tree)


def _write(structure: Any, tree: Tree) -> bytes:
    out = io.BytesIO()
    entity_writer(structure)(out, build(structure, tree))
    return out.getvalue()


@dataclasses.dataclass(frozen=True, slots=True)
class _FieldPlan:
    """How a field is made of a tree's value."""

    name: str
    structure: Any
    duration: Any
    is_array: bool


@cache
def _plans(structure: Any) -> tuple[_FieldPlan, ...]:
    return tuple(_plan(field) for field in dataclasses.fields(structure))


def _plan(field: dataclasses.Field[Any]) -> _FieldPlan:
    shape = shape_of(field)
    return _FieldPlan(field.name, shape.structure, _DURATIONS.get(shape.kind), shape.is_array)


def build(structure: Any, tree: Tree) -> Any:
    """One of the library's structures, of a tree."""
    values = {
        plan.name: _value(plan, tree[plan.name]) for plan in _plans(structure) if plan.name in tree
    }
    return structure(**values)


def _value(plan: _FieldPlan, value: Any) -> Any:
    if value is None:
        return None
    if plan.duration is not None:
        return plan.duration.parse(datetime.timedelta(milliseconds=value))
    if plan.structure is not None and plan.is_array:
        return tuple(build(plan.structure, element) for element in value)
    if plan.structure is not None:
        return build(plan.structure, value)
    return tuple(value) if plan.is_array else value
