"""Listeners of every kind on a cluster's nodes, with users, and what clients need to be let in."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from samelog.cli.local_cluster import LocalCluster, LocalNode, free_ports
from samelog.config.load import load_node
from samelog.config.pki.authority import CertificateRole, issue
from samelog.config.schema.render import to_toml
from samelog.config.tables.kafka import (
    ClientQuota,
    KafkaListener,
    KafkaUser,
    Security,
    TokenIssuer,
)
from samelog.config.tables.node import Grant
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from tests.e2e.harness import World
from tests.kafka.clients import Access
from tests.kafka.token_issuer import AUDIENCE, ISSUER, Issuer

HOST = "127.0.0.1"
KINDS = {"tls": Security.TLS, "mtls": Security.MTLS, "sasl": Security.SASL_TLS}
USERS = ("ann", "reader", "member", "slow-writer", "slow-reader", "slow-asker")
PASSWORD = "right"
FILES = ("ca", "cert", "key")
SLOW_BYTES = 100_000
QUOTAS = (
    ClientQuota(identity="samelog://user/slow-writer", producer_byte_rate=SLOW_BYTES),
    ClientQuota(identity="samelog://user/slow-reader", consumer_byte_rate=SLOW_BYTES),
    ClientQuota(identity="samelog://user/slow*", request_rate=10),
)
GRANTS = (
    Grant(
        identity="samelog://user/ann",
        publish_sessions=("kafka",),
        publish_topics=("open*",),
        subscribe_topics=("open*",),
    ),
    Grant(identity="samelog://user/reader", subscribe_topics=("open*",)),
    Grant(
        identity="samelog://user/member",
        subscribe_topics=("open*",),
        subscribe_groups=("mine-*",),
    ),
    Grant(
        identity="samelog://user/slow*",
        publish_sessions=("kafka",),
        publish_topics=("open*",),
        subscribe_topics=("open*",),
    ),
)


class Secure:
    """A cluster that is not started yet; every node has a listener of each kind."""

    def __init__(self, cluster: LocalCluster, path: Path) -> None:
        self.world = World(cluster, path)
        self.pki = os.path.join(cluster.directory, "pki")
        self.ports: dict[str, list[int]] = {kind: [] for kind in KINDS}
        self.password = path / "password"
        self.password.write_text(f"{PASSWORD}\n")
        self.password.chmod(0o600)
        self.mtls_files = path / "own"
        """Certificate, key and authority of the mutual TLS listeners alone."""
        self.issuer = Issuer()
        self.jwks = path / "jwks.json"
        """The issuer's public keys."""
        self.jwks.write_bytes(self.issuer.key_set())
        files = load_node(cluster.nodes[0].config_file).tls
        self.mtls_files.mkdir()
        for name in FILES:
            shutil.copy(getattr(files, name), self.mtls_files / name)
        for node in cluster.nodes:
            self._equip(node)
        issue(self.pki, CertificateRole.SUBSCRIBER, "nobody")

    def _equip(self, node: LocalNode) -> None:
        ca, cert, key = (str(self.mtls_files / name) for name in FILES)
        own = TlsFiles(ca=ca, cert=cert, key=key)
        listeners = []
        for (kind, security), port in zip(KINDS.items(), free_ports(len(KINDS)), strict=True):
            self.ports[kind].append(port)
            here, tls = Address(HOST, port), own if kind == "mtls" else None
            listeners.append(
                KafkaListener(name=kind, listen=here, advertise=here, security=security, tls=tls)
            )
        users = tuple(KafkaUser(name=name, password_file=str(self.password)) for name in USERS)
        config = load_node(node.config_file)
        listeners = [*config.kafka.listeners, *listeners]
        oauth = TokenIssuer(jwks=str(self.jwks), issuer=ISSUER, audience=AUDIENCE)
        listened = replace(config.kafka, listeners=tuple(listeners), users=users)
        kafka = replace(listened, oauth=oauth, quotas=QUOTAS)
        config = replace(config, kafka=kafka, grants=(*config.grants, *GRANTS))
        Path(node.config_file).write_text(to_toml(config), encoding="utf-8")

    def bootstrap(self, kind: str) -> str:
        """Where clients begin, on the listeners of a kind."""
        return ",".join(f"{HOST}:{port}" for port in self.ports[kind])

    @property
    def authority(self) -> str:
        """The file of the certificate that everything is signed with."""
        return os.path.join(self.pki, "ca.pem")

    def access(
        self,
        kind: str,
        *,
        mechanism: str | None = None,
        password: str = PASSWORD,
        token: str | None = None,
    ) -> Access:
        """What lets a client in, whichever it is."""
        files = self.certificate("client-local") if kind == "mtls" else {}
        return Access(
            bootstrap=self.bootstrap(kind),
            authority=self.authority,
            certificate=files.get("ssl_certificate_location"),
            key=files.get("ssl_key_location"),
            mechanism=mechanism,
            user=USERS[0],
            password=password,
            token=token,
        )

    def options(self, kind: str, **more: str) -> dict[str, Any]:
        """What a confluent client needs to be let in."""
        protocol = "SASL_SSL" if kind == "sasl" else "SSL"
        base = {
            "bootstrap.servers": self.bootstrap(kind),
            "security.protocol": protocol,
            "ssl.ca.location": self.authority,
            "log_level": 0,
        }
        return base | {key.replace("_", "."): value for key, value in more.items()}

    def certificate(self, name: str) -> dict[str, str]:
        """Files of a client's certificate."""
        return {
            "ssl_certificate_location": os.path.join(self.pki, f"{name}.pem"),
            "ssl_key_location": os.path.join(self.pki, f"{name}.key"),
        }
