"""`samelog publish`: lines, CSV rows or JSON lines into a topic.

Invariant: exit code 0 means that every input record is in the session's files, and with --wait that
all of them are merged on a majority. Any other end says how many are, and how to go on.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import IO, TypedDict, Unpack

import click

from samelog.cli.errors import operator_error
from samelog.cli.live_names import complete_sessions, complete_topics
from samelog.cli.numbers import OFFSET, PARTITION, PARTITION_COUNT, TIME_S
from samelog.cli.output import (
    OperatorError,
    api_usage,
    client_option,
    fail,
    following,
    json_option,
    progress,
    report,
)
from samelog.cli.text_records import FORMATS, Fields, Row, read_rows
from samelog.config.tables.client import ClientConfig, Compression
from samelog.format.errors import RecordTooLarge
from samelog.format.nouns import counted
from samelog.publisher.backlog import left_records
from samelog.publisher.errors import RecordsDamaged
from samelog.publisher.publisher import Publisher
from samelog.publisher.records import Positions
from samelog.replicator.client_errors import PublisherError
from samelog.typed.misfits import RowMisfit

LINK_LOGS = (
    logging.getLogger("samelog.runtime.network.link"),
    logging.getLogger("samelog.replicator.push.link"),
)
PUBLISHER_LOG = logging.getLogger("samelog.publisher")
CHUNK_RECORDS = 1000


class Publishing(TypedDict):
    """Options that the publisher has under the same names."""

    session: str
    directory: str | None
    partitions: int | None
    session_header: bool
    dedup_id: str | None
    compression: str | None


@click.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option(
    "--topic", required=True, shell_complete=complete_topics, help="Where the records go."
)
@click.option(
    "--session",
    required=True,
    shell_complete=complete_sessions,
    help="This publisher's name, its own in the cluster.",
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the sessions.")
@click.option("--format", "kind", default="lines", show_default=True, type=click.Choice(FORMATS))
@click.option("--key", help="Field that gives the key (csv, jsonl).")
@click.option("--timestamp", help="Field that gives the time: ms, or ISO 8601 (csv, jsonl).")
@click.option("--partition", type=PARTITION, help="The partition; else by key.")
@click.option("--partitions", type=PARTITION_COUNT, help="Of a topic that is created.")
@click.option(
    "--session-header", is_flag=True, help="Each record says its session: header samelog.session."
)
@click.option("--skip", default=0, type=OFFSET, help="Leave out the first so many.")
@click.option(
    "--dedup-id",
    metavar="NAME",
    help="Number the records of the input from 0: who publishes them again under the same NAME, in "
    "this or another session, adds none twice.",
)
@click.option(
    "--compression",
    type=click.Choice([each.value for each in Compression]),
    help="Of the batches.  [default: that of the configuration, or none]",
)
@click.option("--wait", is_flag=True, help="Until everything is merged on a majority.")
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=TIME_S,
    help="For --wait, in seconds.",
)
@client_option
@json_option
def command(
    config: ClientConfig,
    *,
    files: tuple[IO[bytes], ...],
    topic: str,
    kind: str,
    key: str | None,
    timestamp: str | None,
    partition: int | None,
    skip: int,
    wait: bool,
    timeout: float,
    **publishing: Unpack[Publishing],
) -> None:
    """Publish FILES, or standard input: one record for each line, CSV row or JSON line.

    A CSV row becomes a JSON object; its first row names the fields. Records are in local files
    first (--dir, or `dir` in [publisher] of the configuration): what a run could not ship, the next
    run of the same session ships. What stands before a mistake in the input is published, and the
    message says with which --skip to go on.

    \b
    Examples:
      seq 1000 | samelog publish --config client.toml --topic numbers --session s1 --dir pub --wait
      samelog publish --config client.toml --topic trades --session feed --format csv \\
          --key symbol --timestamp time --dir pub --dedup-id trades-2026-03-01 trades.csv
    """
    fields = Fields(key, timestamp)
    if kind == "lines" and fields != Fields(None, None):
        raise click.UsageError("--key and --timestamp need --format csv or jsonl")
    source = InputFiles(files or (sys.stdin.buffer,))
    skipped = iter(range(skip))
    rows = (row for file in source.files for row in read_rows(file, kind, fields, skipped))
    _leave_out(rows, skip)
    publishing["partitions"] = _partitions(publishing["partitions"], partition)
    started = time.monotonic()
    directory = publishing["directory"] or config.publisher.directory
    left = _left_by_earlier_runs(directory, publishing["session"])
    with api_usage():
        publisher = Publisher(topic, config=config, **publishing)
    _silence_links()
    with publisher:
        is_numbered = publishing["dedup_id"] is not None
        records = InputRecords(publisher, partition, skip, is_numbered=is_numbered)
        count = records.append_all(rows, source)
        if wait:
            _wait(publisher, count, timeout)
    seconds = time.monotonic() - started
    found = {"topic": topic, "records": count, "earlier_records": left}
    done = _merged(count, left) if wait else f"{counted(count, 'record')} appended"
    report({**found, "merged": wait, "seconds": seconds}, f"{done} in {seconds:.1f} s")


def _left_by_earlier_runs(directory: str | None, session: str) -> int:
    """Records of the session that earlier runs have not shipped."""
    return left_records(os.path.join(directory, session)) if directory else 0


def _merged(count: int, earlier: int) -> str:
    """How many records are merged, `earlier` ones of other runs included."""
    return f"{counted(count + earlier, 'record')} merged" + (
        f" ({earlier} of them from earlier runs)" if earlier else ""
    )


def _silence_links() -> None:
    """Keep warnings of links out of the output: the error of a wait gives the same reason."""
    for each in LINK_LOGS:
        each.setLevel(logging.ERROR)


def _wait(publisher: Publisher, count: int, timeout: float) -> None:
    try:
        with following(ShipProgress(lambda: publisher.positions).look):
            publisher.wait_merged(timeout=timeout)
    except PublisherError as error:
        PUBLISHER_LOG.setLevel(logging.ERROR)  # it would say the same
        publisher.close(timeout=0)
        if isinstance(error, RecordsDamaged):
            fail(str(error))
        fail(f"appended {counted(count, 'record')}, and not all of the session is merged: {error}")


class ShipProgress:
    """How many of the bytes that were to be merged at first are merged by now."""

    def __init__(self, positions: Callable[[], Positions]) -> None:
        self._positions = positions
        self._total: int | None = None

    def look(self) -> tuple[float, float | None, str]:
        """(done, total, what is done)."""
        left = unmerged_bytes(self._positions())
        if left is None:
            return 0, None, "merging"
        self._total = max(left, self._total or 0)
        return self._total - left, self._total, "merging"


def unmerged_bytes(positions: Positions) -> int | None:
    """Bytes that were appended and are not known to be merged; None while some are in an earlier
    file, whose length nobody keeps.
    """
    left = 0
    for place, end in positions.appended.items():
        merged = positions.merged.get(place)
        if merged is None or merged[:2] != end[:2]:
            if merged is not None or end.roll:
                return None
            left += end.byte
        else:
            left += end.byte - merged.byte
    return left


def _partitions(wanted: int | None, partition: int | None) -> int | None:
    """How many a topic that is created gets: at least the one that is written to."""
    return wanted if partition is None else max(wanted or 1, partition + 1)


def _leave_out(rows: Iterator[Row], count: int) -> None:
    for number in range(count):
        if next(rows, None) is None:
            fail(f"--skip {count}: the input has {counted(number, 'record')}")


class InputFiles:
    """Where records are read from, and how much of it was read."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self.files = files
        sizes = [_size_of(file) for file in files]
        self._sizes = [size for size in sizes if size is not None]
        self.total = sum(self._sizes) if len(self._sizes) == len(files) else None
        """Bytes; None: one is a pipe, whose end nobody knows."""
        self._done = 0

    def grown(self, records: int) -> int:
        """What was read since it was asked last: bytes, or these records if no total is known."""
        if self.total is None:
            return records
        done = sum(map(_read_of, self.files, self._sizes))
        grown, self._done = done - self._done, done
        return grown


