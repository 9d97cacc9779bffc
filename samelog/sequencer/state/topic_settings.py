"""The settings of a topic, with the values that are taken; names and values are Kafka's.

Some change what happens. Others are taken because what they ask for happens in any case, or because
they are advice that promises a client nothing (`ADVICE`). A value that promises what does not
happen is refused: taking it would be a lie.

Invariant: only settings that passed `problem_with` are ever in the replicated state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from samelog.archiver.compaction_plan import (
    DEFAULTS,
    DELETE_RETENTION_MS,
    MAX_COMPACTION_LAG_MS,
    MIN_CLEANABLE_RATIO,
    MIN_COMPACTION_LAG_MS,
)
from samelog.archiver.copies.manifests import ARCHIVE_COPY, parse_formats
from samelog.archiver.copies.value_schema import VALUE_SCHEMA, parse_schema
from samelog.archiver.policy import (
    CLEANUP_POLICY,
    COMPACT,
    DELETE,
    FOR_EVER,
    HOLD_GROUPS,
    HOLD_MAX_BYTES,
    HOLD_MAX_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    is_compacted,
)
from samelog.sequencer.state.tables.keys import (
    DEDUP_KEY,
    DEDUP_KEY_HORIZON,
    FIRST,
    NONE,
    parse_horizon,
)
from samelog.typed.compatibility import COMPATIBILITY, Compatibility
from samelog.typed.enforcing import ACCEPT, ENFORCE, Enforce
from samelog.typed.versions import VERSIONS_MOST

GROUPS_CHARACTERS = 1024
_RATIO = re.compile(r"(0(\.[0-9]{1,9})?|1(\.0{1,9})?)", re.ASCII)
SEGMENT_BYTES = "segment.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
MAX_MESSAGE_BYTES = "max.message.bytes"
SEGMENT_MS = "segment.ms"
SEGMENT_MS_DEFAULT = 7 * 24 * 3600 * 1000
COMPRESSION_TYPE = "compression.type"
PRODUCER = "producer"
UNCOMPRESSED = "uncompressed"
MIN_INSYNC = "min.insync.replicas"
_MOST = (1 << 63) - 1
_ALWAYS = str(_MOST)

FIXED: Mapping[str, str] = {
    "unclean.leader.election.enable": "false",
    "message.timestamp.before.max.ms": _ALWAYS,
    "message.timestamp.after.max.ms": _ALWAYS,
    "remote.storage.enable": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "local.retention.ms": "-2",
    "local.retention.bytes": "-2",
    "leader.replication.throttled.replicas": "",
    "follower.replication.throttled.replicas": "",
}
"""Settings with one value only: what happens anyhow. Kafka's clients like to name them."""


