"""What the sidecar that mirrors topics can be told: `mirror.toml`.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions, and its
paths are absolute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated

from samelog.config.schema.keys import (
    ConfigTable,
    KeyName,
    KeyProblem,
    Subtable,
    TableSpec,
    Without,
)
from samelog.config.schema.kinds import (
    ADDRESS,
    PATH,
    checked_name,
    list_of,
    seconds,
    size,
)
from samelog.config.tables.shared import DISK_BYTES_MAX, HttpConfig, LevelKey, LogLevel
from samelog.config.values import Address
from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name

PLACEHOLDER = "{topic}"
_BUDGET_MIN = 4 << 20
_BROKERS_NEEDED = 'must name at least one broker: ["host:port", …]'


class MirrorFrom(Enum):
    """Where a mirror of a topic begins that is new."""

    EARLIEST = "earliest"
    LATEST = "latest"


def _check_pattern(text: str) -> str:
    if not text.startswith("re:"):
        return text
    try:
        re.compile(text[3:])
    except re.error as error:
        raise InvalidName(f"{text!r} is no regular expression: {error}") from error
    return text


def _check_name(text: str) -> str:
    if text.count(PLACEHOLDER) != 1:
        raise InvalidName(
            f"{text!r} is no name with {PLACEHOLDER} in it once, as in eu.{PLACEHOLDER}"
        )
    return text


def _check_end(text: str) -> str:
    if text in ("", "end"):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        allowed = "end, or a time with its zone, as in 2026-07-01T06:00:00+00:00"
        raise InvalidName(f"{text!r} is not {allowed}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource(ConfigTable):
    """Apache Kafka as the source: its brokers, and how to get in."""

    bootstrap: Annotated[
        tuple[Address, ...],
        "Brokers, each `host:port`",
        list_of(ADDRESS, distinct=True, needed=_BROKERS_NEEDED),
    ]
    ca: Annotated[
        str | None, "The authority of the brokers' certificates", PATH, Without("no TLS")
    ] = None
    cert: Annotated[str | None, "The certificate of this client", PATH, Without("it has none")] = (
        None
    )
    key: Annotated[str | None, "Its private key", PATH, Without("it has none")] = None
    user: Annotated[str, "A name for SASL PLAIN", Without("no SASL")] = ""
    password_file: Annotated[str | None, "A file with the password", PATH, Without("no SASL")] = (
        None
    )

    def check(self) -> None:
        if bool(self.user) != (self.password_file is not None):
            raise KeyProblem("user", "needs password_file, and the other way round")
        if (self.cert is None) != (self.key is None) or (self.cert and self.ca is None):
            raise KeyProblem("cert", "needs key and ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig(ConfigTable):
    """One sidecar. The source is samelog's (`source`) or Kafka's (`kafka`)."""

    name: Annotated[
        str,
        "Its name; at the destination its session is `mirror.<name>`",
        checked_name(check_session_name),
    ]
    directory: Annotated[str, "Where it keeps its session", PATH, KeyName("dir")]
    destination: Annotated[str, "The `client.toml` of the cluster that gets the mirrors", PATH]
    source: Annotated[
        str | None,
        "The `client.toml` of the cluster that has the topics; or a directory with merged logs",
        PATH,
        Without("`[kafka]`"),
    ] = None
    topics: Annotated[
        tuple[str, ...],
        "Which topics: names, `ed*`, `re:…`; mirrors and internal topics only by their names",
        list_of(checked_name(_check_pattern), distinct=True, needed="must name topics"),
    ]
    named: Annotated[
        str, "What the mirror of a topic is called", checked_name(_check_name), KeyName("as")
    ] = PLACEHOLDER
    groups: Annotated[
        tuple[str, ...],
        "Consumer groups whose positions come along: names, `a*`, `re:…`",
        list_of(checked_name(_check_pattern), distinct=True),
    ] = ()
    begins: Annotated[MirrorFrom, "Where mirrors of topics begin that are new", KeyName("from")] = (
        MirrorFrom.EARLIEST
    )
    until: Annotated[
        str,
        "`end` or a time: the sidecar ends there, for a restore",
        checked_name(_check_end),
        Without("it goes on"),
    ] = ""
    skip_archived: Annotated[
        bool, "Go on behind records that the source archived before they were mirrored"
    ] = False
    budget_bytes: Annotated[
        int, "What is on its way may take so much disk", size(_BUDGET_MIN, DISK_BYTES_MAX)
    ] = 256 << 20
    lag_unknown_s: Annotated[
        float, "After so long without word of the source it is not ready", seconds(1, 86_400)
    ] = 60.0
    kafka: Annotated[KafkaSource | None, Subtable("Apache Kafka as the source")] = None
    http: Annotated[
        HttpConfig | None, Subtable("It answers HTTP if this table is there: docs/rest.md")
    ] = None
    log_level: LevelKey = LogLevel.INFO

    def check(self) -> None:
        if (self.source is None) is (self.kafka is None):
            raise KeyProblem("source", "name one source: source, or the table kafka")


MIRROR_FILE = TableSpec("", "The keys at the top of the file").add(MirrorConfig)
