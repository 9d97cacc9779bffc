"""What a publisher, subscriber or administrator can be told.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from samelog.config.tables.kafka import Security
from samelog.config.tables.shared import HttpConfig, LogLevel, TlsFiles
from samelog.config.values import Address

if TYPE_CHECKING:
    from samelog.config.document import Document


class OnFull(Enum):
    """What a publisher does when its files fill the disk budget."""

    BLOCK = "block"
    RAISE = "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherKafka:
    """Where the publisher sidecar takes records of Kafka clients, and the session they go into.
    `partitions`: of topics that do not have `num_partitions`.
    """

    listen: Address
    session: str
    num_partitions: int = 1
    partitions: Mapping[str, int] = field(default_factory=dict)
    message_max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberKafka:
    """Where the subscriber sidecar lets Kafka clients read its copies."""

    listen: Address


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """A publisher's disk; `directory` holds its sessions (None: the caller names it)."""

    directory: str | None = None
    budget_bytes: int = 8 << 30
    roll_bytes: int = 1 << 30
    on_full: OnFull = OnFull.BLOCK
    kafka: PublisherKafka | None = None
    http: HttpConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberConfig:
    """A subscriber's disk; `directory` holds its copies (None: the caller names it) of `topics`
    (empty: the caller names them). `keep`: they keep what the cluster archives, as far as
    `budget_bytes` lets them (None: there is no limit).
    """

    directory: str | None = None
    topics: tuple[str, ...] = ()
    kafka: SubscriberKafka | None = None
    keep: bool = False
    budget_bytes: int | None = None
    http: HttpConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """A publisher, subscriber or administrator of one cluster.

    `node_names` is empty (any certificate of role node will do) or names each of `nodes`;
    `kafka_bootstrap` is what Kafka clients call bootstrap.servers, empty if there is none;
    `kafka_security`: of those listeners, for who connects to them on behalf of Kafka clients.
    `document`: what it was read from, for who reads it again (None: it was made otherwise).
    """

    nodes: tuple[Address, ...]
    cluster: str
    tls: TlsFiles
    node_names: tuple[str, ...] = ()
    kafka_bootstrap: str = ""
    kafka_security: Security = Security.PLAINTEXT
    publisher: PublisherConfig = PublisherConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    log_level: LogLevel = LogLevel.INFO
    document: Document | None = field(default=None, compare=False, repr=False)
