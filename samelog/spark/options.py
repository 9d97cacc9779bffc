"""The options of a query, checked.

Names and texts are those of Spark's Kafka source where it has them. Invariant: options that were
parsed do not contradict each other; everything that is wrong raises BadOption, which names the
option, its value and what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from typing import TypeVar

from samelog.format.arguments import check_choice, shown
from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name
from samelog.format.numbers import OFFSETS, PARTITIONS
from samelog.format.transactions import Isolation
from samelog.spark.errors import BadOption
from samelog.spark.plan.range_limits import (
    EARLIEST,
    LATEST,
    OffsetRangeLimit,
    parse_offsets,
    parse_timestamp,
    parse_timestamps,
)

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
AT_END = OffsetRangeLimit("endingOffsets", LATEST)
SMALL_PIECE = 50_000
"""Offsets that are read about as fast as another task starts."""
WAIT_MOST_MS = (1 << 31) - 1
"""What timers of the operating system take."""


class ReadMode(Enum):
    """Where tasks read: whichever is there, local copies only, or nodes only."""

    AUTO = "auto"
    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Which partitions: of the `topics`, those that match `pattern`, or the `assigned` ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a micro-batch may, or has to, hold."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """How a batch is cut into tasks."""

    min_partitions: int = 1
    max_records: int | None = None
    small_piece: int = SMALL_PIECE


@dataclass(frozen=True, slots=True)
class Archive:
    """Copies that were made before archiving, at a directory or URL; of which cluster and log, if
    there are several.
    """

    url: str
    cluster: str | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccess:
    """How logs are reached: `config`, the path of a client.toml; `directory`, of local copies. Each
    may also be named by the environment of the host that reads. Or only an `archive` is read.
    """

    mode: ReadMode = ReadMode.AUTO
    config: str | None = None
    directory: str | None = None
    archive: Archive | None = None
    local_wait_s: float = 1.0
    fetch_timeout_s: float = 30.0
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    where: str | None = None
    """A condition that nodes evaluate (docs/typed.md, "Filters"); None: all is read."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Topic -> the version of its schema by which they do; of others the newest."""


class ValueFormat(Enum):
    """What values are."""

    BINARY = "binary"
    """Bytes, of which nothing is known."""
    JSON = "json"
    AVRO = "avro"
    ARROW = "arrow"
    CSV = "csv"
    SCHEMA = "schema"
    """What the topic's schema says, each by the version that wrote it."""


class CorruptMode(Enum):
    """What becomes of a value that is not what the schema says."""

    PERMISSIVE = "permissive"
    FAILFAST = "failfast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How values are decoded. `schema`: of the payload, as SQL, empty if the query gives it;
    `metadata_prefix`: before the names of Kafka's columns.
    """

    format: ValueFormat = ValueFormat.BINARY
    schema: str = ""
    avro_schema: str = ""
    corrupt: CorruptMode = CorruptMode.PERMISSIVE
    metadata_prefix: str = ""
    registry: str = ""
    """URL of the registry whose ids values begin with (docs/typed.md); empty: they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All of them. `starting` None: by the kind of query; `must_find`: a start by time without
    such a record is an error.
    """

    selection: TopicSelection
    access: LogAccess
    starting: OffsetRangeLimit | None = None
    ending: OffsetRangeLimit = AT_END
    must_find: bool = True
    limits: Limits = Limits()
    splits: Splits = Splits()
    fail_on_data_loss: bool = True
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    """Those that are wanted; empty: all."""
    pushdown: bool = False
    values: Values = Values()
    position_group: str | None = None
    """The consumer group as whose offsets a stream's positions are told."""

    def start_of(self, *, is_stream: bool) -> OffsetRangeLimit:
        """Where the query starts; by default a stream at the end, a batch at the beginning."""
        default = OffsetRangeLimit("startingOffsets", LATEST if is_stream else EARLIEST)
        return self.starting or default


SELECTIONS = ("subscribe", "subscribePattern", "assign")
STARTS: dict[str, Callable[[str, str], OffsetRangeLimit]] = {
    "startingOffsets": parse_offsets,
    "startingTimestamp": parse_timestamp,
    "startingOffsetsByTimestamp": parse_timestamps,
}
ENDS: dict[str, Callable[[str, str], OffsetRangeLimit]] = {
    "endingOffsets": parse_offsets,
    "endingTimestamp": parse_timestamp,
    "endingOffsetsByTimestamp": parse_timestamps,
}
OTHERS = (
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "minRecordsPerTask",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "pushdown",
    "where",
    "valueFormat",
    "valueSchema",
    "avroSchema",
    "registry",
    "mode",
    "metadataPrefix",
    "positionGroup",
    "isolation",
    "readMode",
    "config",
    "directory",
    "archive",
    "archiveCluster",
    "archiveLog",
    "localWaitMs",
    "fetchTimeoutMs",
)
WITHOUT_MEANING = ("groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries")
"""Options of the Kafka source, in lower case, that may stay where a query moves over."""
KAFKA_ISOLATION = "kafka.isolation.level"
"""What the Kafka source calls the option isolation."""
_KNOWN = {name.lower(): name for name in (*SELECTIONS, *STARTS, *ENDS, *OTHERS)}
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DELAY = re.compile(r"([0-9]{1,18})\s*(ms|s|m|min|h)")


