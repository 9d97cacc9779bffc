"""Reads records from text: lines, CSV rows or JSON lines, in UTF-8, with or without a byte order
mark.

Invariant: a record is what the text says, or reading fails with the file and the line; every record
before that line was yielded.
"""

from __future__ import annotations

import csv
import io
import re
import time
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, NamedTuple

import msgspec

from samelog.cli.output import fail
from samelog.format.numbers import TIMESTAMPS
from samelog.format.texts import NotUtf8, decode_text
from samelog.publisher.options import EPOCH, MILLISECOND

FORMATS = ("lines", "csv", "jsonl")
FIELD_LIMIT_CHARACTERS = 64 << 20
"""Of a CSV field; records have a limit of their own."""
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_Members = dict[str, msgspec.Raw]
_decode_members = msgspec.json.Decoder(_Members).decode


class Row(NamedTuple):
    """One record to be, and the line on which it ends."""

    value: bytes
    key: bytes | None
    timestamp_ms: int
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """File and line, for people."""
        return _where(self.file, self.line)


class Fields(NamedTuple):
    """Which fields of a row give its key and its timestamp."""

    key: str | None
    timestamp: str | None


SKIPPED = Row(b"", None, 0)
"""Stands for a record that is left out, and was not looked into."""
_NONE_SKIPPED: Iterator[int] = iter(())


def read_rows(
    file: IO[bytes], kind: str, fields: Fields, skipped: Iterator[int] = _NONE_SKIPPED
) -> Iterator[Row]:
    """The records of one file; SKIPPED for as many of the first as `skipped` yields. Raises
    OperatorError, which names file and line.
    """
    if kind == "lines":
        for number, line in enumerate(_lines(file), 1):
            if next(skipped, None) is not None:
                yield SKIPPED
                continue
            value = line[:-1].removesuffix(b"\r") if line.endswith(b"\n") else line
            yield Row(value, None, _now_ms(), file.name, number)
    elif kind == "jsonl":
        yield from _json_rows(file, fields, skipped)
    else:
        yield from _csv_rows(file, fields, skipped)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends; a byte order mark is not part of the first."""
    first = file.readline()
    if first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        fail(f"{_where(file.name, 1)}: this is UTF-16: convert it with iconv -t UTF-8")
    first = first.removeprefix(BOM_UTF8)
    if first:
        yield first
    for line in file:  # noqa: UP028 - `yield from` would close the file
        yield line


def _where(file: str, line: int) -> str:
    return f"{file}, line {line}"


def _now_ms() -> int:
    return int(time.time() * 1000)


# --- JSON lines -----------------------------------------------------------------------------------


def _json_rows(file: IO[bytes], fields: Fields, skipped: Iterator[int]) -> Iterator[Row]:
    for number, line in enumerate(_lines(file), 1):
        text = line.strip()
        if not text:
            continue
        if next(skipped, None) is not None:
            yield SKIPPED
            continue
        where = _where(file.name, number)
        try:
            row = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            fail(f"{where}: not JSON: {error}")
        if not isinstance(row, dict):
            fail(f"{where}: not a JSON object")
        found = _json_fields(text, fields, where)
        yield Row(text, *found, file.name, number)


def _json_fields(text: bytes, fields: Fields, where: str) -> tuple[bytes | None, int]:
    """Key and timestamp of an object; members as they are written, because a decoded number may be
    another one.
    """
    if fields.key is None and fields.timestamp is None:
        return None, _now_ms()
    members = _decode_members(text)
    for field in fields:
        if field is not None:
            _check_once(text, field, where)
    key = _member(members, fields.key, where)
    stamp = _member(members, fields.timestamp, where)
    return (
        None if key is None else key.encode(),
        _now_ms() if stamp is None else parse_timestamp(stamp, where),
    )


def _member(members: _Members, field: str | None, where: str) -> str | None:
    """A member as text: of a string its characters, of a number its digits."""
    if field is None:
        return None
    if field not in members:
        _fail_missing(field, members, where)
    raw = bytes(members[field])
    if raw == b"null":
        return None
    if raw[:1] in b"{[":
        fail(f"{where}: field {field!r} is no string or number, but an object or array")
    try:
        return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()
    except (msgspec.DecodeError, UnicodeError) as error:
        fail(f"{where}: field {field!r}: {error}")


def _check_once(text: bytes, field: str, where: str) -> None:
    """Fail if an object has two members of this name: readers differ in which one counts."""
    import json

    names: list[list[str]] = []

    def note(pairs: list[tuple[str, object]]) -> None:
        names.append([name for name, _ in pairs])

    if text.count(b":") > 1:
        try:
            json.loads(text, object_pairs_hook=note, parse_int=str)
        except (ValueError, RecursionError) as error:  # it goes less deep than msgspec
            fail(f"{where}: not JSON: {error}")
        if names[-1].count(field) > 1:
            fail(f"{where}: there are two fields {field!r}")


# --- CSV ------------------------------------------------------------------------------------------


def _csv_rows(file: IO[bytes], fields: Fields, skipped: Iterator[int]) -> Iterator[Row]:
    csv.field_size_limit(FIELD_LIMIT_CHARACTERS)
    lines = _DecodedLines(file)
    reader = csv.reader(lines, strict=True)
    names: list[str] | None = None
    try:
        for row in reader:
            if not row:
                continue
            where = _where(file.name, lines.number)
            if names is None:
                names = _checked_names(row, fields, where)
                continue
            if next(skipped, None) is not None:
                yield SKIPPED
                continue
            if len(row) != len(names):
                fail(f"{where}: not as many fields as the first row")
            cells = dict(zip(names, row, strict=True))
            stamp = None if fields.timestamp is None else cells[fields.timestamp]
            yield Row(
                msgspec.json.encode(cells),
                None if fields.key is None else cells[fields.key].encode(),
                _now_ms() if stamp is None else parse_timestamp(stamp, where),
                file.name,
                lines.number,
            )
    except (csv.Error, NotUtf8) as error:
        fail(f"{_where(file.name, lines.number)}: {error}")


class _DecodedLines:
    """The lines of a file as text, one at a time, so that a line that is not UTF-8 spoils none
    before it. A carriage return alone ends a line, too.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.number = 0
        """Of the last line that was taken."""
        self._raw = _lines(file)
        self._pending: Iterator[str] = iter(())

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._pending, None)
        if line is None:
            raw = next(self._raw)
            self.number += 1
            self._pending = iter(io.StringIO(decode_text(raw), newline=""))
            return next(self._pending)
        self.number += 1
        return line


def _checked_names(names: list[str], fields: Fields, where: str) -> list[str]:
    """The names that the first row gives to fields."""
    for number, name in enumerate(names, 1):
        if not name:
            fail(f"{where}: field {number} has no name")
        if names.index(name) != number - 1:
            fail(f"{where}: there are two fields {name!r}")
    for field in fields:
        if field is not None and field not in names:
            _fail_missing(field, names, where)
    return names


def _fail_missing(field: str, names: _Members | list[str], where: str) -> None:
    fail(f"{where}: there is no field {field!r}; there are: {', '.join(names)}")


# --- times ----------------------------------------------------------------------------------------


def parse_timestamp(text: str, where: str) -> int:
    """Milliseconds since the epoch from a number of them, or from ISO 8601 (UTC unless it says)."""
    if _NUMBER.fullmatch(text):
        if int(text) in TIMESTAMPS:
            return int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return (moment - EPOCH) // MILLISECOND
    given = repr(text if len(text) <= 40 else f"{text[:40]}...")
    return fail(f"{where}: {given} is no time: give milliseconds since 1970, or ISO 8601")
