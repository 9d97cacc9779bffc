"""Every conversion of text inputs is right, or fails with file and line behind what precedes it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog import Publisher
from samelog.cli.commands.publish import InputFiles, InputRecords
from samelog.cli.output import OperatorError
from samelog.cli.text_records import Fields, Row, parse_timestamp, read_rows
from tests.publisher import reading

BOM = b"\xef\xbb\xbf"


def read(data: bytes, kind: str, key: str | None = None, time: str | None = None) -> list[Row]:
    """All records of an input."""
    file = io.BytesIO(data)
    file.name = "input"
    return list(read_rows(file, kind, Fields(key, time)))


def read_until_fault(data: bytes, kind: str, **fields: str) -> tuple[list[bytes], str]:
    """The values before the fault, and what the fault says."""
    file = io.BytesIO(data)
    file.name = "input"
    rows = read_rows(file, kind, Fields(fields.get("key"), fields.get("time")))
    values: list[bytes] = []
    with pytest.raises(OperatorError) as raised:
        values.extend(row.value for row in rows)
    return values, raised.value.message


def test_a_byte_order_mark_is_no_part_of_a_record() -> None:
    """Case 05 of the list of defects."""
    [row] = read(BOM + b"symbol,price\r\nAAPL,1\r\n", "csv", "symbol")
    assert (row.value, row.key) == (b'{"symbol":"AAPL","price":"1"}', b"AAPL")
    assert [row.value for row in read(BOM + b'{"a":1}\n', "jsonl")] == [b'{"a":1}']
    assert [row.value for row in read(BOM + b"a\n" + BOM + b"b", "lines")] == [b"a", BOM + b"b"]
    assert read(BOM, "lines") == []


@pytest.mark.parametrize("kind", ["lines", "csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused(kind: str, encoding: str) -> None:
    data = "\N{ZERO WIDTH NO-BREAK SPACE}a,b\n1,2\n".encode(encoding)
    assert read_until_fault(data, kind) == (
        [],
        "input, line 1: this is UTF-16: convert it with iconv -t UTF-8",
    )


@pytest.mark.parametrize(
    ("data", "kind", "before", "message"),
    [
        (b"a\n1\n2\n\xff\n3\n", "csv", 2, "input, line 4: byte 0xff at 0 is not UTF-8; conv"),
        (b"a,b\n1,2\n3\n", "csv", 1, "input, line 3: not as many fields"),
        (b'a\n1\n"2\n3\n', "csv", 1, "input, line 4: unexpected end of data"),
        (b"a,a\n1,2\n", "csv", 0, "input, line 1: there are two fields 'a'"),
        (b"a,,b\n1,2,3\n", "csv", 0, "input, line 1: field 2 has no name"),
        (b"{}\n{}\n\xff\n", "jsonl", 2, "input, line 3: not JSON"),
        (b'{}\n{"a":"\xff"}\n', "jsonl", 1, "input, line 2: not JSON"),
        (b"{}\n{} {}\n", "jsonl", 1, "input, line 2: not JSON"),
        (b'{}\n{"a":NaN}\n', "jsonl", 1, "input, line 2: not JSON"),
        (b"{}\n" + b"[" * 100_000 + b"\n", "jsonl", 1, "input, line 2: not JSON"),
        (b"{}\n" + BOM + b"{}\n", "jsonl", 1, "input, line 2: not JSON"),
    ],
)
def test_what_precedes_a_fault_is_read(data: bytes, kind: str, before: int, message: str) -> None:
    values, said = read_until_fault(data, kind)
    assert len(values) == before
    assert said.startswith(message)


@pytest.mark.parametrize("depth", range(900, 1020, 7))
def test_a_nested_line_is_a_record_or_a_fault_at_any_depth(depth: int) -> None:
    nested = b'{"k":"x","b":1,"d":' + b"[" * depth + b"]" * depth + b"}\n"
    said = ""
    try:
        read(nested, "jsonl", "k")
    except OperatorError as fault:
        said = fault.message
    assert not said or said.startswith("input, line 1: not JSON: ")


def test_lines_of_csv_may_end_in_any_way() -> None:
    expected = [b'{"a":"1","b":"x\\ny"}', b'{"a":"2","b":""}']
    for end in (b"\n", b"\r\n", b"\r"):
        found = read(b'a,b%s1,"x\ny"%s2,%s' % (end, end, end), "csv")
        assert [row.value for row in found] == expected


def test_a_line_loses_its_end_and_nothing_else() -> None:
    found = read(b"a\r\r\nb\r\n\n\rc\r", "lines")
    assert [row.value for row in found] == [b"a\r", b"b", b"", b"\rc\r"]


@pytest.mark.parametrize(
    ("member", "key"),
    [
        (b'"a\\u00e9"', "a\N{LATIN SMALL LETTER E WITH ACUTE}".encode()),
        (b"12345678901234567890123", b"12345678901234567890123"),
        (b"1.10", b"1.10"),
        (b"true", b"true"),
        (b"null", None),
        (b'""', b""),
    ],
)
def test_keys_of_json_are_what_is_written(member: bytes, key: bytes | None) -> None:
    [row] = read(b'{"k":%s}' % member, "jsonl", "k")
    assert row.key == key


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"k":{"a":1}}', "field 'k' is no string or number"),
        (b'{"k":[1]}', "field 'k' is no string or number"),
        (b'{"k":1,"k":2}', "there are two fields 'k'"),
        (b'{"k":1,"\\u006b":2}', "there are two fields 'k'"),
        (b'{"k":"\\ud800"}', "not JSON"),
        (b'{"a":1}', "there is no field 'k'; there are: a"),
    ],
)
def test_keys_that_are_none_are_refused(line: bytes, message: str) -> None:
    values, said = read_until_fault(b'{"k":1}\n' + line, "jsonl", key="k")
    assert len(values) == 1
    assert said.startswith(f"input, line 2: {message}")


def test_members_of_inner_objects_are_no_second_key() -> None:
    [row] = read(b'{"k":1,"inner":{"k":2,"x":[{"k":3}]}}', "jsonl", "k")
    assert row.key == b"1"


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775808",
        "-9223372036854775809",
        "99999999999999999999",
        "9" * 5000,
        "\N{SUPERSCRIPT TWO}",
        "1e3",
        "12.5",
        "",
        "-",
        "true",
        " 1",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match=r"line 3: .* is no time: give milliseconds"):
        parse_timestamp(text, "line 3")


@pytest.mark.parametrize("milliseconds", [0, 1, 999, 1772366400001, 253402300799999, -1])
def test_times_of_iso_8601_are_exact(milliseconds: int) -> None:
    from datetime import UTC, datetime, timedelta

    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert parse_timestamp(moment.isoformat(), "") == milliseconds
    assert parse_timestamp(str(milliseconds), "") == milliseconds


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.text(), min_size=3, max_size=3)))
def test_rows_of_csv_come_back(rows: list[dict[str, str]]) -> None:
    import csv

    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["a", "b", "c"])
    writer.writeheader()
    clean = [{k: v.encode(errors="replace").decode() for k, v in row.items()} for row in rows]
    writer.writerows(clean)
    found = read(text.getvalue().encode(), "csv", "b")
    assert [json.loads(row.value) for row in found] == clean
    assert [row.key for row in found] == [row["b"].encode() for row in clean]


@pytest.mark.parametrize(
    ("data", "kind", "field", "message"),
    [
        (  # case 07 of the list of defects
            b"t,v\n1700000000000,1\n99999999999999999999,2\n",
            "csv",
            "t",
            r"line 3: '99999999999999999999' is no time",
        ),
        (b"a\n" + b"x" * (2 << 20) + b"\nb\n", "lines", None, "line 2: record .* takes "),
    ],
)
def test_what_precedes_a_fault_is_published(
    tmp_path: Path, data: bytes, kind: str, field: str | None, message: str
) -> None:
    path = tmp_path / "input"
    path.write_bytes(data)
    with path.open("rb") as file, Publisher("t", session="s", directory=tmp_path) as publisher:
        records = InputRecords(publisher, None, 0, is_numbered=False)
        rows = read_rows(file, kind, Fields(None, field))
        with pytest.raises(OperatorError, match=f"input, {message}.*--skip 1"):
            records.append_all(rows, InputFiles([file]))
    assert len(reading.values(tmp_path / "s")) == 1


def test_the_api_refuses_timestamps_that_no_record_holds(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        for stamp in (10**20, -(1 << 63) - 1):
            with pytest.raises(ValueError, match="does not fit into 64 bits"):
                publisher.append(b"x", timestamp=stamp)
            with pytest.raises(ValueError, match="does not fit into 64 bits"):
                publisher.append_many([b"x"], timestamps=[stamp])
    assert reading.runs(tmp_path / "s") == []
