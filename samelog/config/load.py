"""Configuration files of nodes and clients: TOML in, checked values out.

Invariant: every key of what is returned was checked, by itself and against the others; whatever is
wrong raises ConfigError, which names file, key, value and what is allowed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from samelog.config.client_keys import CLIENT
from samelog.config.client_state import hold, hold_missing, read_kept
from samelog.config.document import Document, Text, document_of, read_file
from samelog.config.http import load_http
from samelog.config.kafka import load_kafka
from samelog.config.node_keys import COPY_FORMATS, NODE
from samelog.config.pki.files import load_tls
from samelog.config.pki.pem_texts import load_client_tls
from samelog.config.remote import fetch_now
from samelog.config.sidecar_kafka import load_publisher_kafka, load_subscriber_kafka
from samelog.config.table import Table
from samelog.config.tables.client import ClientConfig, OnFull, PublisherConfig, SubscriberConfig
from samelog.config.tables.kafka import Security
from samelog.config.tables.node import (
    ArchiveConfig,
    Expiry,
    Fsync,
    Grant,
    NodeConfig,
    PeerConfig,
    Quotas,
    Scrub,
)
from samelog.config.tables.shared import LogLevel
from samelog.config.values import Address, ConfigError, check_copy_url, is_url
from samelog.format.names import check_session_name, check_topic_name

log = logging.getLogger(__name__)

VOTER_COUNTS = (1, 3, 5, 7)


def read_node(path: str, environ: Mapping[str, str] | None = None) -> Document:
    """A node's file and the environment's part of it (None: this process's); raises ConfigError."""
    return document_of(read_file(path), NODE, CLIENT, environ)


def read_client(place: str, environ: Mapping[str, str] | None = None) -> Document:
    """A client's file or URL, and the environment's part of it; raises ConfigError."""
    text = fetch_now(place) if is_url(place) else read_file(place)
    return client_document(text, environ)


def client_document(text: Text, environ: Mapping[str, str] | None = None) -> Document:
    """A client's text, and the environment's part of it; raises ConfigError."""
    return document_of(text, CLIENT, NODE, environ)


def load_node(path: str, environ: Mapping[str, str] | None = None) -> NodeConfig:
    """The configuration of a node; raises ConfigError."""
    return node_config(read_node(path, environ))


def load_client(place: str, environ: Mapping[str, str] | None = None) -> ClientConfig:
    """The configuration of a publisher, subscriber or administrator, from a file or an HTTPS URL.

    What came from a URL last, and could be used, counts while nothing better can be had, with a
    warning. Texts of certificates are put into files. Raises ConfigError.
    """
    if not is_url(place):
        return taken(read_client(place, environ))
    kept = read_kept(place)
    try:
        text = fetch_now(place, kept)
        return taken(client_document(text, environ))
    except ConfigError as error:
        kept = read_kept(place)  # again: others with this URL may have had a newer one meanwhile
        if kept is None:
            raise
        log.warning("%s; the configuration that was used last is used again", error)
        return _taken_again(client_document(replace(kept, problem=str(error)), environ))


def taken(document: Document) -> ClientConfig:
    """What a client's document says, checked, with its certificates in files, and kept for times
    when its URL cannot be reached. Raises ConfigError, and then everything is as it was.
    """
    config = client_config(document)
    unkept = hold(document)
    if unkept:
        log.warning("%s", unkept)
    return config


def _taken_again(document: Document) -> ClientConfig:
    """Raises ConfigError."""
    config = client_config(document)
    hold_missing(document)
    return config


def node_config(document: Document) -> NodeConfig:
    """What it says, checked; raises ConfigError."""
    file = Table(document)
    node = file.table("node")
    name = node.text("name", check_session_name)
    peers = _peers(file, name)
    own = next((peer.address for peer in peers if peer.name == name), None)
    if own is None and not node.has("advertise"):
        reason = f"{name!r} is not among the peers, so it joins their cluster: needs advertise"
        raise node.error("advertise", reason)
    _check_interval(node)
    return NodeConfig(
        name=name,
        cluster=node.text("cluster", check_session_name),
        data=node.path("data"),
        listen=node.address("listen"),
        advertise=own if own and not node.has("advertise") else node.address("advertise"),
        tls=load_tls(file.table("tls")),
        peers=peers,
        grants=tuple(_grant(grant) for grant in file.tables("grants")),
        fsync=node.choice("fsync", Fsync),
        fsync_interval_ms=node.integer("fsync_interval_ms"),
        segment_bytes=node.size("segment_bytes"),
        auto_create_topics=node.boolean("auto_create_topics"),
        max_record_bytes=node.size("max_record_bytes"),
        snapshot_interval_s=node.seconds("snapshot_interval_s"),
        disk_stop_percent=node.integer("disk_stop_percent"),
        quotas=_quotas(file.table("quotas")),
        expiry=_expiry(file.table("expiry")),
        scrub=_scrub(file.table("scrub")),
        archive=_archive(file.table("archive"), node.path("data")),
        kafka=load_kafka(file.table("kafka")),
        http=load_http(file),
        log_level=_log_level(file),
    )


def client_config(document: Document) -> ClientConfig:
    """What it says, checked; raises ConfigError."""
    file = Table(document)
    return ClientConfig(
        nodes=_nodes(file),
        node_names=_node_names(file),
        cluster=file.text("cluster", check_session_name),
        tls=load_client_tls(file),
        kafka_bootstrap=file.text("kafka_bootstrap") if file.has("kafka_bootstrap") else "",
        kafka_security=_kafka_security(file),
        publisher=_publisher(file.table("publisher")),
        subscriber=_subscriber(file.table("subscriber")),
        log_level=_log_level(file),
        document=document,
    )


def _log_level(file: Table) -> LogLevel:
    return file.table("log").choice("level", LogLevel)


def _quotas(table: Table) -> Quotas:
    return Quotas(
        sessions=table.integer("sessions"),
        partitions=table.integer("partitions"),
        unmerged_bytes=table.size("unmerged_bytes"),
    )


def _expiry(table: Table) -> Expiry:
    return Expiry(
        producers_s=table.integer("producers_s"),
        sessions_s=table.integer("sessions_s"),
    )


def _scrub(table: Table) -> Scrub:
    return Scrub(
        bytes_per_s=table.size("bytes_per_s"),
        interval_s=table.integer("interval_s"),
    )


def _archive(table: Table, data: str) -> ArchiveConfig:
    copy_to = _copy_to(table, data) if table.has("copy_to") else None
    formats = table.texts("copy_formats")
    for name in formats:
        if name not in COPY_FORMATS:
            raise table.error("copy_formats", f"{name!r} is none of {', '.join(COPY_FORMATS)}")
    _check_distinct(table, "copy_formats", formats)
    if formats and copy_to is None:
        raise table.error("copy_formats", "has no meaning without copy_to")
    return ArchiveConfig(
        policy=table.path("policy") if table.has("policy") else None,
        interval_s=table.seconds("interval_s"),
        copy_to=copy_to,
        copy_formats=formats or (COPY_FORMATS[:1] if copy_to is not None else ()),
    )


def _copy_to(table: Table, data: str) -> str:
    """A URL, or a directory, which must not be where archiving is to make room."""
    if is_url(table.text("copy_to")):
        return table.text("copy_to", check_copy_url)
    path = table.path("copy_to")
    if os.path.commonpath([path, data]) == data:
        raise table.error("copy_to", f"{path} is in the data directory, {data}")
    return path


def _check_interval(node: Table) -> None:
    interval = node.choice("fsync", Fsync) is Fsync.INTERVAL
    if node.has("fsync_interval_ms") and not interval:
        raise node.error("fsync_interval_ms", 'has no meaning without fsync = "interval"')


def _peers(file: Table, own_name: str) -> tuple[PeerConfig, ...]:
    tables = file.tables("peers")
    peers = tuple(
        PeerConfig(name=peer.text("name", check_session_name), address=peer.address("address"))
        for peer in tables
    )
    names = [peer.name for peer in peers]
    _check_distinct(file, "peers", names)
    _check_distinct(file, "peers", [str(peer.address) for peer in peers])
    if own_name in names and len(peers) not in VOTER_COUNTS:
        raise file.error("peers", f"{len(peers)} voters; a cluster has 1, 3, 5 or 7")
    return peers


def _check_distinct(table: Table, key: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise table.error(key, f"{value!r} is there twice")
        seen.add(value)


def _grant(grant: Table) -> Grant:
    publish = grant.table("publish")
    subscribe = grant.table("subscribe")
    if grant.has("publish") and not (publish.has("sessions") and publish.has("topics")):
        raise grant.error("publish", "needs both sessions and topics, or it allows nothing")
    if subscribe.has("groups") and not subscribe.has("topics"):
        raise grant.error("subscribe", "groups without topics: there is nothing to read")
    groups = _patterns(subscribe, "groups") if subscribe.has("groups") else ("*",)
    return Grant(
        identity=_identity(grant),
        publish_sessions=_patterns(publish, "sessions"),
        publish_topics=_patterns(publish, "topics"),
        publish_dedup_ids=_patterns(publish, "dedup_ids"),
        subscribe_topics=_patterns(subscribe, "topics"),
        subscribe_groups=groups,
        admin=grant.boolean("admin"),
    )


def _identity(grant: Table) -> str:
    identity = _pattern(grant, "identity", grant.text("identity"))
    if not identity.startswith(("samelog://", "dns:")):
        allowed = '"samelog://<role>/<name>" or "dns:<name>"; either may end with *'
        raise grant.error("identity", f"{identity!r} is not {allowed}")
    return identity


def _patterns(table: Table, key: str) -> tuple[str, ...]:
    return tuple(_pattern(table, key, text) for text in table.texts(key))


def _pattern(table: Table, key: str, text: str) -> str:
    if "*" in text[:-1]:
        raise table.error(key, f"{text!r} has a * that is not its last character")
    return text


def _nodes(file: Table) -> tuple[Address, ...]:
    texts = file.texts("nodes", required=True)
    if not texts:
        raise file.error("nodes", 'must name at least one node: ["host:port", …]')
    _check_distinct(file, "nodes", texts)
    return tuple(file.as_address("nodes", text) for text in texts)


def _node_names(file: Table) -> tuple[str, ...]:
    names = file.texts("node_names")
    count = len(file.texts("nodes", required=True))
    if names and len(names) != count:
        raise file.error("node_names", f"{len(names)} names for {count} nodes")
    _check_distinct(file, "node_names", names)
    return tuple(file.checked("node_names", name, check_session_name) for name in names)


def _publisher(table: Table) -> PublisherConfig:
    publisher = PublisherConfig(
        directory=table.path("dir") if table.has("dir") else None,
        budget_bytes=table.size("budget_bytes"),
        roll_bytes=table.size("roll_bytes"),
        on_full=table.choice("on_full", OnFull),
        kafka=(load_publisher_kafka(table.table("kafka")) if table.has("kafka") else None),
        http=load_http(table),
    )
    if publisher.budget_bytes < publisher.roll_bytes:
        reason = f"{publisher.budget_bytes} is less than roll_bytes, {publisher.roll_bytes}"
        raise table.error("budget_bytes", f"{reason}: only whole files are ever released")
    return publisher


def _subscriber(table: Table) -> SubscriberConfig:
    return SubscriberConfig(
        directory=table.path("dir") if table.has("dir") else None,
        topics=_topics(table),
        keep=table.boolean("keep"),
        budget_bytes=table.size("budget_bytes") if table.has("budget_bytes") else None,
        kafka=(load_subscriber_kafka(table.table("kafka")) if table.has("kafka") else None),
        http=load_http(table),
    )


def _topics(table: Table) -> tuple[str, ...]:
    topics = table.texts("topics")
    _check_distinct(table, "topics", topics)
    return tuple(table.checked("topics", topic, check_topic_name) for topic in topics)


def _kafka_security(file: Table) -> Security:
    """How a sidecar connects to the nodes' Kafka listeners."""
    security = file.choice("kafka_security", Security)
    if security is Security.SASL_TLS:
        raise file.error("kafka_security", "sidecars have a certificate and no password: use mtls")
    return security
