"""Configuration files written from values, for clusters that the command line sets up itself.

Invariant: loading what is rendered gives an equal value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from samelog.config.tables.client import (
    ClientConfig,
    PublisherConfig,
    PublisherKafka,
    SubscriberConfig,
)
from samelog.config.tables.kafka import (
    MESSAGE_MAX_BYTES,
    NUM_PARTITIONS,
    RACK,
    SETTINGS,
    KafkaConfig,
    KafkaListener,
    KafkaUser,
)
from samelog.config.tables.node import ArchiveConfig, Fsync, Grant, NodeConfig, PeerConfig
from samelog.config.tables.shared import HttpConfig, TlsFiles

Value = str | int | float | bool


def render_node(config: NodeConfig) -> str:
    """The TOML text of a node's configuration."""
    tables = [_node(config), _table("[tls]", _tls(config.tls))]
    tables += [_table("[quotas]", asdict(config.quotas)), _table("[expiry]", asdict(config.expiry))]
    tables += [_table("[scrub]", asdict(config.scrub))]
    tables += [_archive(config.archive)]
    tables += [_kafka(config.kafka), *map(_listener, config.kafka.listeners)]
    tables += map(_user, config.kafka.users)
    tables += _http("http", config.http)
    tables.append(_table("[log]", {"level": config.log_level.value}))
    tables += [_table("[[kafka.quotas]]", asdict(quota)) for quota in config.kafka.quotas]
    tables += [_peer(peer) for peer in config.peers]
    tables += [_grant(grant) for grant in config.grants]
    return "\n".join(tables)


def render_client(config: ClientConfig) -> str:
    """The TOML text of a client's configuration."""
    head = [f"nodes = {toml_texts(map(str, config.nodes))}"]
    if config.node_names:
        head.append(f"node_names = {toml_texts(config.node_names)}")
    head.append(f"cluster = {toml_value(config.cluster)}")
    if config.kafka_bootstrap:
        head.append(f"kafka_bootstrap = {toml_value(config.kafka_bootstrap)}")
    head.append(f"kafka_security = {toml_value(config.kafka_security.value)}")
    tables = ["\n".join(head) + "\n" + _lines(_tls(config.tls))]
    tables.append(_publisher(config.publisher))
    tables += _http("publisher.http", config.publisher.http)
    tables += _subscriber(config.subscriber)
    if config.subscriber.kafka is not None:
        listen = str(config.subscriber.kafka.listen)
        tables.append(_table("[subscriber.kafka]", {"listen": listen}))
    tables += _http("subscriber.http", config.subscriber.http)
    tables.append(_table("[log]", {"level": config.log_level.value}))
    return "\n".join(tables)


def _node(config: NodeConfig) -> str:
    values: dict[str, Value] = {
        "name": config.name,
        "cluster": config.cluster,
        "data": config.data,
        "listen": str(config.listen),
        "advertise": str(config.advertise),
        "fsync": config.fsync.value,
        "segment_bytes": config.segment_bytes,
        "auto_create_topics": config.auto_create_topics,
        "max_record_bytes": config.max_record_bytes,
        "snapshot_interval_s": config.snapshot_interval_s,
        "disk_stop_percent": config.disk_stop_percent,
    }
    if config.fsync is Fsync.INTERVAL:
        values["fsync_interval_ms"] = config.fsync_interval_ms
    return _table("[node]", values)


def _archive(archive: ArchiveConfig) -> str:
    values: dict[str, Value] = {"interval_s": archive.interval_s}
    if archive.policy is not None:
        values["policy"] = archive.policy
    if archive.copy_to is None:
        return _table("[archive]", values)
    values["copy_to"] = archive.copy_to
    return _table("[archive]", values) + f"copy_formats = {toml_texts(archive.copy_formats)}\n"


def _kafka(kafka: KafkaConfig) -> str:
    nested = ("listeners", "defaults", "groups", "users", "quotas", "rack")
    values = {key: value for key, value in asdict(kafka).items() if key not in nested}
    values |= {toml_value(name): value for name, value in kafka.defaults.by_name().items()}
    if kafka.rack:
        values[toml_value(RACK)] = kafka.rack
    groups = {
        toml_value(name): getattr(kafka.groups, each.field) for name, each in SETTINGS.items()
    }
    return _table("[kafka]", values) + _table("[kafka.groups]", groups)


