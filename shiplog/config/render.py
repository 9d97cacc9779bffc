"""Configuration files written from values, for clusters that the command line sets up itself.

Invariant: loading what is rendered gives an equal value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from shiplog.config.broker_defaults import MESSAGE_MAX_BYTES, NUM_PARTITIONS, RACK
from shiplog.config.group_limits import SETTINGS
from shiplog.config.types import (
    ArchiveConfig,
    ClientConfig,
    Fsync,
    Grant,
    HttpConfig,
    KafkaConfig,
    KafkaListener,
    KafkaUser,
    NodeConfig,
    PeerConfig,
    PublisherConfig,
    PublisherKafka,
    TlsFiles,
)

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
    head = [f"nodes = {_texts(map(str, config.nodes))}"]
    if config.node_names:
        head.append(f"node_names = {_texts(config.node_names)}")
    head.append(f"cluster = {_value(config.cluster)}")
    if config.kafka_bootstrap:
        head.append(f"kafka_bootstrap = {_value(config.kafka_bootstrap)}")
    head.append(f"kafka_security = {_value(config.kafka_security.value)}")
    tables = ["\n".join(head) + "\n" + _lines(_tls(config.tls))]
    tables.append(_publisher(config.publisher))
    tables += _http("publisher.http", config.publisher.http)
    subscriber: dict[str, Value] = {}
    if config.subscriber.directory is not None:
        subscriber["dir"] = config.subscriber.directory
    if config.subscriber.keep:
        subscriber["keep"] = True
    if config.subscriber.budget_bytes is not None:
        subscriber["budget_bytes"] = config.subscriber.budget_bytes
    if subscriber:
        tables.append(_table("[subscriber]", subscriber))
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
    return _table("[archive]", values) + f"copy_formats = {_texts(archive.copy_formats)}\n"


def _kafka(kafka: KafkaConfig) -> str:
    nested = ("listeners", "defaults", "groups", "users", "quotas", "rack")
    values = {key: value for key, value in asdict(kafka).items() if key not in nested}
    values |= {_value(name): value for name, value in kafka.defaults.by_name().items()}
    if kafka.rack:
        values[_value(RACK)] = kafka.rack
    groups = {_value(name): getattr(kafka.groups, each.field) for name, each in SETTINGS.items()}
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
    lines = ["[[grants]]", f"identity = {_value(grant.identity)}"]
    if grant.publish_sessions or grant.publish_topics or grant.publish_dedup_ids:
        sessions, topics = _texts(grant.publish_sessions), _texts(grant.publish_topics)
        ids = _texts(grant.publish_dedup_ids)
        lines.append(f"publish = {{ sessions = {sessions}, topics = {topics}, dedup_ids = {ids} }}")
    if grant.subscribe_topics:
        topics, groups = _texts(grant.subscribe_topics), _texts(grant.subscribe_groups)
        lines.append(f"subscribe = {{ topics = {topics}, groups = {groups} }}")
    lines.append(f"admin = {_value(grant.admin)}")
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


def _publisher_kafka(kafka: PublisherKafka) -> str:
    values: dict[str, Value] = {
        "listen": str(kafka.listen),
        "session": kafka.session,
        _value(NUM_PARTITIONS): kafka.num_partitions,
        _value(MESSAGE_MAX_BYTES): kafka.message_max_bytes,
    }
    counts: dict[str, Value] = {_value(topic): n for topic, n in kafka.partitions.items()}
    text = _table("[publisher.kafka]", values)
    return text + _table("[publisher.kafka.partitions]", counts)


def _table(header: str, values: dict[str, Value]) -> str:
    return f"{header}\n{_lines(values)}"


def _lines(values: dict[str, Value]) -> str:
    return "".join(f"{key} = {_value(value)}\n" for key, value in values.items())


def _texts(texts: Iterable[str]) -> str:
    return "[" + ", ".join(map(_value, texts)) + "]"


def _value(value: Value) -> str:
    """A TOML value. JSON's texts, numbers and booleans are TOML's too, but for an unescaped DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
