"""`samelog publish`: what its inputs become."""

from __future__ import annotations

import io

import msgspec
import pytest

from samelog.cli.commands.publish import Fields, Row, parse_timestamp, read_rows
from samelog.cli.output import OperatorError


def rows(data: bytes, kind: str, **fields: str) -> list[Row]:
    file = io.BytesIO(data)
    file.name = "input"
    wanted = Fields(fields.get("key"), fields.get("timestamp"))
    return list(read_rows(file, kind, wanted))


def test_lines_are_values_without_their_end() -> None:
    assert [row.value for row in rows(b"a\r\n\nb", "lines")] == [b"a", b"", b"b"]


def test_json_lines_stay_as_they_are_and_give_key_and_time() -> None:
    (row,) = rows(b'{"k": 5, "t": 1234}\n\n', "jsonl", key="k", timestamp="t")
    assert row == Row(b'{"k": 5, "t": 1234}', b"5", 1234)


def test_csv_rows_become_objects() -> None:
    (row,) = rows(b'sym,px\nA,"1,5"\n', "csv", key="sym")
    assert msgspec.json.decode(row.value) == {"sym": "A", "px": "1,5"}
    assert row.key == b"A"


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"{", "jsonl", r"input, line 1: not JSON"),
        (b"{}\n[]\n", "jsonl", r"input, line 2: not a JSON object"),
        (b"a,b\n1\n", "csv", r"input, line 2: not as many fields"),
        (b"a,b\n1,2,3\n", "csv", r"input, line 2: not as many fields"),
        (b"a\n\xff\n", "csv", r"input, line"),
    ],
)
def test_bad_input_is_named_by_file_and_line(data: bytes, kind: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        rows(data, kind)


def test_a_missing_field_names_those_there_are() -> None:
    with pytest.raises(OperatorError, match="no field 'x'; there are: a, b"):
        rows(b"a,b\n1,2\n", "csv", key="x")


def test_times_are_milliseconds_or_iso_8601() -> None:
    assert parse_timestamp("1357034400000", "") == 1357034400000
    assert parse_timestamp("2013-01-01T10:00:00Z", "") == 1357034400000
    assert parse_timestamp("2013-01-01 10:00:00", "") == 1357034400000
    with pytest.raises(OperatorError, match="no time"):
        parse_timestamp("yesterday", "line 3")
