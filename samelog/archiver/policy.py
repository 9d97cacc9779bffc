"""The archiving policy: a JSON object, `{"time": 10080, "limit": "90Gi", "disk": 90}`, and what
topics set instead of it.

Invariant: a policy that was read keeps the growing segment of every partition and archives for a
reason that it names; anything unclear is refused, and the policy before it stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from samelog.config.values import parse_size

TIME_MAX_MIN = 100 * 366 * 24 * 60
LIMIT_LEAST, LIMIT_MOST = 64 << 10, 1 << 60
DISK_DEFAULT = 90
KEYS = ("time", "limit", "disk")

CLEANUP_POLICY, DELETE, COMPACT = "cleanup.policy", "delete", "compact"
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
HOLD_GROUPS = "hold_groups"
HOLD_MAX_MS, HOLD_MAX_BYTES = "hold_max_ms", "hold_max_bytes"
HOLD_MAX_MS_DEFAULT = 7 * 24 * 3600 * 1000
"""For a hold that names no bound: there is always one."""
FOR_EVER = "-1"


class PolicyError(Exception):
    """A policy that cannot be used; the message says what is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Policy:
    """`time`: minutes since a segment was rolled (0: off); `limit`: bytes of all merged logs
    together (None: off); `disk`: per cent of the disk.
    """

    time: int
    limit: int | None = None
    disk: int = DISK_DEFAULT


@dataclass(frozen=True, slots=True)
class Rules:
    """What counts for one partition of a topic. `time_ms`: age since the roll; `size`: bytes that
    are kept at least; `counts`: whether the cluster's limit is about it; `for_ever`: not even a
    full disk archives it.
    """

    time_ms: int | None = None
    size: int | None = None
    counts: bool = True
    for_ever: bool = False


@dataclass(frozen=True, slots=True)
class HoldRule:
    """Segments that these consumer groups have not committed past are kept, up to a bound."""

    groups: tuple[str, ...]
    max_ms: int | None
    max_bytes: int | None


def parse_policy(text: str) -> Policy:
    """The policy in a JSON text. Raises PolicyError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise PolicyError('not a JSON object such as {"time": 10080, "limit": "90Gi", "disk": 90}')
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise PolicyError(f"unknown key {unknown[0]!r}; there are {', '.join(KEYS)}")
    if "time" not in found:
        raise PolicyError("time is missing: minutes since a segment was rolled, 0 for no such rule")
    return Policy(
        time=_number("time", found["time"], 0, TIME_MAX_MIN),
        limit=_limit(found.get("limit")),
        disk=_number("disk", found.get("disk", DISK_DEFAULT), 1, 100),
    )


def _number(key: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PolicyError(f"{key} is {value!r}; allowed is a whole number from {least} to {most}")
    return value


def _limit(value: Any) -> int | None:
    if value is None:
        return None
    count = parse_size(value) if isinstance(value, str) else value
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if count is None or not is_number or not LIMIT_LEAST <= count <= LIMIT_MOST:
        allowed = f'a size from {LIMIT_LEAST} to {LIMIT_MOST} bytes, such as "90Gi" or "64M"'
        raise PolicyError(f"limit is {value!r}; allowed is {allowed}")
    return int(count)


def rules_of(policy: Policy | None, settings: Mapping[str, str]) -> Rules:
    """What counts for the partitions of a topic with these settings; without a policy, only they
    do. One that is compacted only keeps the newest record of each key for ever.
    """
    if DELETE not in settings.get(CLEANUP_POLICY, DELETE).split(","):
        return Rules(counts=False, for_ever=True)
    by_policy = None if policy is None or policy.time == 0 else policy.time * 60_000
    ms, size = settings.get(RETENTION_MS), settings.get(RETENTION_BYTES)
    return Rules(
        time_ms=by_policy if ms is None else _bound(ms),
        size=None if size is None else _bound(size),
        counts=size is None,
        for_ever=ms == size == FOR_EVER,
    )


def retention_from(policy: Policy | None, settings: Mapping[str, str]) -> str:
    """What says for how long the records of a topic are kept: "topic" (its own settings), "policy"
    (the cluster's), or "none": nothing does, and no record goes for its age.
    """
    if RETENTION_MS in settings or DELETE not in settings.get(CLEANUP_POLICY, DELETE).split(","):
        return "topic"
    return "none" if policy is None or policy.time == 0 else "policy"


def hold_of(settings: Mapping[str, str]) -> HoldRule | None:
    """Which groups hold a topic back; None: none do."""
    groups = tuple(name for name in settings.get(HOLD_GROUPS, "").split(",") if name)
    if not groups:
        return None
    most_ms, most_bytes = settings.get(HOLD_MAX_MS), settings.get(HOLD_MAX_BYTES)
    if most_ms is None and most_bytes is None:
        return HoldRule(groups, HOLD_MAX_MS_DEFAULT, None)
    return HoldRule(
        groups,
        None if most_ms is None else int(most_ms),
        None if most_bytes is None else int(most_bytes),
    )


def is_compacted(policy: str) -> bool:
    """Whether `cleanup.policy` keeps the newest record of each key."""
    return COMPACT in policy.split(",")


def _bound(value: str) -> int | None:
    return None if value == FOR_EVER else int(value)
