"""Messages by Kafka's descriptions, against a library that was made from them by somebody else."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import uuid
from collections.abc import Callable
from typing import Any, get_args

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as TheirErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta, i64Timedelta

from samelog.kafka.codec import schemas
from samelog.kafka.codec.descriptions import Structure, structure_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.registry import APIS

OLDEST = {0: 3}
"""Produce's versions 0 to 2 are refused (codec/produce.py)."""
NO_TIME = -1
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
MESSAGES = [
    (direction, key, version)
    for key, api in APIS.items()
    for version in range(max(api.first, OLDEST.get(key, 0)), api.last + 1)
    for direction in ("request", "response")
]


def theirs(direction: str, key: int, version: int) -> Any:
    """Their structure."""
    return (load_request_schema if direction == "request" else load_response_schema)(key, version)


def made(structure: Any, rng: random.Random) -> Any:
    """One of theirs, with anything in it."""
    fields = dataclasses.fields(structure)
    return structure(**{field.name: _value(field, rng) for field in fields})


def _value(field: Any, rng: random.Random) -> Any:
    text = str(field.type)
    parts = [part for part in get_args(field.type) if part is not type(None)] or [field.type]
    if type(None) in get_args(field.type) and rng.random() < 0.3:
        return None
    kind = field.metadata.get("kafka_type")
    if "tuple" in text:
        inner = parts[0] if len(parts) == 1 and get_args(parts[0]) else field.type
        element = get_args(inner)[0]
        return tuple(_one(element, kind, rng) for _ in range(rng.randrange(3)))
    return _one(parts[0], kind, rng)


def _one(type_: Any, kind: str | None, rng: random.Random) -> Any:
    if dataclasses.is_dataclass(type_):
        return made(type_, rng)
    if kind in NUMBERS:
        return rng.getrandbits(NUMBERS[kind]) - rng.getrandbits(NUMBERS[kind])
    ms = datetime.timedelta(milliseconds=rng.getrandbits(30))
    values: dict[str | None, Callable[[], Any]] = {
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: rng.choice(["", "a", "äß", "x" * 200]),
        "bytes": lambda: rng.randbytes(rng.choice([0, 1, 200])),
        "records": lambda: rng.randbytes(5),
        "uuid": lambda: uuid.UUID(int=rng.getrandbits(128)),
        "error_code": lambda: rng.choice(list(TheirErrorCode)),
        "float64": lambda: rng.uniform(-1e300, 1e300),
        "uint16": lambda: rng.getrandbits(16),
        "timedelta_i32": lambda: i32Timedelta.parse(ms),
        "timedelta_i64": lambda: i64Timedelta.parse(ms),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(9, datetime.UTC),
    }
    return values[kind]()


def alike(ours: Any, value: Any) -> bool:
    """Whether the same is read; durations and times are numbers here."""
    if isinstance(value, tuple):
        return len(ours) == len(value) and all(map(alike, ours, value))
    if dataclasses.is_dataclass(value):
        names = ours.__struct_fields__
        return all(
            alike(getattr(ours, name if name in names else f"{name}_ms"), getattr(value, name))
            for name in (field.name for field in dataclasses.fields(value))
        )
    if isinstance(value, datetime.timedelta):
        return bool(ours == round(value.total_seconds() * 1000))
    if isinstance(value, datetime.datetime):
        return bool(ours == 9000)
    return bool(ours == value or (value is None and ours == NO_TIME))


@pytest.mark.parametrize(("direction", "key", "version"), MESSAGES)
def test_both_read_and_write_the_same(direction: Any, key: int, version: int) -> None:
    library = theirs(direction, key, version)
    structure: Structure = structure_of(direction, key, version)
    assert structure.is_flexible == library.__flexible__
    if direction == "request":
        assert structure.is_flexible == APIS[key].is_flexible(version)
    rng = random.Random(f"{direction} {key} {version}")
    for _ in range(20):
        entity = made(library, rng)
        out = io.BytesIO()
        entity_writer(library)(out, entity)
        read = schemas.read_message(structure, out.getvalue())
        assert alike(read, entity)
        written = schemas.write_message(structure, read)
        assert entity_reader(library)(written, 0) == (entity, len(written))
        assert written == out.getvalue()


def test_errors_have_the_same_names_and_numbers() -> None:
    names = {each.name: each.value for each in TheirErrorCode}
    assert {each.name: each.value for each in ErrorCode} == names
