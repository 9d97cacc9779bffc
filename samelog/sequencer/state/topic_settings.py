"""The settings of a topic that mean something, with their values; names and values are Kafka's.

Invariant: only settings that passed `problem_with` are ever in the replicated state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from samelog.archiver.copies.manifests import ARCHIVE_COPY, parse_formats
from samelog.archiver.copies.value_schema import VALUE_SCHEMA, parse_schema
from samelog.archiver.policy import (
    FOR_EVER,
    HOLD_GROUPS,
    HOLD_MAX_BYTES,
    HOLD_MAX_MS,
    RETENTION_BYTES,
    RETENTION_MS,
)
from samelog.typed.compatibility import COMPATIBILITY, Compatibility

GROUPS_CHARACTERS = 1024
SEGMENT_BYTES = "segment.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
MAX_MESSAGE_BYTES = "max.message.bytes"
FIXED: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
}
"""Settings with one value only: what happens anyhow. Kafka's clients like to name them."""


def _number(least: int, greatest: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        fits = value.isascii() and value.isdigit() and least <= int(value) <= greatest
        return None if fits else f"is not a number from {least} to {greatest}"

    return problem


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


KNOWN: Mapping[str, Callable[[str], str | None]] = {
    SEGMENT_BYTES: _number(1 << 16, (1 << 31) - 1),
    TIMESTAMP_TYPE: _one_of(CREATE_TIME, LOG_APPEND_TIME),
    MAX_MESSAGE_BYTES: _number(1, 5 << 20),
    RETENTION_MS: _number_or_for_ever,
    RETENTION_BYTES: _number_or_for_ever,
    HOLD_GROUPS: _groups,
    HOLD_MAX_MS: _number(0, (1 << 63) - 1),
    HOLD_MAX_BYTES: _number(0, (1 << 63) - 1),
    ARCHIVE_COPY: _read_by(parse_formats),
    VALUE_SCHEMA: _read_by(parse_schema),
    COMPATIBILITY: _one_of(*(mode.value for mode in Compatibility)),
    **{key: _one_of(value) for key, value in FIXED.items()},
}


def problem_with(key: str, value: str) -> str | None:
    """What is wrong with a setting; None if nothing."""
    check = KNOWN.get(key)
    if check is None:
        return f"unknown topic setting {key!r}, known are {', '.join(sorted(KNOWN))}"
    problem = check(value)
    return None if problem is None else f"{key}={value!r} {problem}"