def _size_of(file: IO[bytes]) -> int | None:
    try:
        found = os.fstat(file.fileno())
    except OSError:  # it has no descriptor
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _read_of(file: IO[bytes], size: int) -> int:
    return min(size, file.tell())


class InputRecords:
    """The records of the input, on their way into the session."""

    def __init__(
        self, publisher: Publisher, partition: int | None, skipped: int, *, is_numbered: bool
    ) -> None:
        """`is_numbered`: a record's place in the input is its id."""
        self._publisher = publisher
        self._partition = partition
        self._skipped = skipped
        self._is_numbered = is_numbered
        self._count = 0

    def append_all(self, rows: Iterator[Row], source: InputFiles) -> int:
        """How many there were. Raises OperatorError, which says how many are in."""
        unit = "bytes" if source.total is not None else ""
        with progress("publishing" if unit else "records", source.total, unit=unit) as advance:
            while True:
                chunk, fault = _take_some(rows)
                self._append(chunk)
                advance(source.grown(len(chunk)))
                if fault is not None:
                    raise OperatorError(f"{fault}; {self._how_to_go_on()}")
                if not chunk:
                    return self._count

    def _append(self, chunk: list[Row]) -> None:
        if not chunk:
            return
        try:
            self._append_whole(chunk)
        except (RecordTooLarge, RowMisfit):  # of one record, which refuses all
            self._append_singly(chunk)
        except Exception as error:
            told = operator_error(error)
            if told is None:
                raise
            raise OperatorError(f"{told.message}; {self._how_to_go_on()}") from error

    def _append_whole(self, chunk: list[Row]) -> None:
        values, keys, timestamps, *_ = zip(*chunk, strict=True)
        first_id = self._skipped + self._count if self._is_numbered else None
        try:
            self._publisher.append_many(
                values,
                keys=keys,
                timestamps=timestamps,
                partition=self._partition,
                first_id=first_id,
            )
        except (RecordTooLarge, RowMisfit):
            raise
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        self._count += len(chunk)

    def _append_singly(self, chunk: list[Row]) -> None:
        """Append what precedes the record that is refused, and name that record."""
        for row in chunk:
            try:
                self._append_whole([row])
            except (RecordTooLarge, RowMisfit) as error:
                raise OperatorError(f"{row.where}: {error}; {self._how_to_go_on()}") from error

    def _how_to_go_on(self) -> str:
        done = self._skipped + self._count
        if not done:
            return "no record of the input is in the session"
        first = "record of the input is" if done == 1 else f"{done} records of the input are"
        return f"the first {first} in the session: go on with --skip {done}"


def _take_some(rows: Iterator[Row]) -> tuple[list[Row], str | None]:
    """The next rows, and what is wrong with the one behind them."""
    chunk: list[Row] = []
    try:
        chunk.extend(islice(rows, CHUNK_RECORDS))
    except OperatorError as error:
        return chunk, error.message
    except KeyboardInterrupt:
        return chunk, "interrupted"
    return chunk, None
