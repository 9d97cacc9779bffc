"""Payloads as typed columns: JSON, CSV, Avro and Arrow, good and bad."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from samelog.admin.answers import SchemaInfo, SchemaPage
from samelog.archiver.copies.value_schema import TYPES as SETTING_TYPES
from samelog.spark.errors import BadOption, CorruptValue
from samelog.spark.payload.own_schema import TYPES, common_schema, schema_as_setting
from samelog.spark.payload.value_formats import csv_parser, json_parser
from samelog.typed.values.halves import decode_each
from tests.spark.local import batch_reader, rows, source
from tests.subscriber.merged import Growing
from tests.typed.known import schema_text

SCHEMA = pa.schema([("name", pa.string()), ("size", pa.int64())])
TYPED = StructType(
    [
        StructField("name", StringType()),
        StructField("size", LongType()),
        StructField("offset", LongType()),
        StructField("_corrupt", BinaryType()),
    ]
)


def parsed_json(*values: bytes | None) -> tuple[list[dict[str, Any]], list[int]]:
    """The rows, and which values are bad."""
    decoded = decode_each(pa.array(values, pa.binary()), json_parser(SCHEMA), SCHEMA)
    return decoded.columns.to_pylist(), sorted(decoded.bad)


ROW = {"name": "a", "size": 1}
NULLS = {"name": None, "size": None}
GOOD = b'{"name": "a", "size": 1}'


def test_json() -> None:
    found = parsed_json(GOOD, None, b'{"size": 1, "more": [{}], "name": "a"}', b"{}")
    assert found == ([ROW, NULLS, ROW, NULLS], [])
    assert parsed_json(b'{\n "name": "a",\r\n "size": 1\n}\n', GOOD) == ([ROW, ROW], [])
    assert parsed_json() == ([], [])


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"7",
        b"[]",
        b'{"size": "1"}',
        b'{"size": 1.5}',
        b'{"size": 99999999999999999999}',
        b'{"name": 1}',
        b'{"name": "\xff"}',
        b"null",
        GOOD + GOOD,
        GOOD + b"\n" + GOOD,
        b'{}, "i": 1',
        b'{}}\n{"i": 1, "v": {}',
        b'{"name": "a"',
        b'"name": "a"}',
    ],
)
def test_bad_json_harms_nothing_but_itself(bad: bytes) -> None:
    assert parsed_json(GOOD, bad, GOOD, GOOD) == ([ROW, NULLS, ROW, ROW], [1])
    assert parsed_json(bad, bad) == ([NULLS, NULLS], [0, 1])


OBJECTS = st.fixed_dictionaries(
    {"name": st.none() | st.text(), "size": st.none() | st.integers(-(2**63), 2**63 - 1)}
)
JSONISH = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.text(alphabet='{}[]",:\\ \n1ainmesz', max_size=12).map(str.encode),
    OBJECTS.map(lambda row: json.dumps(row).encode()),
)


@given(st.lists(JSONISH, max_size=12))
@example([b'{"name": "a', b'"}', None, b'{"name":', b'"b"}'])
def test_each_value_gives_what_it_gives_alone(values: list[bytes | None]) -> None:
    together, bad = parsed_json(*values)
    alone = [parsed_json(value) for value in values]
    assert together == [row for [row], _ in alone]
    assert bad == [number for number, (_, one) in enumerate(alone) if one]


@given(st.lists(OBJECTS, max_size=20))
def test_json_is_read_as_python_reads_it(written: list[dict[str, Any]]) -> None:
    values = [json.dumps(row).encode(errors="surrogatepass") for row in written]
    found, bad = parsed_json(*values)
    assert [row for n, row in enumerate(found) if n not in bad] == [
        row for n, row in enumerate(written) if n not in bad
    ]
    assert not bad or any("\\ud" in value.decode() for value in values)


def test_csv() -> None:
    values = [b"a,1", b'"b, ""c""",2', b",", b"a", b"a,1,2", b"a,x", None, b"a\nb,1", b'"a\nb",3']
    decoded = decode_each(pa.array(values, pa.binary()), csv_parser(SCHEMA), SCHEMA)
    names = ["a", 'b, "c"', None, None, None, None, None, None, "a\nb"]
    assert decoded.columns["name"].to_pylist() == names
    assert decoded.columns["size"].to_pylist() == [1, 2, None, None, None, None, None, None, 3]
    assert sorted(decoded.bad) == [3, 4, 5, 7]


def typed(
    tmp_path: Path, values: Sequence[bytes | None], schema: StructType = TYPED, **options: object
) -> list[dict[str, Any]]:
    """The rows of a query over a log with these values."""
    Growing(tmp_path).append(*values)
    reader = batch_reader(schema=schema, directory=tmp_path, subscribe="t", **options)
    return rows(reader, reader.partitions())


def test_bad_values_go_into_a_column(tmp_path: Path) -> None:
    assert typed(tmp_path, [GOOD, b"bad", None], valueFormat="json") == [
        {"name": "a", "size": 1, "offset": 0, "_corrupt": None},
        {"name": None, "size": None, "offset": 1, "_corrupt": b"bad"},
        {"name": None, "size": None, "offset": 2, "_corrupt": None},
    ]


