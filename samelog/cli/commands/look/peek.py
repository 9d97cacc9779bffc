"""`samelog peek`: some records of a topic as the nodes have them, without a copy.

They come by the pull protocol, as to a subscriber: it is there on every node, checks the same
rights, sends no more than a window ahead of what was taken, and has its share of each turn of a
node's event loop, so that what comes in does not wait for who looks. Invariant: nothing is kept
here or there; one piece of a log is in memory at a time, and nothing is read after --timeout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
import re2

from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import COUNT, OFFSET, PARTITION, SOME_TIME_S
from samelog.cli.output import (
    client_file_option,
    fail,
    following,
    json_option,
    printable,
    registry_option,
    wants_json,
)
from samelog.cli.record_text import as_line, as_value
from samelog.format._kernels import Record, decode_records
from samelog.format.arrow import ArrowMissing
from samelog.format.compression import decompress
from samelog.format.nouns import counted
from samelog.spark.plan.offsets import OffsetRange, PartitionName

if TYPE_CHECKING:
    from samelog.admin.registry import SchemaRegistry
    from samelog.cli.conditions import RowCondition
    from samelog.cli.value_rows import PartitionRows
    from samelog.config.tables.client import ClientConfig
    from samelog.spark.logs.nodes import Nodes, RemoteLogs
    from samelog.spark.plan.catalogue import TopicState

ANSWER_S = 10.0
SHOWN = 10


def parse_moment(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Milliseconds since the epoch of an ISO 8601 time, in UTC unless it says."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-11-20T08:00") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_pattern(ctx: click.Context, param: click.Parameter, text: str | None) -> Any:
    """A pattern of RE2, whose time grows with the text alone."""
    options = re2.Options()
    options.log_errors = False
    try:
        return None if text is None else re2.compile(text.encode(), options)
    except re2.error as error:
        raise click.BadParameter(f"{text!r} is no regular expression: {error}") from None


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Which records are shown: all, or those that have this key and whose value matches."""

    key: bytes | None = None
    pattern: Any = None

    def has(self, record: Record) -> bool:
        """Whether a record is one of them."""
        if self.key is not None and record.key != self.key:
            return False
        return self.pattern is None or bool(self.pattern.search(record.value or b""))


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to begin: at an offset, at a time, so many before the end, or else with the oldest."""

    offset: int | None = None
    at_ms: int | None = None
    last: int | None = None

    def check(self) -> None:
        """Raises UsageError if it is several places."""
        if sum(each is not None for each in (self.offset, self.at_ms, self.last)) > 1:
            raise click.UsageError("only one of --offset, --at and --last says where to begin")

    def first(self, logs: RemoteLogs, whole: OffsetRange) -> int:
        """The first offset to look at in a partition; its end where nothing is that late."""
        if self.at_ms is not None:
            found = logs.offset_at(whole.name, self.at_ms)
            return whole.end if found is None else found
        if self.last is not None:
            return max(whole.start, whole.end - self.last)
        return whole.start if self.offset is None else self.offset


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--partition", type=PARTITION, help="Only this one.  [default: all]")
@click.option("--offset", type=OFFSET, help="Begin with this offset.")
@click.option(
    "--at", "at_ms", metavar="TIME", callback=parse_moment, help="Begin with this time (ISO 8601)."
)
@click.option(
    "--last",
    type=COUNT,
    metavar="N",
    help="Look at the newest N records of each partition only.",
)
@click.option("--key", help="Show only records that have exactly this key.")
@click.option(
    "--grep",
    "pattern",
    metavar="REGEX",
    callback=parse_pattern,
    help="Show only records whose value matches this regular expression (RE2).",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help="Show only records that meet this, over the columns of their schema, as in SQL.",
)
@registry_option
@click.option(
    "--max",
    "limit",
    type=COUNT,
    metavar="N",
    help=f"Show so many records at most.  [default: {SHOWN}; with --last, all of them]",
)
@click.option(
    "--timeout",
    "timeout_s",
    default=30.0,
    show_default=True,
    type=SOME_TIME_S,
    metavar="SECONDS",
    help="Look no longer than this.",
)
@client_file_option
@json_option
def command(
    *,
    config: str,
    topic: str,
    limit: int | None,
    timeout_s: float,
    key: str | None,
    pattern: Any,
    where: str | None,
    registry: SchemaRegistry | None,
    **place: int | None,
) -> None:
    """Print some records of TOPIC as the nodes have them, without copying the topic.

    Values are printed, a line each, or with --json all that there is of a record. Those of Avro and
    Arrow are printed as rows, by the version of the topic's schema that wrote them, and with
    --registry those of Confluent's wire format by the schema of their id. Partitions are looked at
    one after the other, from their oldest record on. The exit code is 1 if no record was
    found, or if the time was over before enough of them were.

    \b
    Examples:
      samelog peek flights --config client.toml
      samelog peek flights --last 3 --json --config client.toml
      samelog peek flights --partition 2 --offset 1500 --max 20 --config client.toml
      samelog peek flights --at 2026-11-20T08:00 --key EWR --config client.toml
      samelog peek flights --last 100000 --grep 'dest.*(LAX|SFO)' --config client.toml
      samelog peek orders --registry http://registry:8081 --config client.toml
      samelog peek flights --where "dep_delay > 60 AND origin = 'EWR'" --config client.toml
    """
    from samelog.cli.value_rows import PartitionRows
    from samelog.config.load import load_client
    from samelog.spark.logs.nodes import Nodes, RemoteLogs
    from samelog.typed.framing import Frames

    partition = place.pop("partition")
    begin, client = Beginning(**place), load_client(config)
    begin.check()
    limit = limit or (SHOWN if begin.last is None else sys.maxsize)
    deadline = time.monotonic() + timeout_s
    remedy = "give more time with --timeout"
    with closing(Nodes(config, timeout_s=min(ANSWER_S, timeout_s), remedy=remedy)) as nodes:
        ranges = ranges_of(RemoteLogs(nodes), topic, partition, begin)
        looked = Looked(_conditions(client, ranges, where))
        with closing(_records(nodes, ranges, deadline, looked)) as records:
            chosen = matching(records, RecordFilter(_bytes(key), pattern), limit)
            frames = None if registry is None else Frames(registry)
            rows = {each.name: PartitionRows(client, *each.name, frames) for each in ranges}
            with following(lambda: (looked.offsets, length_of(ranges), "looking"), is_bytes=False):
                first = list(islice(chosen, 1))
            count = _print(chain(first, chosen), rows)
    if count == 0:
        fail(f"no record of {topic} is as it was asked for")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def ranges_of(
    logs: RemoteLogs, topic: str, partition: int | None, begin: Beginning
) -> list[OffsetRange]:
    """What to look at, of each partition that has something. Raises OperatorError."""
    state = logs.topic_states([topic]).get(topic)
    if state is None:
        fail(f"there is no topic {topic!r}")
    wholes = _wholes(topic, state, partition)
    if begin.offset is not None and len(wholes) > 1:
        raise click.UsageError(
            f"{topic!r} has {len(wholes)} partitions: say with --partition whose --offset it is"
        )
    chosen = [whole._replace(start=begin.first(logs, whole)) for whole in wholes]
    if all(each.start >= each.end for each in chosen):
        told = "; ".join(f"{each.name}: from {each.start} to {each.end}" for each in wholes)
        fail(f"no offset is there to look at, of those without the end ({told})")
    return [each for each in chosen if each.start < each.end]


def _wholes(topic: str, state: TopicState, partition: int | None) -> list[OffsetRange]:
    """All that the chosen partitions have."""
    if partition is not None and partition not in state.partitions:
        fail(
            f"{topic!r} has {counted(len(state.partitions), 'partition')}, no partition {partition}"
        )
    return [
        OffsetRange(PartitionName(topic, number), state.topic_id, bounds.start, bounds.end)
        for number, bounds in sorted(state.partitions.items())
        if partition in (None, number)
    ]


def _conditions(
    client: ClientConfig, ranges: list[OffsetRange], where: str | None
) -> Mapping[PartitionName, RowCondition]:
    if where is None:
        return {}
    from samelog.cli.conditions import RowCondition
    from samelog.typed.filters.operands import BadFilter

    try:
        return {each.name: RowCondition(client, *each.name, where) for each in ranges}
    except (BadFilter, ArrowMissing) as error:
        fail(str(error))


@dataclass(slots=True)
class Looked:
    """What records are looked at for, and how many offsets were."""

    conditions: Mapping[PartitionName, RowCondition]
    offsets: int = 0


def length_of(ranges: list[OffsetRange]) -> int:
    """How many offsets there are to look at."""
    return sum(each.end - each.start for each in ranges)


def _records(
    nodes: Nodes, ranges: list[OffsetRange], deadline: float, looked: Looked
) -> Generator[Record]:
    """The records of ranges, a piece of a log at a time. Raises OperatorError at the deadline."""
    for number, wanted in enumerate(ranges):
        condition = looked.conditions.get(wanted.name)
        with closing(nodes.read(wanted)) as chunks:
            for chunk in chunks:
                met = None if condition is None else condition.meeting(chunk.data, chunk.size)
                for record in decode_records(chunk.data, 0, chunk.size, *wanted.name, decompress):
                    is_met = met is None or record.offset in met
                    if is_met and wanted.start <= record.offset < wanted.end:
                        yield record
                looked.offsets = length_of(ranges[:number]) + chunk.next_offset - wanted.start
                if time.monotonic() >= deadline and (wanted, chunk.next_offset) != _end(ranges):
                    fail(
                        f"the time is over before all was looked at: go on with --partition "
                        f"{wanted.name.partition} --offset {chunk.next_offset}, or give --timeout"
                    )


def _end(ranges: list[OffsetRange]) -> tuple[OffsetRange, int]:
    return ranges[-1], ranges[-1].end


def matching(records: Iterator[Record], choice: RecordFilter, limit: int) -> Iterator[Record]:
    """The first `limit` records that are chosen; none behind them is asked for."""
    count = 0
    for record in records:
        if choice.has(record):
            yield record
            count += 1
            if count == limit:
                return


def _print(records: Iterator[Record], rows: Mapping[PartitionName, PartitionRows]) -> int:
    """Print records; how many."""
    count = 0
    for record in records:
        found = rows[PartitionName(record.topic, record.partition)].of(record)
        if wants_json():
            found = [as_line(record, found)]
        for line in [as_value(record)] if found is None else found:
            _echo(line)
        count += 1
    return count


def _echo(line: bytes) -> None:
    if sys.stdout.isatty():
        line = printable(line.decode(errors="backslashreplace"), keep="\t").encode()
    click.echo(line)
