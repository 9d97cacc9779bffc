"""What the files that a configuration names contain: `samelog config check` looks before a process
does.

Invariant: what is found to be usable here, nodes and clients can use now; nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from samelog.archiver.policy import PolicyError, parse_policy
from samelog.cli.output import ConfigurationError
from samelog.config.document import read_file
from samelog.config.load import client_config, read_client
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.kafka import Security
from samelog.config.tables.mirror import MirrorConfig
from samelog.config.tables.node import NodeConfig
from samelog.format.texts import NotUtf8, decode_file
from samelog.kafka.server.token_keys import TokenKeys
from samelog.kafka.service import ListenerFault, read_password
from samelog.mirror.kafka.connection import entrance_of
from samelog.runtime.errors import IdentityFault, TlsFault
from samelog.runtime.network.tls import (
    NODE_PREFIX,
    ReloadingContext,
    identity_of_certificate,
    open_context,
)

CERTIFICATE = "cert_pem"


def check_node(config: NodeConfig) -> None:
    """Raises ConfigurationError."""
    with _as_problem():
        ReloadingContext(config.tls, own=NODE_PREFIX + config.name)
        _check_dates(config.tls.cert, read_file(config.tls.cert).data)
        for listener in config.kafka.listeners:
            if listener.tls is not None:
                open_context(listener.tls, ask_certificate=listener.security is Security.MTLS)
                _check_dates(listener.tls.cert, read_file(listener.tls.cert).data)
        for user in config.kafka.users:
            read_password(user.password_file)
        if config.kafka.oauth is not None:
            TokenKeys(config.kafka.oauth).read()
        if config.archive.policy is not None:
            _check_policy(config.archive.policy)


def check_client(config: ClientConfig) -> None:
    """Raises ConfigurationError."""
    text = None if config.document is None else config.document.values.get(CERTIFICATE)
    with _as_problem():
        if text is not None:  # key and authority were compared with it when they were read
            _check_client_certificate(CERTIFICATE, text.encode())
            return
        ReloadingContext(config.tls)
        _check_client_certificate(config.tls.cert, read_file(config.tls.cert).data)


def check_mirror(config: MirrorConfig) -> None:
    """Check the files of both clusters. Raises ConfigError, ConfigurationError."""
    check_client(client_config(read_client(config.destination)))
    if config.source is not None and not os.path.isdir(config.source):
        check_client(client_config(read_client(config.source)))
    if config.kafka is not None:
        try:
            entrance_of(config.kafka)
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(f"[kafka]: {error}") from error


@contextmanager
def _as_problem() -> Iterator[None]:
    try:
        yield
    except (TlsFault, ListenerFault, IdentityFault) as error:
        raise ConfigurationError(str(error)) from error


def _check_client_certificate(name: str, pem: bytes) -> None:
    der = _check_dates(name, pem).public_bytes(Encoding.DER)
    try:
        identity_of_certificate(der, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)
    except IdentityFault as error:
        raise ConfigurationError(f"certificate {name!r}: {error}") from error


def _check_dates(name: str, pem: bytes) -> x509.Certificate:
    """The first certificate of a text, which counts now."""
    certificate = x509.load_pem_x509_certificate(pem)
    now = datetime.now(UTC)
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > until:
        raise ConfigurationError(f"certificate {name!r} expired on {until:%Y-%m-%d %H:%M} UTC")
    if now < since:
        raise ConfigurationError(f"certificate {name!r} counts from {since:%Y-%m-%d %H:%M} UTC on")
    return certificate


def _check_policy(path: str) -> None:
    try:
        parse_policy(decode_file(read_file(path).data))
    except (PolicyError, NotUtf8) as error:
        raise ConfigurationError(f"archiving policy {path!r}: {error}") from error