def _number(least: int, greatest: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        fits = value.isascii() and value.isdigit() and least <= int(value) <= greatest
        return None if fits else f"is not a number from {least} to {greatest}"

    return problem


def _ratio(value: str) -> str | None:
    fits = _RATIO.fullmatch(value) is not None
    return None if fits else "is not a number from 0 to 1"


def _level_of_zstd(value: str) -> str | None:
    is_fast = value.startswith("-") and _number(1, 131_072)(value[1:]) is None
    return None if is_fast else _number(1, 22)(value)


def _number_or_for_ever(value: str) -> str | None:
    return None if value == FOR_EVER else _number(0, (1 << 63) - 1)(value)


def _groups(value: str) -> str | None:
    names = value.split(",")
    fit = all(name and name == name.strip() for name in names) and len(value) <= GROUPS_CHARACTERS
    return None if fit else "is not a list of consumer groups, as in billing,audit"


def _read_by(parse: Callable[[str], object]) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        try:
            parse(value)
        except ValueError as error:
            return str(error)
        return None

    return problem


def _one_of(*allowed: str) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        return None if value in allowed else f"is not one of {', '.join(allowed)}"

    return problem


def _policies(value: str) -> str | None:
    parts = value.split(",")
    fits = {*parts} <= {DELETE, COMPACT} and len({*parts}) == len(parts)
    return None if fits else "is not delete, compact, or both as in compact,delete"


_NATURAL = _number(0, _MOST)
_INT = _number(0, (1 << 31) - 1)
_BOOLEAN = _one_of("true", "false")

ADVICE: Mapping[str, tuple[str, Callable[[str], str | None]]] = {
    "compression.gzip.level": ("-1", _one_of("-1", *map(str, range(1, 10)))),
    "compression.lz4.level": ("9", _number(1, 17)),
    "compression.zstd.level": ("3", _level_of_zstd),
    DELETE_RETENTION_MS: (DEFAULTS[DELETE_RETENTION_MS], _NATURAL),
    "file.delete.delay.ms": ("60000", _NATURAL),
    "flush.messages": (_ALWAYS, _number(1, _MOST)),
    "flush.ms": (_ALWAYS, _NATURAL),
    "index.interval.bytes": ("4096", _INT),
    MAX_COMPACTION_LAG_MS: (DEFAULTS[MAX_COMPACTION_LAG_MS], _number(1, _MOST)),
    MIN_CLEANABLE_RATIO: (DEFAULTS[MIN_CLEANABLE_RATIO], _ratio),
    MIN_COMPACTION_LAG_MS: (DEFAULTS[MIN_COMPACTION_LAG_MS], _NATURAL),
    "preallocate": ("false", _BOOLEAN),
    "segment.index.bytes": ("10485760", _number(4, (1 << 31) - 1)),
    "segment.jitter.ms": ("0", _NATURAL),
}
"""Settings with a default that is Kafka's, and what their values may be. Those of compaction say
what happens to compacted topics. The others promise nothing here: they concern files that are not
there, and when records are synced is the node's to say.
"""

KNOWN: Mapping[str, Callable[[str], str | None]] = {
    SEGMENT_BYTES: _number(1 << 16, (1 << 31) - 1),
    TIMESTAMP_TYPE: _one_of(CREATE_TIME, LOG_APPEND_TIME),
    MAX_MESSAGE_BYTES: _number(1, 65 << 20),
    RETENTION_MS: _number_or_for_ever,
    RETENTION_BYTES: _number_or_for_ever,
    HOLD_GROUPS: _groups,
    HOLD_MAX_MS: _number(0, (1 << 63) - 1),
    HOLD_MAX_BYTES: _number(0, (1 << 63) - 1),
    ARCHIVE_COPY: _read_by(parse_formats),
    VALUE_SCHEMA: _read_by(parse_schema),
    SEGMENT_MS: _number(1, _MOST),
    MIN_INSYNC: _number(1, (1 << 31) - 1),
    CLEANUP_POLICY: _policies,
    COMPRESSION_TYPE: _one_of(PRODUCER, UNCOMPRESSED, "gzip", "snappy", "lz4", "zstd"),
    DEDUP_KEY: _one_of(NONE, FIRST),
    DEDUP_KEY_HORIZON: _read_by(parse_horizon),
    COMPATIBILITY: _one_of(*(mode.value for mode in Compatibility)),
    ENFORCE: _one_of(*(each.value for each in Enforce)),
    ACCEPT: _number(1, VERSIONS_MOST),
    **{key: _one_of(value) for key, value in FIXED.items()},
    **{key: check for key, (_, check) in ADVICE.items()},
}


def problem_with(key: str, value: str, majority: int) -> str | None:
    """Return a message describing why the value is invalid, or None. `majority`: how many nodes a
    record is on before it is acknowledged.
    """
    check = KNOWN.get(key)
    if check is None:
        return f"unknown topic setting {key!r}, known are {', '.join(sorted(KNOWN))}"
    if key == MIN_INSYNC and value.isascii() and value.isdigit() and int(value) > majority:
        return f"{key}={value!r}: a record is acknowledged when {majority} nodes have it"
    problem = check(value)
    return None if problem is None else f"{key}={value!r} {problem}"


def longest_segment_ms(settings: Mapping[str, str], default_ms: int) -> int:
    """After how long a segment is rolled with the next record. What is compacted has to be closed
    for that, as with Kafka's broker.
    """
    own = int(settings.get(SEGMENT_MS, default_ms))
    if not is_compacted(settings.get(CLEANUP_POLICY, "")):
        return own
    return min(own, int(settings.get(MAX_COMPACTION_LAG_MS, DEFAULTS[MAX_COMPACTION_LAG_MS])))
