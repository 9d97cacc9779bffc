"""Every key of a node's configuration, but for Kafka's: kafka_keys.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from samelog.config.kafka_keys import KAFKA
from samelog.config.schema import Key, Kind, Reload, Section, default_of, schema
from samelog.config.shared_keys import TLS, http_sections, log_section
from samelog.config.tables.node import (
    ArchiveConfig,
    Expiry,
    Fsync,
    Grant,
    NodeConfig,
    Quotas,
    Scrub,
)

SEGMENT_BYTES_MIN = 1 << 10
SEGMENT_BYTES_MAX = (1 << 31) - 1  # positions in Kafka's index files are signed 32-bit numbers
RECORD_BYTES_MAX = 4 << 20  # so that a batch of one record fits into a frame
DISK_BYTES_MAX = 1 << 60
EXPIRY_S_MAX = 10 * 365 * 24 * 3600
COPY_FORMATS = ("segments", "parquet")

_IDENTITY = {
    "name": Key(kind=Kind.TEXT, meaning="The node's name, as in its certificate's URI"),
    "cluster": Key(kind=Kind.TEXT, meaning="The cluster's name, the same on every node"),
    "data": Key(kind=Kind.PATH, meaning="The directory of everything that the node keeps"),
    "listen": Key(kind=Kind.ADDRESS, meaning="Where nodes, publishers and subscribers connect"),
    "advertise": Key(
        kind=Kind.ADDRESS,
        meaning="Where others reach the node",
        without="its own address in `[[peers]]`; a node that joins needs it",
    ),
}
_DISK = {
    "fsync": Key(
        kind=Kind.CHOICE,
        meaning="When what is acknowledged is on disk: docs/reliability.md",
        choices=Fsync,
        default=default_of(NodeConfig, "fsync"),
    ),
    "fsync_interval_ms": Key(
        kind=Kind.INTEGER,
        meaning='How long it may take to get there; only with `fsync = "interval"`',
        default=default_of(NodeConfig, "fsync_interval_ms"),
        least=1,
        most=60_000,
    ),
    "segment_bytes": Key(
        kind=Kind.SIZE,
        meaning="How long a file of a merged log gets",
        default=default_of(NodeConfig, "segment_bytes"),
        least=SEGMENT_BYTES_MIN,
        most=SEGMENT_BYTES_MAX,
    ),
    "disk_stop_percent": Key(
        kind=Kind.INTEGER,
        meaning="The node takes nothing in while its disk is fuller than this",
        default=default_of(NodeConfig, "disk_stop_percent"),
        least=1,
        most=100,
    ),
}
_NODE = {
    **_IDENTITY,
    **_DISK,
    "auto_create_topics": Key(
        kind=Kind.BOOLEAN,
        meaning="Publishing to a topic makes it",
        default=default_of(NodeConfig, "auto_create_topics"),
    ),
    "max_record_bytes": Key(
        kind=Kind.SIZE,
        meaning="How long a record may be",
        default=default_of(NodeConfig, "max_record_bytes"),
        least=1,
        most=RECORD_BYTES_MAX,
    ),
    "snapshot_interval_s": Key(
        kind=Kind.SECONDS,
        meaning="How often the state is written, if it changed",
        default=default_of(NodeConfig, "snapshot_interval_s"),
        least=0.1,
        most=3600,
    ),
}
_PEERS = {
    "name": Key(kind=Kind.TEXT, meaning="A node's name"),
    "address": Key(kind=Kind.ADDRESS, meaning="Where other nodes reach it"),
}


def _patterns(meaning: str, without: str) -> Key:
    return Key(kind=Kind.TEXTS, meaning=meaning, without=without, reload=Reload.YES)


_GRANTS = {
    "identity": Key(
        kind=Kind.TEXT,
        meaning="`samelog://<role>/<name>` or `dns:<name>`; may end with `*`, as all lists below",
        reload=Reload.YES,
    ),
    "admin": Key(
        kind=Kind.BOOLEAN,
        meaning="May see and change the cluster",
        default=default_of(Grant, "admin"),
        reload=Reload.YES,
    ),
}
_GRANTS_PUBLISH = {
    "sessions": _patterns("The sessions it may be the publisher of", "none"),
    "topics": _patterns("The topics it may write to in them", "none"),
    "dedup_ids": _patterns("The dedup ids it may use", "none"),
}
_GRANTS_SUBSCRIBE = {
    "topics": _patterns("The topics it may read", "none"),
    "groups": _patterns("The consumer groups it may use for it", "all"),
}
_QUOTAS = {
    "sessions": Key(
        kind=Kind.INTEGER,
        meaning="Sessions",
        default=default_of(Quotas, "sessions"),
        least=1,
        most=1_000_000,
    ),
    "partitions": Key(
        kind=Kind.INTEGER,
        meaning="Partitions that its sessions write to",
        default=default_of(Quotas, "partitions"),
        least=1,
        most=1_000_000,
    ),
    "unmerged_bytes": Key(
        kind=Kind.SIZE,
        meaning="Received by a node and not merged yet; 0: a quarter of its disk",
        default=default_of(Quotas, "unmerged_bytes"),
        most=DISK_BYTES_MAX,
    ),
}


def _expiry(name: str, meaning: str) -> Key:
    default = default_of(Expiry, name)
    return Key(kind=Kind.INTEGER, meaning=meaning, default=default, least=60, most=EXPIRY_S_MAX)


_EXPIRY = {
    "producers_s": _expiry("producers_s", "Sequences of idempotent producers, in seconds"),
    "sessions_s": _expiry("sessions_s", "Runs of sessions that have none open, in seconds"),
}
_SCRUB = {
    "bytes_per_s": Key(
        kind=Kind.SIZE,
        meaning="How fast merged logs are read for it; 0: never",
        default=default_of(Scrub, "bytes_per_s"),
        most=DISK_BYTES_MAX,
    ),
    "interval_s": Key(
        kind=Kind.INTEGER,
        meaning="The pause between two rounds, in seconds",
        default=default_of(Scrub, "interval_s"),
        least=1,
        most=EXPIRY_S_MAX,
    ),
}
_ARCHIVE = {
    "policy": Key(
        kind=Kind.PATH,
        meaning="The policy, JSON",
        without="topics' own settings only",
        reload=Reload.CONTENTS,
    ),
    "interval_s": Key(
        kind=Kind.SECONDS,
        meaning="How often the leader looks",
        default=default_of(ArchiveConfig, "interval_s"),
        least=0.1,
        most=3600,
    ),
    "copy_to": Key(
        kind=Kind.TEXT,
        meaning="Where segments are copied first: a directory, or a URL such as `s3://bucket/path`",
        without="nowhere",
    ),
    "copy_formats": Key(
        kind=Kind.TEXTS,
        meaning="Of the copies: " + ", ".join(f"`{name}`" for name in COPY_FORMATS),
        without='`["segments"]`, if there is `copy_to`',
        choices=COPY_FORMATS,
    ),
}


def _reloadable(keys: Mapping[str, Key]) -> dict[str, Key]:
    return {name: replace(key, reload=Reload.YES) for name, key in keys.items()}


NODE = schema(
    (
        Section(name="", meaning="A node's file consists of tables"),
        Section(name="node", meaning="The node itself", keys=_NODE),
        Section(name="tls", meaning="Its certificate", keys=TLS),
        Section(
            name="peers",
            meaning="The voters of a new cluster, this node included; of a node that joins, the "
            "nodes of the cluster. Once there is a directory, what the cluster agreed on counts",
            keys=_PEERS,
            many=True,
        ),
        Section(
            name="grants",
            meaning="What identities may do; what nothing allows is denied: docs/security.md",
            keys=_GRANTS,
            many=True,
        ),
        Section(name="grants.publish", meaning="What it may write", keys=_GRANTS_PUBLISH),
        Section(name="grants.subscribe", meaning="What it may read", keys=_GRANTS_SUBSCRIBE),
        Section(
            name="quotas",
            meaning="What one publisher's identity may have at most",
            keys=_reloadable(_QUOTAS),
        ),
        Section(name="expiry", meaning="How long what nobody uses is remembered", keys=_EXPIRY),
        Section(name="scrub", meaning="Looking for damage at rest", keys=_SCRUB),
        Section(name="archive", meaning="docs/archiving.md", keys=_ARCHIVE),
        *KAFKA,
        *http_sections("http", "node"),
        log_section(Reload.YES),
    )
)