def test_bad_values_are_an_error_where_that_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(CorruptValue, match="t-0, offset 1: the value is no json of the schema"):
        typed(tmp_path, [GOOD, b"bad", b"worse"], valueFormat="json", mode="FAILFAST")


def test_dates_and_times(tmp_path: Path) -> None:
    schema = StructType([StructField("day", DateType()), StructField("at", TimestampType())])
    value = b'{"day": "2013-01-02", "at": "2013-01-02T03:04:05Z"}'
    [row] = typed(tmp_path, [value], schema, valueFormat="json")
    assert (str(row["day"]), str(row["at"])) == ("2013-01-02", "2013-01-02 03:04:05+00:00")


AVRO = json.dumps(
    {
        "type": "record",
        "name": "thing",
        "fields": [
            {"name": "size", "type": "long"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "more", "type": "double"},
        ],
    }
)


def avro(**record: object) -> bytes:
    """One record in Avro's encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(AVRO)), record)
    return stream.getvalue()


def test_avro(tmp_path: Path) -> None:
    good = avro(size=1, name="a", more=0.5)
    values = [good, good[:-1], avro(size=2, name=None, more=0.5), None, good + b"x", b""]
    found = typed(tmp_path, values, valueFormat="avro", avroSchema=AVRO)
    assert [row["name"] for row in found] == ["a", None, None, None, None, None]
    assert [row["size"] for row in found] == [1, None, 2, None, None, None]
    assert [row["_corrupt"] for row in found] == [None, good[:-1], None, None, good + b"x", b""]


def test_arrow_values_have_many_rows(tmp_path: Path) -> None:
    def stream(table: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    table = pa.table({"size": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", "c"]})
    values = [stream(table), b"bad", None, stream(table.slice(2)), stream(table.select(["size"]))]
    found = typed(tmp_path, values, valueFormat="arrow")
    assert [(row["offset"], row["name"], row["size"]) for row in found] == [
        (0, "a", 1),
        (0, "b", 2),
        (0, "c", 3),
        (1, None, None),
        (2, None, None),
        (3, "c", 3),
        (4, None, None),
    ]
    assert [row["offset"] for row in found if row["_corrupt"] is not None] == [1, 4]


# --- what goes wrong -------------------------------------------------------------------------


def test_a_schema_is_needed() -> None:
    with pytest.raises(BadOption, match="valueFormat=json needs the columns of the payload: give"):
        source(subscribe="t", valueFormat="json").schema()
    with pytest.raises(BadOption, match="need a valueFormat"):
        source(subscribe="t", mode="FAILFAST").schema()
    with pytest.raises(BadOption, match="avroSchema, the schema of the values, or registry"):
        source(subscribe="t", valueFormat="avro").schema()


def test_topics_have_a_schema_of_their_own() -> None:
    text = '{"name": "string", "od`d": "int8", "at": "timestamp[ms]"}'
    columns = "`name` STRING, `od``d` TINYINT, `at` TIMESTAMP"
    assert common_schema({"a": text, "b": text}) == columns
    assert common_schema({"a": "", "b": ""}) is None
    with pytest.raises(BadOption, match="topics a and b differ in their value_schema: give valueS"):
        common_schema({"a": text, "b": ""})
    assert TYPES.keys() == set(SETTING_TYPES)


@pytest.mark.parametrize(
    ("schema", "setting"),
    [
        (
            schema_text("name string", "at timestamp[ms]"),
            '{"name": "string", "at": "timestamp[ms]"}',
        ),
        (schema_text("size uint64"), ""),
        (schema_text("name string", value_format="csv"), ""),
        (schema_text(*(f"{'n' * 200}{n} string" for n in range(200))), ""),
        (None, ""),
    ],
)
def test_the_newest_version_of_a_topics_schema_counts_without_the_setting(
    schema: str | None, setting: str
) -> None:
    versions = () if schema is None else (SchemaInfo(1, 1, "", schema),)
    page = SchemaPage("t", "backward", len(versions), versions, more=False)
    assert schema_as_setting(page) == setting


def test_columns_with_the_names_of_the_records(tmp_path: Path) -> None:
    schema = StructType([StructField("timestamp", StringType())])
    value = b'{"timestamp": "noon"}'
    with pytest.raises(BadOption, match="also the record's: timestamp; set metadataPrefix"):
        typed(tmp_path, [value], schema, valueFormat="json")
    schema = schema.add("kafka_offset", LongType())
    found = typed(tmp_path, [], schema, valueFormat="json", metadataPrefix="kafka_")
    assert found == [{"timestamp": "noon", "kafka_offset": 0}]


def test_columns_that_a_format_cannot_have(tmp_path: Path) -> None:
    schema = StructType([StructField("m", MapType(StringType(), DoubleType()))])
    with pytest.raises(BadOption, match="valueFormat=json cannot have such a column: JSON conv"):
        typed(tmp_path, [GOOD], schema, valueFormat="json")
    with pytest.raises(BadOption, match="valueFormat=csv cannot have such a column: "):
        typed(tmp_path, [], schema, valueFormat="csv")
    with pytest.raises(BadOption, match="avroSchema has no m; it has more, name, size"):
        typed(tmp_path, [], schema, valueFormat="avro", avroSchema=AVRO)
    with pytest.raises(BadOption, match="avroSchema is no schema of Avro"):
        typed(tmp_path, [], schema, valueFormat="avro", avroSchema="{")
