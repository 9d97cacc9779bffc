"""`samelog publish`: what its inputs become."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from samelog import Publisher
from samelog.cli.commands.publish import InputFiles, InputRecords
from samelog.cli.main import main
from samelog.cli.output import OperatorError
from samelog.cli.text_records import SKIPPED, Fields, Row, parse_timestamp, read_rows

PIPE = InputFiles([io.BytesIO()])


def rows(data: bytes, kind: str, **fields: str) -> list[Row]:
    file = io.BytesIO(data)
    file.name = "input"
    wanted = Fields(fields.get("key"), fields.get("timestamp"))
    return list(read_rows(file, kind, wanted))


def test_lines_are_values_without_their_end() -> None:
    assert [row.value for row in rows(b"a\r\n\nb", "lines")] == [b"a", b"", b"b"]


def test_json_lines_stay_as_they_are_and_give_key_and_time() -> None:
    (row,) = rows(b'{"k": 5, "t": 1234}\n\n', "jsonl", key="k", timestamp="t")
    assert row == Row(b'{"k": 5, "t": 1234}', b"5", 1234, "input", 1)


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


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("csv", b"k,t\nok,1\nshort\nlate,yesterday\nlast,2\n"),
        ("jsonl", b'{"k": "ok", "t": 1}\n{\n\n{"k": "late"}\n{"k":"last","t":"2"}\n'),
    ],
)
def test_a_bad_row_among_the_skipped_ones_is_skipped(kind: str, data: bytes) -> None:
    """The message of the first run said how many records to skip, and the bad one was behind."""
    file = io.BytesIO(data)
    file.name = "input"
    *left_out, row = read_rows(file, kind, Fields("k", "t"), iter(range(3)))
    assert left_out == [SKIPPED] * 3
    assert (row.key, row.timestamp_ms, row.value) == (b"last", 2, b'{"k":"last","t":"2"}')


def test_a_missing_field_names_those_there_are() -> None:
    with pytest.raises(OperatorError, match="no field 'x'; there are: a, b"):
        rows(b"a,b\n1,2\n", "csv", key="x")


def test_times_are_milliseconds_or_iso_8601() -> None:
    assert parse_timestamp("1357034400000", "") == 1357034400000
    assert parse_timestamp("2013-01-01T10:00:00Z", "") == 1357034400000
    assert parse_timestamp("2013-01-01 10:00:00", "") == 1357034400000
    with pytest.raises(OperatorError, match="no time"):
        parse_timestamp("yesterday", "line 3")


@pytest.mark.parametrize("kind", ["lines", "csv", "jsonl"])
def test_progress_counts_bytes_of_files_and_records_of_pipes(tmp_path: Path, kind: str) -> None:
    """The size of a file says how much there is to do; the end of a pipe is not known."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b'"a"\n"b"\n' if kind == "csv" else b"{}\n" * 3000)
    second.write_bytes(b'"a"\n"b"\n"c"\n' if kind == "csv" else b"{}\n")
    with first.open("rb") as one, second.open("rb") as other:
        source, done = InputFiles([one, other]), 0
        assert source.total == first.stat().st_size + second.stat().st_size
        for file in source.files:
            for _ in read_rows(file, kind, Fields(None, None)):
                done += source.grown(1)
        assert done + source.grown(0) == source.total
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        source = InputFiles([pipe])
        assert (source.total, source.grown(7)) == (None, 7)


def numbers(start: int, stop: int) -> Iterator[Row]:
    return (Row(b"%d" % number, None, 0) for number in range(start, stop))


def bad(message: str) -> Iterator[Row]:
    raise OperatorError(message)
    yield


def test_what_is_before_a_mistake_is_in_and_where_to_go_on_is_said(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=str(tmp_path)) as publisher:
        first = InputRecords(publisher, None, 0, is_numbered=False)
        mistaken = chain(numbers(0, 2_184), bad("line 2185: not JSON"), numbers(0, 9))
        with pytest.raises(OperatorError) as caught:
            first.append_all(mistaken, PIPE)
        assert caught.value.message == (
            "line 2185: not JSON; the first 2184 records of the input are in the session: "
            "go on with --skip 2184"
        )
        with pytest.raises(OperatorError) as caught:
            InputRecords(publisher, None, 0, is_numbered=False).append_all(bad("line 1"), PIPE)
        assert caught.value.message == "line 1; no record of the input is in the session"
        rest = InputRecords(publisher, None, 2_184, is_numbered=False)
        assert rest.append_all(numbers(2_184, 3_000), PIPE) == 816
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("log.*"))
    assert [data.count(b"%d" % number) for number in (2_183, 2_184, 2_999)] == [1, 1, 1]


def test_with_a_dedup_id_a_record_is_known_by_its_place_in_the_input(tmp_path: Path) -> None:
    taken: list[int | None] = []

    class Recorded(Publisher):
        def append_many(self, values: object, **options: object) -> None:
            taken.append(options["first_id"])  # type: ignore[arg-type]
            super().append_many(values, **options)  # type: ignore[arg-type]

    with Recorded("t", session="s", directory=str(tmp_path), dedup_id="d") as publisher:
        InputRecords(publisher, None, 500, is_numbered=True).append_all(numbers(500, 2_600), PIPE)
    assert taken == [500, 1_500, 2_500]


def test_a_wrong_command_line_is_no_traceback(tmp_path: Path) -> None:
    here = str(tmp_path / "copies")
    for arguments in (
        ["subscribe", "--topic", "t", "--max", "1"],
        ["subscribe", "--topic", "t", "--dir", here, "--no-follow"],
        ["subscribe", "--topic", "t", "--dir", here],
    ):
        ended = CliRunner().invoke(main, arguments)
        assert ended.exit_code in {1, 2}
        assert isinstance(ended.exception, SystemExit)
        assert "--dir" in ended.stderr or "no directory" in ended.stderr
    (tmp_path / "copies" / "other-0").mkdir(parents=True)
    ended = CliRunner().invoke(
        main,
        ["subscribe", "--topic", "t", "--dir", here, "--no-follow"],
        env={"SAMELOG_CONFIG": ""},
    )
    assert ended.exit_code == 1
    assert ended.stderr == f"samelog: {here} has no copy of topic 't'; it has: other\n"
