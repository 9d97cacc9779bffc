"""Configuration files of nodes and clients: TOML in, checked values out.

Invariant: every key of what is returned was checked, by itself and against the others; whatever is
wrong raises ConfigError, which names file, key, value and what is allowed.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from samelog.config.client_state import last_document, restore_pem_files, save_client_state
from samelog.config.document import (
    ConfigDocument,
    ConfigText,
    document_of,
    parse_toml,
    read_file,
)
from samelog.config.pki.pem_texts import read_client_tls
from samelog.config.remote import fetch_now
from samelog.config.schema.keys import TableSpec
from samelog.config.schema.reader import TableReader
from samelog.config.tables.client import CLIENT_FILE, ClientConfig
from samelog.config.tables.kafka import NUM_PARTITIONS, KafkaConfig, KafkaSettings
from samelog.config.tables.mirror import MIRROR_FILE, MirrorConfig
from samelog.config.tables.node import NODE_FILE, NodeConfig
from samelog.config.values import ConfigError, is_url

log = logging.getLogger(__name__)


def read_node(path: str, environ: Mapping[str, str] | None = None) -> ConfigDocument:
    """A node's file and the environment's part of it (None: this process's); raises ConfigError."""
    return document_of(read_file(path), (NODE_FILE, CLIENT_FILE), environ)


def read_client(place: str, environ: Mapping[str, str] | None = None) -> ConfigDocument:
    """A client's file or URL, and the environment's part of it; raises ConfigError."""
    text = fetch_now(place) if is_url(place) else read_file(place)
    return client_document(text, environ)


def client_document(text: ConfigText, environ: Mapping[str, str] | None = None) -> ConfigDocument:
    """A client's text, and the environment's part of it; raises ConfigError."""
    return document_of(text, (CLIENT_FILE, NODE_FILE), environ)


def load_node(path: str, environ: Mapping[str, str] | None = None) -> NodeConfig:
    """The configuration of a node; raises ConfigError."""
    return node_config(read_node(path, environ))


def load_client(place: str, environ: Mapping[str, str] | None = None) -> ClientConfig:
    """The configuration of a publisher, subscriber or administrator, from a file or an HTTPS URL.

    What came from a URL last, and could be used, counts while nothing better can be had, with a
    warning. Texts of certificates are put into files. Raises ConfigError.
    """
    if not is_url(place):
        return accept_client(read_client(place, environ))
    kept = last_document(place)
    try:
        text = fetch_now(place, kept)
        return accept_client(client_document(text, environ))
    except ConfigError as error:
        kept = last_document(place)  # another process may have had a newer one
        if kept is None:
            raise
        log.warning("%s; the configuration that was used last is used again", error)
        document = client_document(replace(kept, problem=str(error)), environ)
        config = client_config(document)
        restore_pem_files(document)
        return config


def read_mirror(path: str) -> ConfigDocument:
    """The file of a sidecar that mirrors topics; raises ConfigError."""
    text = read_file(path)
    return ConfigDocument(text, MIRROR_FILE, parse_toml(text))


def load_mirror(path: str) -> MirrorConfig:
    """The configuration of a sidecar that mirrors topics; raises ConfigError."""
    return mirror_config(read_mirror(path))


def mirror_config(document: ConfigDocument) -> MirrorConfig:
    """What it says, checked; raises ConfigError."""
    return TableReader(document).read(MirrorConfig)


def accept_client(document: ConfigDocument) -> ClientConfig:
    """What a client's document says, checked, with its certificates in files, and kept for times
    when its URL cannot be reached. Raises ConfigError, and then everything is as it was.
    """
    config = client_config(document)
    unkept = save_client_state(document)
    if unkept:
        log.warning("%s", unkept)
    return config


def node_config(document: ConfigDocument) -> NodeConfig:
    """What it says, checked; raises ConfigError."""
    return TableReader(document).read(NodeConfig)


def client_config(document: ConfigDocument) -> ClientConfig:
    """What it says, checked; raises ConfigError."""
    table = TableReader(document)
    config = table.read(ClientConfig, tls=lambda: read_client_tls(table))
    return replace(config, document=document)


def with_kafka_settings(config: KafkaConfig, texts: Iterable[str], source: str) -> KafkaConfig:
    """The configuration with texts such as `num.partitions=3` counted in; what they do not name
    stays as it was. `source`: where they come from, for messages. Raises ConfigError.
    """
    values = dict(_named_value(text, source) for text in texts)
    spec = TableSpec("", "Kafka's own names, without tables").add(KafkaSettings)
    before = KafkaSettings(defaults=config.defaults, groups=config.groups)
    document = ConfigDocument(ConfigText(source, b""), spec, values)
    found = TableReader(document).read(KafkaSettings, before)
    return replace(config, defaults=found.defaults, groups=found.groups)


def _named_value(text: str, source: str) -> tuple[str, Any]:
    """A name and its value; what is no number and neither true nor false is a text, such as 1Mi."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{source}: {text!r} is not NAME=VALUE, such as {NUM_PARTITIONS}=3")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value
