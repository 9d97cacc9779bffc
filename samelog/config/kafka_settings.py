"""Reads settings that have Kafka's own names, from files and from the command line.

Invariant: what a table does not name stays as it was.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from samelog.config.document import Document, Text
from samelog.config.kafka_keys import DEFAULTS, GROUPS
from samelog.config.schema import Section, schema
from samelog.config.table import Table
from samelog.config.tables.kafka import (
    AUTO_CREATE,
    MESSAGE_MAX_BYTES,
    NUM_PARTITIONS,
    SETTINGS,
    BrokerDefaults,
    GroupLimits,
    KafkaConfig,
)
from samelog.config.values import ConfigError

_FLAT = schema(
    [Section(name="", meaning="Kafka's own names, without tables", keys=DEFAULTS | GROUPS)]
)


def read_defaults(table: Table, before: BrokerDefaults) -> BrokerDefaults:
    """Raises ConfigError."""
    auto_create, longest = before.auto_create, before.message_max_bytes
    if table.has(AUTO_CREATE):
        auto_create = table.boolean(AUTO_CREATE)
    if table.has(MESSAGE_MAX_BYTES):
        longest = table.size(MESSAGE_MAX_BYTES)
    return BrokerDefaults(
        num_partitions=table.integer(NUM_PARTITIONS, before.num_partitions),
        auto_create=auto_create,
        message_max_bytes=longest,
    )


def read_groups(table: Table, before: GroupLimits) -> GroupLimits:
    """Raises ConfigError."""
    values = {
        bounds.field: table.integer(name, getattr(before, bounds.field))
        for name, bounds in SETTINGS.items()
    }
    limits = GroupLimits(**values)
    if limits.min_session_timeout_ms > limits.max_session_timeout_ms:
        longest = limits.max_session_timeout_ms
        reason = f"longer than group.max.session.timeout.ms, which is {longest}"
        raise table.error("group.min.session.timeout.ms", reason)
    return limits


def with_settings(config: KafkaConfig, texts: Iterable[str], source: str) -> KafkaConfig:
    """The configuration with texts such as `num.partitions=3` counted in. `source`: where they come
    from, for messages. Raises ConfigError.
    """
    values = dict(_setting(text, source) for text in texts)
    table = Table(Document(Text(source, b""), _FLAT, values))
    return replace(
        config,
        defaults=read_defaults(table, config.defaults),
        groups=read_groups(table, config.groups),
    )


def _setting(text: str, source: str) -> tuple[str, Any]:
    """A name and its value; what is no number and neither true nor false is a text, such as 1Mi."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{source}: {text!r} is not NAME=VALUE, such as {NUM_PARTITIONS}=3")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
