"""Answers who may do what here: the asking client's identity, grants, ACLs and certificates.

Invariant: no key and no password is ever read for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

import samelog
from samelog.admin.requests import GetAccess, GetIdentity
from samelog.admin.views import Access, AclRow, CertificateRow, GrantRow, Whoami
from samelog.config.tables.node import Grant, NodeConfig
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.network.expiry import certificate_paths, earliest_expiry, tls_files_of
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.state.tables.access import AclBinding

UNKNOWN_MS = -1
RESOURCES = ("topic", "group", "cluster", "transactional id", "delegation token", "user")
OPERATIONS = (
    *("all", "read", "write", "create", "delete", "alter", "describe", "cluster action"),
    *("describe configs", "alter configs", "idempotent write", "create tokens"),
    *("describe tokens", "two phase commit"),
)
FIRST = 2
"""Kafka's number of the first of each."""
PREFIXED, ALLOWED = 4, 3


async def whoami(node: ServedNode, request: GetIdentity, identity: str) -> Whoami:
    """Who asks."""
    config, rights = node.member.config, node.member.rights
    may_change = rights.is_admin(identity)
    return Whoami(config.cluster, config.name, samelog.__version__, identity, may_change)


async def get_access(node: ServedNode, request: GetAccess) -> Access:
    """Grants that are in force, ACLs of the cluster, and certificates as they are on disk."""
    paths = certificate_paths(node_tls_files(node.member.config))
    certificates = await asyncio.to_thread(_certificates, paths)
    grants = tuple(map(_grant, node.member.rights.grants))
    access = node.logs.machine.state.access
    acls = sorted(map(_acl, access.acls), key=structs.astuple)
    return Access(grants, certificates, tuple(acls), tuple(sorted(access.credentials)))


def node_tls_files(config: NodeConfig) -> dict[str, TlsFiles]:
    """Name -> files of a node, and of its listeners that have their own."""
    listeners = {f"kafka/{each.name}": each.tls for each in config.kafka.listeners}
    return tls_files_of(config.tls, config.http, listeners)


def _grant(grant: Grant) -> GrantRow:
    return GrantRow(*(getattr(grant, field.name) for field in structs.fields(GrantRow)))


def _acl(acl: AclBinding) -> AclRow:
    return AclRow(
        acl.principal,
        acl.host,
        _named(RESOURCES, acl.resource),
        acl.name,
        acl.pattern == PREFIXED,
        _named(OPERATIONS, acl.operation),
        acl.permission == ALLOWED,
    )


def _named(names: tuple[str, ...], number: int) -> str:
    """What a number of Kafka's means; the number, if it is a newer one."""
    place = number - FIRST
    return names[place] if 0 <= place < len(names) else str(number)


def _certificates(paths: Mapping[str, str]) -> tuple[CertificateRow, ...]:
    return tuple(CertificateRow(name, _expires_ms(path)) for name, path in paths.items())


def _expires_ms(path: str) -> int:
    try:
        return round(earliest_expiry(Path(path).read_bytes()) * 1000)
    except (OSError, ValueError):
        return UNKNOWN_MS
