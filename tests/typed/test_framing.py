"""Values in Confluent's wire format: written with an id, and read by the schema of that id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from http import HTTPStatus
from io import BytesIO
from typing import Any

import fastavro
import pytest

from samelog.admin.registry import SchemaRegistry
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.typed.framing import HEAD, FrameWriter
from samelog.typed.reading import TypedReader, TypedRows
from samelog.typed.rows import table_of
from samelog.typed.schema import NobodyAnswers, NoSchema, parse_schema
from tests.typed.known import schema_text
from tests.typed.registries import FakeRegistry, running

FIRST = parse_schema(schema_text("a int32", "b string", value_format="avro"))
SECOND = parse_schema(schema_text("a int64", "c float64", value_format="avro"))


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running() as started:
        yield started


def read(values: Sequence[bytes | None], registry: FakeRegistry, schema: Any = SECOND) -> TypedRows:
    data = kernels.build_batches(
        list(values), timestamps=5, batch_bytes=1 << 20, max_record_bytes=1 << 20
    )
    table = to_arrow(data, 0, len(data), topic="t", partition=0)
    return TypedReader({1: schema}, 1, SchemaRegistry(registry.url)).read(table, [(0, 1)])


def avro(fields: list[dict[str, Any]], record: dict[str, Any]) -> tuple[str, bytes]:
    """A schema as others have them, and a record of it."""
    schema = {"type": "record", "name": "Quote", "namespace": "x.y", "fields": fields}
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return json.dumps(schema), stream.getvalue()


def test_rows_are_written_with_the_id_of_their_schema_and_read_by_it(
    registry: FakeRegistry,
) -> None:
    ids = SchemaRegistry(registry.url)
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    values = FrameWriter(ids, "t-value", FIRST).encode(table_of(rows, FIRST))
    assert registry.subjects == {"t-value": 1}
    assert [value[:5] for value in values] == [HEAD.pack(0, 1)] * 2
    found = read([*values, None], registry)
    assert found.table.to_pylist() == [{"a": each, "c": None} for each in (1, 2, None)]
    assert found.unread == []
    assert registry.asked.count("GET /schemas/ids/1") == 1, "asked once"


def test_fields_go_by_their_names_whatever_else_the_writer_had(registry: FakeRegistry) -> None:
    text, body = avro(
        [
            {"name": "other", "type": {"type": "array", "items": "int"}},
            {"name": "c", "type": ["double", "null"]},
            {"name": "a", "type": "int"},
        ],
        {"other": [1, 2], "c": 1.5, "a": 7},
    )
    value = HEAD.pack(0, registry.put("AVRO", text)) + body
    assert read([value], registry).table.to_pylist() == [{"a": 7, "c": 1.5}]
    as_json = HEAD.pack(0, registry.put("JSON", "{}")) + b'{"a":8,"x":1}'
    assert read([as_json], registry).table.to_pylist() == [{"a": 8, "c": None}]


def test_logical_types_are_what_they_say(registry: FakeRegistry) -> None:
    kinds = {"d": "date32", "t": "timestamp[ms, UTC]", "n": "decimal128(9, 2)"}
    columns = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = parse_schema(json.dumps({"format": "avro", "columns": columns}))
    row = {"d": date(2026, 1, 2), "t": datetime(2026, 1, 2, 3, tzinfo=UTC), "n": Decimal("1.25")}
    ids = SchemaRegistry(registry.url)
    values = FrameWriter(ids, "t-value", schema).encode(table_of([row], schema))
    assert read(values, registry, schema).table.to_pylist() == [row]


def test_what_does_not_fit_is_named_and_nothing_is_rounded(registry: FakeRegistry) -> None:
    text, body = avro([{"name": "a", "type": "double"}], {"a": 1.5})
    number = registry.put("AVRO", text)
    protobuf = registry.put("PROTOBUF", "syntax = 'proto3';")
    good_text, good = avro([{"name": "a", "type": "long"}], {"a": 3})
    values = [
        HEAD.pack(0, number) + body,
        HEAD.pack(0, registry.put("AVRO", good_text)) + good,
        HEAD.pack(0, number) + b"\x00",
        HEAD.pack(0, protobuf) + b"\x00",
        HEAD.pack(0, 99) + b"\x00",
    ]
    found = read(values, registry)
    assert found.table.to_pylist() == [{"a": 3, "c": None}]
    assert [each.misfit.index for each in found.unread] == [0, 2, 3, 4]
    assert "with a schema of the registry" in str(found.unread[0])


def test_a_registry_that_does_not_answer_is_no_misfit(registry: FakeRegistry) -> None:
    registry.status = HTTPStatus.SERVICE_UNAVAILABLE
    with pytest.raises(NobodyAnswers, match="503"):
        read([HEAD.pack(0, 1) + b"\x02"], registry)
    with pytest.raises(NobodyAnswers, match="does not answer"):
        SchemaRegistry("http://127.0.0.1:9").schema(1)
    registry.status = HTTPStatus.CONFLICT
    with pytest.raises(NoSchema, match="it is not well"):
        FrameWriter(SchemaRegistry(registry.url), "t-value", FIRST)


def test_only_avro_is_written_and_a_url_is_one() -> None:
    other = parse_schema(schema_text("a int32"))
    with pytest.raises(ValueError, match="format 'avro'"):
        FrameWriter(SchemaRegistry("http://nobody"), "t-value", other)
    with pytest.raises(ValueError, match="no URL"):
        SchemaRegistry("registry:8081")


def test_name_and_password_come_from_the_url(registry: FakeRegistry) -> None:
    registry.put("AVRO", "{}")
    SchemaRegistry(registry.url.replace("//", "//ann:a%20b@")).schema(1)
    assert registry.authorizations == {"Basic YW5uOmEgYg=="}


def test_what_others_register_may_be_unusable(registry: FakeRegistry) -> None:
    unknown = registry.put("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{}]}))
    number = registry.put("AVRO", '"string"')
    _, good = avro([{"name": "a", "type": "long"}], {"a": 3})
    text, _ = avro([{"name": "a", "type": "long"}], {"a": 3})
    longer = HEAD.pack(0, registry.put("AVRO", text)) + good + b"\x00"
    found = read(
        [HEAD.pack(0, unknown) + b"\x02", HEAD.pack(0, number) + b"\x02a", longer], registry
    )
    assert [each.misfit.index for each in found.unread] == [0, 1, 2]
    assert found.table.num_rows == 0


def test_an_id_that_the_registry_has_not_is_not_asked_for_each_value(
    registry: FakeRegistry,
) -> None:
    found = read([HEAD.pack(0, 77) + b"\x00"] * 20, registry)
    assert len(found.unread) == 20
    assert registry.asked.count("GET /schemas/ids/77") == 1
