"""`samelog publish`: lines, CSV rows or JSON lines into a topic.

Invariant: exit code 0 means that every input record is in the session's files, and with --wait that
all of them are merged on a majority.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import IO, NamedTuple

import click
import msgspec

from samelog.cli.output import client_option, fail, json_option, progress, report
from samelog.config.tables.client import ClientConfig
from samelog.publisher.publisher import Publisher

CHUNK_RECORDS = 1000
FORMATS = ("lines", "csv", "jsonl")


class Row(NamedTuple):
    """One record to be."""

    value: bytes
    key: bytes | None
    timestamp_ms: int


class Fields(NamedTuple):
    """Which fields of a row give its key and its timestamp."""

    key: str | None
    timestamp: str | None


@click.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--topic", required=True, help="Where the records go.")
@click.option("--session", required=True, help="This publisher's name, its own in the cluster.")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the sessions.")
@click.option("--format", "kind", default="lines", show_default=True, type=click.Choice(FORMATS))
@click.option("--key", help="Field that gives the key (csv, jsonl).")
@click.option("--timestamp", help="Field that gives the time: ms, or ISO 8601 (csv, jsonl).")
@click.option("--partition", type=click.IntRange(min=0), help="The partition; else by key.")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--session-header", is_flag=True, help="Each record says its session: header samelog.session."
)
@click.option("--wait", is_flag=True, help="Until everything is merged on a majority.")
@click.option("--timeout", default=60.0, show_default=True, help="For --wait, in seconds.")
@client_option
@json_option
def command(
    config: ClientConfig,
    *,
    files: tuple[IO[bytes], ...],
    topic: str,
    session: str,
    directory: str | None,
    kind: str,
    key: str | None,
    timestamp: str | None,
    partition: int | None,
    partitions: int,
    session_header: bool,
    wait: bool,
    timeout: float,
) -> None:
    """Publish FILES, or standard input: one record for each line, CSV row or JSON line.

    A CSV row becomes a JSON object; its first row names the fields. Records are in local files
    first (--dir, or `dir` in [publisher] of the configuration): what a run could not ship, the next
    run of the same session ships.

    \b
    Examples:
      seq 1000 | samelog publish --config client.toml --topic numbers --session s1 --dir pub --wait
      samelog publish --config client.toml --topic trades --session feed --format csv \\
          --key symbol --timestamp time --dir pub trades.csv
    """
    fields = Fields(key, timestamp)
    if kind == "lines" and (key or timestamp):
        fail("--key and --timestamp need --format csv or jsonl: lines have no fields")
    rows = (row for file in files or (sys.stdin.buffer,) for row in read_rows(file, kind, fields))
    partitions = max(partitions, 0 if partition is None else partition + 1)
    started = time.monotonic()
    try:
        publisher = Publisher(
            topic,
            session=session,
            directory=directory,
            config=config,
            partitions=partitions,
            session_header=session_header,
        )
    except ValueError as error:
        fail(f"{error} (--dir)" if "directory" in str(error) else str(error))
    with publisher:
        count = _append_all(publisher, rows, partition)
        if wait:
            publisher.wait_merged(timeout=timeout)
    seconds = time.monotonic() - started
    report(
        {"topic": topic, "records": count, "merged": wait, "seconds": seconds},
        f"{count} records {'merged' if wait else 'appended'} in {seconds:.1f} s",
    )


def _append_all(publisher: Publisher, rows: Iterator[Row], partition: int | None) -> int:
    count = 0
    with progress("records", None) as advance:
        while chunk := list(islice(rows, CHUNK_RECORDS)):
            values, keys, timestamps = zip(*chunk, strict=True)
            publisher.append_many(values, keys=keys, timestamps=timestamps, partition=partition)
            count += len(chunk)
            advance(len(chunk))
    return count


def read_rows(file: IO[bytes], kind: str, fields: Fields) -> Iterator[Row]:
    """The records of one file; fails naming file and line for what cannot be one."""
    if kind == "lines":
        for line in file:
            yield Row(line.rstrip(b"\r\n"), None, int(time.time() * 1000))
    elif kind == "jsonl":
        yield from _json_rows(file, fields)
    else:
        yield from _csv_rows(file, fields)


def _json_rows(file: IO[bytes], fields: Fields) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        text = line.strip()
        if not text:
            continue
        try:
            row = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fail(f"{file.name}, line {number}: not JSON: {error}")
        if not isinstance(row, dict):
            fail(f"{file.name}, line {number}: not a JSON object")
        yield _row(text, row, fields, f"{file.name}, line {number}")


def _csv_rows(file: IO[bytes], fields: Fields) -> Iterator[Row]:
    reader = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""), strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                fail(f"{file.name}, line {reader.line_num}: not as many fields as the first row")
            where = f"{file.name}, line {reader.line_num}"
            yield _row(msgspec.json.encode(row), row, fields, where)
    except (csv.Error, UnicodeDecodeError) as error:
        fail(f"{file.name}, line {reader.line_num}: {error}")


def _row(value: bytes, row: dict[str, object], fields: Fields, where: str) -> Row:
    for field in fields:
        if field is not None and field not in row:
            fail(f"{where}: there is no field {field!r}; there are: {', '.join(row)}")
    key = None if fields.key is None else row[fields.key]
    stamp = None if fields.timestamp is None else row[fields.timestamp]
    return Row(
        value,
        None if key is None else str(key).encode(),
        int(time.time() * 1000) if stamp is None else parse_timestamp(stamp, where),
    )


def parse_timestamp(stamp: object, where: str) -> int:
    """Milliseconds since the epoch from a number of them, or from ISO 8601 (UTC unless it says)."""
    from datetime import UTC, datetime

    text = str(stamp)
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        fail(f"{where}: {text!r} is no time: give milliseconds since 1970, or ISO 8601")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