def parse_options(told: Mapping[str, str]) -> Options:
    """The options as Spark hands them over: names in any case, values texts. Raises BadOption."""
    texts = _known_only(told)
    return Options(
        selection=_selection(texts),
        access=_access(texts),
        starting=_one_of(texts, STARTS),
        ending=_checked_ending(_one_of(texts, ENDS) or AT_END),
        must_find=_strategy(texts),
        limits=_limits(texts),
        splits=_splits(texts),
        fail_on_data_loss=_boolean(texts, "failOnDataLoss", default=True),
        include_headers=_boolean(texts, "includeHeaders", default=False),
        pushdown=_boolean(texts, "pushdown", default=False),
        columns=_names(texts.get("columns", "")),
        values=_values(texts),
        position_group=texts.get("positionGroup") or None,
    )


def _known_only(told: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, text in told.items():
        lower = name.lower()
        if lower == KAFKA_ISOLATION:
            texts.setdefault("isolation", text)
            continue
        if lower == "kafka.group.id":
            raise BadOption("kafka.group.id: there is no consumer group; leave the option out")
        if lower.startswith("kafka.") or lower in WITHOUT_MEANING:
            continue
        if lower not in _KNOWN:
            raise BadOption(f"{name} is no option; those there are: {', '.join(_KNOWN.values())}")
        texts[_KNOWN[lower]] = text
    return texts


def _one_of(
    texts: Mapping[str, str], parsers: Mapping[str, Callable[[str, str], OffsetRangeLimit]]
) -> OffsetRangeLimit | None:
    given = [name for name in parsers if name in texts]
    if len(given) > 1:
        raise BadOption(f"{' and '.join(given)} contradict each other: give one of them")
    return parsers[given[0]](given[0], texts[given[0]]) if given else None


def _checked_ending(ending: OffsetRangeLimit) -> OffsetRangeLimit:
    if ending.everywhere == EARLIEST or EARLIEST in ending.each.values():
        raise BadOption(f"{ending.option}: a query cannot end at earliest")
    return ending


def _strategy(texts: Mapping[str, str]) -> bool:
    text = texts.get("startingOffsetsByTimestampStrategy", "error").lower()
    if text not in {"error", "latest"}:
        raise BadOption(f"startingOffsetsByTimestampStrategy: {text!r} is not error or latest")
    return text == "error"


# --- which partitions -------------------------------------------------------------------------


def _selection(texts: Mapping[str, str]) -> TopicSelection:
    given = [name for name in SELECTIONS if name in texts]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise BadOption(f"give one of {', '.join(SELECTIONS)}; found: {found}")
    text = texts[given[0]]
    match given[0]:
        case "subscribe":
            return TopicSelection(topics=_topics("subscribe", text.split(",")))
        case "subscribePattern":
            return TopicSelection(pattern=_pattern(text))
        case _:
            return _assigned(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _topics(option: str, names: list[str]) -> tuple[str, ...]:
    stripped = sorted({name.strip() for name in names if name.strip()})
    if not stripped:
        raise BadOption(f"{option} names no topic")
    try:
        return tuple(check_topic_name(name) for name in stripped)
    except InvalidName as error:
        raise BadOption(f"{option}: {error}") from error


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern: {text!r} is no regular expression: {error}") from error
    return text


def _assigned(text: str) -> TopicSelection:
    try:
        told = sorted(json.loads(text).items())
        assigned = {topic: tuple(sorted(map(int, set(numbers)))) for topic, numbers in told}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadOption(f'assign: {text!r} is not understood; write {{"topic": [0, 1]}}') from error
    for number in chain.from_iterable(assigned.values()):
        if number not in PARTITIONS:
            raise BadOption(
                f"assign: {shown(number)} is no partition, which is a number from 0 to "
                f"{PARTITIONS[-1]}"
            )
    return TopicSelection(topics=_topics("assign", list(assigned)), assigned=assigned)


# --- the others -------------------------------------------------------------------------------


def _access(texts: Mapping[str, str]) -> LogAccess:
    return LogAccess(
        mode=_choice(texts, "readMode", ReadMode.AUTO),
        config=texts.get("config"),
        directory=texts.get("directory"),
        archive=_archive(texts),
        local_wait_s=_number(texts, "localWaitMs", 0, 1000, WAIT_MOST_MS) / 1000,
        fetch_timeout_s=_number(texts, "fetchTimeoutMs", 1, 30_000, WAIT_MOST_MS) / 1000,
        isolation=_isolation(texts),
        where=texts.get("where"),
    )


def _isolation(texts: Mapping[str, str]) -> Isolation:
    found = _choice(texts, "isolation", Isolation.READ_UNCOMMITTED)
    if found is Isolation.READ_COMMITTED and "archive" in texts:
        raise BadOption(
            "isolation=read_committed: the copies in an archive do not say what was aborted; leave "
            "it out, or read from nodes"
        )
    return found


def _archive(texts: Mapping[str, str]) -> Archive | None:
    url = texts.get("archive")
    given = [name for name in ("readMode", "config", "directory") if name in texts]
    if url is not None and given:
        raise BadOption(f"archive and {' and '.join(given)} contradict each other: give one")
    if url is None and not texts.keys().isdisjoint({"archiveCluster", "archiveLog"}):
        raise BadOption("archiveCluster and archiveLog need an archive")
    return (
        None if url is None else Archive(url, texts.get("archiveCluster"), texts.get("archiveLog"))
    )


def _values(texts: Mapping[str, str]) -> Values:
    found = Values(
        format=_choice(texts, "valueFormat", ValueFormat.BINARY),
        schema=texts.get("valueSchema", "").strip(),
        avro_schema=texts.get("avroSchema", ""),
        corrupt=_choice(texts, "mode", CorruptMode.PERMISSIVE),
        metadata_prefix=texts.get("metadataPrefix", ""),
        registry=texts.get("registry", ""),
    )
    if found.format is ValueFormat.BINARY and found != Values():
        raise BadOption(
            "valueSchema, avroSchema, registry, mode and metadataPrefix need a valueFormat"
        )
    given = [name for name in ("avroSchema", "registry") if texts.get(name)]
    if found.format is ValueFormat.SCHEMA and (found.schema or found.avro_schema):
        raise BadOption("valueSchema, avroSchema: with valueFormat=schema the topics have it")
    if found.format is not ValueFormat.SCHEMA and len(given) != (found.format is ValueFormat.AVRO):
        raise BadOption(
            "avroSchema, the schema of the values, or registry, which has it, goes with "
            "valueFormat=avro"
        )
    return found


def _limits(texts: Mapping[str, str]) -> Limits:
    most = _optional(texts, "maxOffsetsPerTrigger")
    least = _optional(texts, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger, {least}, is above maxOffsetsPerTrigger, {most}")
    delay_s = _delay(texts.get("maxTriggerDelay", "15m"))
    max_bytes = _optional(texts, "maxBytesPerTrigger")
    return Limits(max_offsets=most, max_bytes=max_bytes, min_offsets=least, max_delay_s=delay_s)


def _splits(texts: Mapping[str, str]) -> Splits:
    return Splits(
        min_partitions=_number(texts, "minPartitions", 1, 1),
        max_records=_optional(texts, "maxRecordsPerPartition"),
        small_piece=_number(texts, "minRecordsPerTask", 0, SMALL_PIECE),
    )


def _delay(text: str) -> float:
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise BadOption(f"maxTriggerDelay: {text!r} is not understood; write 500ms, 30s or 15m")
    return int(match[1]) * _UNITS_S[match[2]]


def _boolean(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadOption(f"{name}: {text!r} is not true or false")
    return text == "true"


def _choice(texts: Mapping[str, str], name: str, default: E) -> E:
    text = texts.get(name, default.value).lower()
    try:
        return check_choice(name, text, type(default))
    except ValueError as error:
        raise BadOption(str(error)) from error


def _optional(texts: Mapping[str, str], name: str) -> int | None:
    return _number(texts, name, 1, 1) if name in texts else None


def _number(
    texts: Mapping[str, str], name: str, least: int, default: int, most: int = OFFSETS[-1]
) -> int:
    text = texts.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError as error:
        raise BadOption(f"{name}: {shown(text)} is no whole number") from error
    if number < least:
        raise BadOption(f"{name}: {shown(number)} is below {least}")
    if number > most:
        raise BadOption(f"{name}: {shown(number)} is above {most}")
    return number
