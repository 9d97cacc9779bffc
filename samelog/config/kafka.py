"""The part of a node's configuration that is about Kafka clients: [kafka] and [[kafka.listeners]].

Invariant: nothing listens without TLS beyond this host unless the file says so in so many words.
"""

from __future__ import annotations

from samelog.config.kafka_settings import read_defaults, read_groups
from samelog.config.pki.files import check_secret, load_tls
from samelog.config.table import Table
from samelog.config.tables.kafka import (
    RACK,
    BrokerDefaults,
    ClientQuota,
    GroupLimits,
    KafkaConfig,
    KafkaListener,
    KafkaUser,
    Security,
)
from samelog.config.values import is_loopback, is_unspecified
from samelog.format.names import check_session_name


def load_kafka(table: Table) -> KafkaConfig:
    """The table [kafka]. Raises ConfigError."""
    listeners = tuple(_listener(each) for each in table.tables("listeners"))
    for field in ("name", "listen"):
        seen = [str(getattr(listener, field)) for listener in listeners]
        for value in seen:
            if seen.count(value) > 1:
                raise table.error("listeners", f"{value!r} is there twice")
    users = tuple(_user(each) for each in table.tables("users"))
    if not users and any(each.security is Security.SASL_TLS for each in listeners):
        raise table.error("users", 'a listener has security = "sasl_tls", and there is nobody')
    longest = table.size("max_request_bytes")
    return KafkaConfig(
        listeners=listeners,
        users=users,
        quotas=tuple(_quota(each) for each in table.tables("quotas")),
        rack=table.text(RACK) if table.has(RACK) else "",
        defaults=read_defaults(table, BrokerDefaults()),
        groups=read_groups(table.table("groups"), GroupLimits()),
        max_request_bytes=longest,
        max_memory_bytes=table.size("max_memory_bytes", least=longest),
        max_connections=table.integer("max_connections"),
        max_connections_per_host=table.integer("max_connections_per_host"),
        idle_s=table.seconds("idle_s"),
        request_s=table.seconds("request_s"),
    )


def _listener(table: Table) -> KafkaListener:
    listen = table.address("listen")
    security = table.choice("security", Security)
    is_allowed = table.boolean("allow_plaintext_from_anywhere")
    if security is Security.PLAINTEXT and not is_allowed and not is_loopback(listen):
        reason = (
            f"{listen} is not a loopback address, and nothing protects plaintext: choose "
            'security = "tls" or "mtls", or set allow_plaintext_from_anywhere = true'
        )
        raise table.error("security", reason)
    advertise = table.address("advertise") if table.has("advertise") else listen
    if is_unspecified(advertise):
        raise table.error("advertise", f"clients cannot connect to {advertise}: name this host")
    return KafkaListener(
        name=table.text("name", check_session_name),
        listen=listen,
        advertise=advertise,
        security=security,
        allow_plaintext_from_anywhere=is_allowed,
        tls=load_tls(table.table("tls")) if table.has("tls") else None,
    )


def _user(table: Table) -> KafkaUser:
    file = table.existing_file("password_file")
    check_secret(table, "password_file", file)
    return KafkaUser(name=table.text("name", check_session_name), password_file=file)


def _quota(table: Table) -> ClientQuota:
    identity = table.text("identity")
    if "*" in identity[:-1]:
        raise table.error("identity", f"{identity!r} has a * that is not its last character")
    return ClientQuota(
        identity=identity,
        producer_byte_rate=table.size("producer_byte_rate"),
        consumer_byte_rate=table.size("consumer_byte_rate"),
        request_rate=table.integer("request_rate"),
    )
