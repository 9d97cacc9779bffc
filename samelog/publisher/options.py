"""What a publisher was told, completed from its configuration and checked once.

Invariant: options that exist are usable together; what is wrong raises ValueError naming the
option.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig, OnFull, PublisherConfig
from samelog.format.dedup import dedup_producer_id
from samelog.format.names import check_session_name, check_topic_name
from samelog.publisher.entries import NO_PRODUCER, BatchLimits

BATCH_BYTES_MAX = 1 << 20
RECORD_BYTES_MAX = 4 << 20
ROLL_BYTES_MIN = 4 << 10
ROLLS_PER_BUDGET = 8
"""Only whole files are released, so a budget that few files fill would stop and go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """See `Publisher`; here every option has its value."""

    topic: str
    session: str
    directory: str
    """Of the session itself."""
    config: ClientConfig | None
    ship: bool
    partitions: int
    dedup_id: str | None
    linger_s: float
    limits: BatchLimits
    budget_bytes: int
    on_full: OnFull
    roll_bytes: int
    stage: str | None = None


def resolve(
    topic: str,
    *,
    session: str,
    directory: str | os.PathLike[str] | None,
    config: str | os.PathLike[str] | ClientConfig | None,
    ship: bool,
    partitions: int,
    dedup_id: str | None,
    linger_ms: float,
    batch_bytes: int,
    max_record_bytes: int,
    budget_bytes: int | None,
    on_full: str | OnFull | None,
    roll_bytes: int | None,
    stage: str | None,
) -> PublisherOptions:
    """Complete and check the options. Raises ValueError, InvalidName, ConfigError."""
    client = _load(config)
    disk = PublisherConfig() if client is None else client.publisher
    _check_range("partitions", partitions, 1, 1 << 20)
    _check_range("batch_bytes", batch_bytes, 1, BATCH_BYTES_MAX)
    _check_range("max_record_bytes", max_record_bytes, 1, RECORD_BYTES_MAX)
    _check_range("linger_ms", linger_ms, 0, 60_000)
    budget = disk.budget_bytes if budget_bytes is None else budget_bytes
    _check_range("budget_bytes", budget, 1, 1 << 62)
    producer_id = NO_PRODUCER if dedup_id is None else dedup_producer_id(_checked_dedup(dedup_id))
    return PublisherOptions(
        topic=check_topic_name(topic),
        session=check_session_name(session),
        directory=os.path.join(_root(directory, disk), session),
        config=client,
        ship=ship and client is not None,
        partitions=partitions,
        dedup_id=dedup_id,
        linger_s=linger_ms / 1000,
        limits=BatchLimits(batch_bytes, max_record_bytes, producer_id),
        budget_bytes=budget,
        on_full=disk.on_full if on_full is None else OnFull(on_full),
        roll_bytes=_roll_bytes(roll_bytes, disk.roll_bytes, budget),
        stage=None if stage is None else check_session_name(stage),
    )


def _load(config: str | os.PathLike[str] | ClientConfig | None) -> ClientConfig | None:
    if config is None or isinstance(config, ClientConfig):
        return config
    return load_client(os.fspath(config))


def _root(directory: str | os.PathLike[str] | None, disk: PublisherConfig) -> str:
    if directory is not None:
        return os.path.abspath(os.fspath(directory))
    if disk.directory is None:
        raise ValueError("directory is missing: pass it, or set dir in [publisher] of the config")
    return disk.directory


def _roll_bytes(wanted: int | None, default: int, budget: int) -> int:
    if wanted is None:
        return min(default, max(ROLL_BYTES_MIN, budget // ROLLS_PER_BUDGET))
    _check_range("roll_bytes", wanted, ROLL_BYTES_MIN, 1 << 40)
    if wanted > budget:
        raise ValueError(
            f"roll_bytes is {wanted}, more than budget_bytes, {budget}: files are released whole"
        )
    return wanted


def _checked_dedup(dedup_id: str) -> str:
    if not 1 <= len(dedup_id) <= 128 or not dedup_id.isprintable():
        raise ValueError(f"dedup_id {dedup_id[:80]!r} is not 1 to 128 printable characters")
    return dedup_id


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; it must be {low} to {high}")
