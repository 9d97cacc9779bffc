"""What Kafka clients are tried with, in the order of the table in docs/kafka.md.

Each cell of the table has its tests: those of Python clients and kcat are marked with `shows`; the
programs of `tests/interop` name the feature in what they print.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.kafka.clients import CLIENTS

TRANSACTIONS = (
    "transactions: committed, aborted",
    "transactions: a group's offsets",
    "transactions: fencing",
)
FEATURES = (
    "produce: acks 0",
    "produce: acks 1",
    "produce: acks all",
    "produce: gzip",
    "produce: snappy",
    "produce: lz4",
    "produce: zstd",
    "produce: idempotent",
    "produce: the leader is killed",
    "records: keys, headers, timestamps",
    "consume: seek",
    "consume: by timestamp",
    "groups: members come and go",
    "groups: a regular expression",
    "groups: cooperative",
    "groups: static members",
    "groups: commits with metadata",
    "groups: group.protocol=consumer",
    "groups: the coordinator is killed",
    *TRANSACTIONS,
    "transactions: the leader is killed",
    "compacted topics",
    "admin: topics",
    "admin: partitions",
    "admin: settings",
    "admin: groups",
    "admin: group offsets",
    "admin: offsets",
    "admin: delete records",
    "admin: cluster",
    "TLS",
    "mutual TLS",
    "SASL PLAIN",
    "SASL SCRAM-SHA-256",
    "SASL SCRAM-SHA-512",
)


def shows(client: str, *features: str) -> pytest.MarkDecorator:
    """Marks a test that fails unless the client has these features here."""
    return pytest.mark.shows(client, *features)


def each(clients: Iterable[str], *features: str) -> list[Any]:
    """The values of a parameter: every client, each showing these features."""
    return [pytest.param(client, marks=shows(client, *features)) for client in clients]


def cells(prefix: str, *values: str) -> list[Any]:
    """The values of two parameters, client and value: each showing the feature of that name."""
    return [
        pytest.param(client, value, marks=shows(client, f"{prefix}{value}"))
        for client in CLIENTS
        for value in values
    ]