def _listener(listener: KafkaListener) -> str:
    values: dict[str, Value] = {
        "name": listener.name,
        "listen": str(listener.listen),
        "advertise": str(listener.advertise),
        "security": listener.security.value,
        "allow_plaintext_from_anywhere": listener.allow_plaintext_from_anywhere,
    }
    text = _table("[[kafka.listeners]]", values)
    if listener.tls is not None:
        text += _table("[kafka.listeners.tls]", _tls(listener.tls))
    return text


def _user(user: KafkaUser) -> str:
    return _table("[[kafka.users]]", asdict(user))


def _http(name: str, http: HttpConfig | None) -> list[str]:
    if http is None:
        return []
    values: dict[str, Value] = {"listen": str(http.listen), "security": http.security.value}
    tls = [] if http.tls is None else [_table(f"[{name}.tls]", _tls(http.tls))]
    return [_table(f"[{name}]", values), *tls]


def _tls(files: TlsFiles) -> dict[str, Value]:
    return {name: value for name, value in asdict(files).items() if value is not None}


def _peer(peer: PeerConfig) -> str:
    return _table("[[peers]]", {"name": peer.name, "address": str(peer.address)})


def _grant(grant: Grant) -> str:
    lines = ["[[grants]]", f"identity = {toml_value(grant.identity)}"]
    if grant.publish_sessions or grant.publish_topics or grant.publish_dedup_ids:
        sessions, topics = toml_texts(grant.publish_sessions), toml_texts(grant.publish_topics)
        ids = toml_texts(grant.publish_dedup_ids)
        lines.append(f"publish = {{ sessions = {sessions}, topics = {topics}, dedup_ids = {ids} }}")
    if grant.subscribe_topics:
        topics, groups = toml_texts(grant.subscribe_topics), toml_texts(grant.subscribe_groups)
        lines.append(f"subscribe = {{ topics = {topics}, groups = {groups} }}")
    lines.append(f"admin = {toml_value(grant.admin)}")
    return "\n".join(lines) + "\n"


def _publisher(publisher: PublisherConfig) -> str:
    values: dict[str, Value] = {
        "budget_bytes": publisher.budget_bytes,
        "roll_bytes": publisher.roll_bytes,
        "on_full": publisher.on_full.value,
    }
    if publisher.directory is not None:
        values["dir"] = publisher.directory
    text = _table("[publisher]", values)
    return text if publisher.kafka is None else text + _publisher_kafka(publisher.kafka)


def _subscriber(subscriber: SubscriberConfig) -> list[str]:
    values: dict[str, Value] = {}
    if subscriber.directory is not None:
        values["dir"] = subscriber.directory
    if subscriber.keep:
        values["keep"] = True
    if subscriber.budget_bytes is not None:
        values["budget_bytes"] = subscriber.budget_bytes
    topics = f"topics = {toml_texts(subscriber.topics)}\n" if subscriber.topics else ""
    return [_table("[subscriber]", values) + topics] if values or topics else []


def _publisher_kafka(kafka: PublisherKafka) -> str:
    values: dict[str, Value] = {
        "listen": str(kafka.listen),
        "session": kafka.session,
        toml_value(NUM_PARTITIONS): kafka.num_partitions,
        toml_value(MESSAGE_MAX_BYTES): kafka.message_max_bytes,
    }
    counts: dict[str, Value] = {toml_value(topic): n for topic, n in kafka.partitions.items()}
    text = _table("[publisher.kafka]", values)
    return text + _table("[publisher.kafka.partitions]", counts)


def _table(header: str, values: dict[str, Value]) -> str:
    return f"{header}\n{_lines(values)}"


def _lines(values: dict[str, Value]) -> str:
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items())


def toml_texts(texts: Iterable[str]) -> str:
    """A list of texts."""
    return "[" + ", ".join(map(toml_value, texts)) + "]"


def toml_value(value: Value) -> str:
    """A TOML value. JSON's texts, numbers and booleans are TOML's too, but for an unescaped DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
