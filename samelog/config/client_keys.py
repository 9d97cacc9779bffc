"""Every key of a client's configuration: of publishers, subscribers, sidecars, administrators."""

from __future__ import annotations

from dataclasses import replace

from samelog.config.kafka_keys import (
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    PARTITIONS,
)
from samelog.config.node_keys import DISK_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN
from samelog.config.schema import Key, Kind, Reload, Section, default_of, schema
from samelog.config.shared_keys import TLS, http_sections, log_section
from samelog.config.tables.client import OnFull, PublisherConfig, PublisherKafka, SubscriberConfig
from samelog.config.tables.kafka import MESSAGE_MAX_BYTES, NUM_PARTITIONS, Security

_CLIENT = {
    "nodes": Key(kind=Kind.TEXTS, meaning="The nodes, each `host:port`", reload=Reload.YES),
    "node_names": Key(
        kind=Kind.TEXTS,
        meaning="The name of each of `nodes`, as its certificate must say",
        without="any certificate of a node will do",
        reload=Reload.YES,
    ),
    "cluster": Key(kind=Kind.TEXT, meaning="The cluster's name"),
    **{
        name: key if key.without else replace(key, without=f"`{name}_pem` has it")
        for name, key in TLS.items()
    },
    "ca_pem": Key(
        kind=Kind.TEXT,
        meaning="The authority's certificates as text instead of `ca`: docs/enrolment.md",
        without="`ca` names the file",
        reload=Reload.YES,
    ),
    "cert_pem": Key(
        kind=Kind.TEXT,
        meaning="The own certificate as text, with its chain",
        without="`cert` names the file",
        reload=Reload.YES,
    ),
    "key_pem": Key(
        kind=Kind.TEXT,
        meaning="Its private key as text; the file that it is in must be as private as one",
        without="`key` names the file",
        reload=Reload.YES,
        secret=True,
    ),
    "crl_pem": Key(
        kind=Kind.TEXT,
        meaning="The revocation lists as text",
        without="`crl` names the file, or nobody is revoked",
        reload=Reload.YES,
    ),
    "kafka_bootstrap": Key(
        kind=Kind.TEXT,
        meaning="What Kafka clients call `bootstrap.servers`",
        without="there is none",
    ),
    "kafka_security": Key(
        kind=Kind.CHOICE,
        meaning="Of those listeners, for sidecars that connect to them; not `sasl_tls`",
        choices=Security,
        default=Security.PLAINTEXT,
    ),
}
_DIRECTORY = "`--dir` of the command line"
_PUBLISHER = {
    "dir": Key(kind=Kind.PATH, meaning="Holds the sessions", without=_DIRECTORY),
    "budget_bytes": Key(
        kind=Kind.SIZE,
        meaning="What a publisher's files may take; at least `roll_bytes`",
        default=default_of(PublisherConfig, "budget_bytes"),
        least=1,
        most=DISK_BYTES_MAX,
    ),
    "roll_bytes": Key(
        kind=Kind.SIZE,
        meaning="How long one file gets",
        default=default_of(PublisherConfig, "roll_bytes"),
        least=SEGMENT_BYTES_MIN,
        most=SEGMENT_BYTES_MAX,
    ),
    "on_full": Key(
        kind=Kind.CHOICE,
        meaning="What `append` does when they take all of it",
        choices=OnFull,
        default=default_of(PublisherConfig, "on_full"),
    ),
}
_SUBSCRIBER = {
    "dir": Key(kind=Kind.PATH, meaning="Holds the copies", without=_DIRECTORY),
    "topics": Key(
        kind=Kind.TEXTS,
        meaning="What is copied; at once in a sidecar without `--topic`",
        without="`--topic` of the command line",
        reload=Reload.YES,
    ),
    "keep": Key(
        kind=Kind.BOOLEAN,
        meaning="Copies keep what the cluster archives",
        default=default_of(SubscriberConfig, "keep"),
    ),
    "budget_bytes": Key(
        kind=Kind.SIZE,
        meaning="What the copies of all topics that are copied may take: beyond, the oldest closed "
        "files of them are emptied, read or not",
        without="they take what the cluster keeps",
        least=SEGMENT_BYTES_MIN,
        most=DISK_BYTES_MAX,
    ),
}
_LISTEN = Key(kind=Kind.ADDRESS, meaning="Where; a loopback address")
_PUBLISHER_KAFKA = {
    "listen": _LISTEN,
    "session": Key(kind=Kind.TEXT, meaning="What Kafka clients write goes into it"),
    NUM_PARTITIONS: PARTITIONS,
    MESSAGE_MAX_BYTES: Key(
        kind=Kind.SIZE,
        meaning="How long a record batch may be",
        default=default_of(PublisherKafka, "message_max_bytes"),
        least=MESSAGE_BYTES_MIN,
        most=MESSAGE_BYTES_MAX,
    ),
}

CLIENT = schema(
    (
        Section(name="", meaning="At the top of the file, outside of tables", keys=_CLIENT),
        Section(name="publisher", meaning="Publishers and their sidecar", keys=_PUBLISHER),
        Section(
            name="publisher.kafka",
            meaning="The publisher sidecar's Kafka listener: docs/kafka-sidecars.md",
            keys=_PUBLISHER_KAFKA,
        ),
        Section(
            name="publisher.kafka.partitions",
            meaning="By topic: how many partitions it has here",
            anything=PARTITIONS,
        ),
        *http_sections("publisher.http", "publisher sidecar"),
        Section(name="subscriber", meaning="Subscribers and their sidecar", keys=_SUBSCRIBER),
        Section(
            name="subscriber.kafka",
            meaning="The subscriber sidecar's Kafka listener: docs/kafka-sidecars.md",
            keys={"listen": _LISTEN},
        ),
        *http_sections("subscriber.http", "subscriber sidecar"),
        log_section(Reload.YES),
    )
)
