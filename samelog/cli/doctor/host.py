"""This host and the files of nodes, as `samelog doctor` measures them.

Invariant: nothing is changed. A file without a name is written to measure a disk; a port is taken
for a moment, and only if nobody has it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import socket
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from cryptography import x509

from samelog.archiver.policy import PolicyError, parse_policy
from samelog.cli.config_contents import check_node
from samelog.cli.doctor.findings import (
    NEW_AUTHORITY,
    NEW_CERTIFICATE,
    SAME_GRANTS,
    Diagnosis,
    Soundness,
    judge_alike,
    judge_clock,
    judge_disk,
    judge_expiry,
    judge_open_files,
    judge_packages,
    judge_sharing,
    judge_syncs,
    judge_watchers,
    ok,
)
from samelog.cli.output import ConfigurationError
from samelog.config.document import read_file
from samelog.config.tables.node import NodeConfig
from samelog.config.values import Address, ConfigError
from samelog.format.texts import NotUtf8, decode_file
from samelog.runtime.network.expiry import OWN, certificate_paths, earliest_expiry, tls_files_of
from samelog.sequencer.raft.raft_home import home_of

SYNCS, SYNC_BYTES = 20, 4096
CONNECT_S = 2.0
TIME_ERROR = 5
TIMEX_BYTES = 512
"""More than struct timex has anywhere; zeros ask and set nothing."""
HOST = "this host"
FILTERS = ("pyarrow", "sqlglot")


def check_host() -> list[Diagnosis]:
    """What concerns every process here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else 1 << 30
    findings = [
        judge_clock(HOST, is_synchronised=clock_is_synchronised()),
        judge_open_files(HOST, limit),
    ]
    try:
        text = Path("/proc/sys/fs/inotify/max_user_instances").read_text(encoding="ascii")
    except OSError:
        return findings
    return [*findings, judge_watchers(HOST, int(text))]


def clock_is_synchronised() -> bool | None:
    """Whether the kernel believes that its clock is kept right; None: it does not say."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state = int(adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))
    return None if state < 0 else state != TIME_ERROR


def check_nodes(configs: Sequence[NodeConfig]) -> list[Diagnosis]:
    """What the files of nodes say, each and together."""
    findings = [finding for config in configs for finding in check_one(config)]
    if len(configs) < 2:
        return findings
    grants = {config.name: config.grants for config in configs}
    clusters = {config.name: config.cluster for config in configs}
    return [
        *findings,
        judge_alike("grants", grants, SAME_GRANTS),
        judge_alike("cluster", clusters, "nodes of one cluster have one [node] cluster"),
        *check_sharing(configs),
    ]


def check_sharing(configs: Sequence[NodeConfig]) -> Iterator[Diagnosis]:
    """Of nodes that say the same host, and have their data on one disk."""
    found: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for config in configs:
        disk = os.stat(nearest(config.data)).st_dev
        found[config.place.host, disk][config.name] = config.place.members_on_host
    for (host, _), members in found.items():
        if host and len(members) > 1:
            yield judge_sharing(host, members)


def check_one(config: NodeConfig) -> list[Diagnosis]:
    """What the file of one node, and what it names, are like."""
    of = config.name
    try:
        check_node(config)
        findings = [ok(of, "files", "certificates, keys, passwords and policy can be used")]
    except (ConfigurationError, ConfigError, OSError) as error:
        remedy = "mend it: samelog config check"
        findings = [Diagnosis(of, "files", Soundness.FAILED, str(error), remedy)]
    findings += _expiries(of, config)
    findings.append(judge_packages(of, [each for each in FILTERS if find_spec(each) is None]))
    findings += [_syncs(of, nearest(home_of(config))), *_disks(of, config)]
    ports = [config.listen, *(each.listen for each in config.kafka.listeners)]
    if config.http is not None:
        ports.append(config.http.listen)
    findings += [check_port(of, address) for address in ports]
    peers = {peer.name: peer.address for peer in config.peers if peer.name != of}
    return findings + [check_peer(of, name, address) for name, address in peers.items()]


def _expiries(of: str, config: NodeConfig) -> list[Diagnosis]:
    """Of the node's certificate, of those of its listeners, and of the authority."""
    listeners = {f"kafka/{each.name}": each.tls for each in config.kafka.listeners}
    paths = certificate_paths(tls_files_of(config.tls, config.http, listeners))
    return [found for name, path in paths.items() for found in _expiry(of, name, path)]


def _expiry(of: str, name: str, file: str) -> list[Diagnosis]:
    try:
        expires = earliest_expiry(read_file(file).data)
    except (ConfigError, OSError, ValueError):
        return []  # the finding about files says why
    subject = "certificate" if name == OWN else f"certificate {name}"
    remedy = NEW_AUTHORITY if name == "authority" else NEW_CERTIFICATE
    return [judge_expiry(of, (expires - time.time()) / 86400, subject, remedy)]


def days_left(certificate: x509.Certificate) -> float:
    """Days until a certificate expires."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds() / 86400


def _disks(of: str, config: NodeConfig) -> Iterator[Diagnosis]:
    """Of the data directory, and of Raft's files."""
    for directory in sorted({nearest(config.data), nearest(home_of(config))}):
        disk = shutil.disk_usage(directory)
        yield from judge_disk(of, disk.total, disk.free, _limit(config))


def nearest(directory: str) -> str:
    """The directory, or the one above it that is there."""
    place = os.path.abspath(directory)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place


def _syncs(of: str, directory: str) -> Diagnosis:
    try:
        return judge_syncs(of, time_syncs(directory))
    except OSError as error:
        remedy = "let this user write there, or run it as the node's user"
        return Diagnosis(of, "fsync", Soundness.WARNING, str(error), remedy)


def time_syncs(directory: str) -> list[float]:
    """Seconds that each of some small writes took to be on the disk."""
    taken = []
    with TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return taken


def _limit(config: NodeConfig) -> int | None:
    """What archiving leaves of merged logs at most."""
    if config.archive.policy is None:
        return None
    try:
        return parse_policy(decode_file(read_file(config.archive.policy).data)).limit
    except (PolicyError, ConfigError, OSError, NotUtf8):
        return None  # the finding about files says why


def check_port(of: str, address: Address) -> Diagnosis:
    """Whether a node can listen there, or somebody does already."""
    subject = f"port {address.port}"
    try:
        family, kind, _, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind)) as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return ok(of, subject, f"something listens on {address}, such as this node")
        remedy = "listen on an address of this host, on a port that this user may take"
        return Diagnosis(of, subject, Soundness.FAILED, f"{address}: {error}", remedy)
    return ok(of, subject, f"{address} is free")


def check_peer(of: str, name: str, address: Address) -> Diagnosis:
    """Whether another node takes connections."""
    try:
        socket.create_connection((address.host, address.port), CONNECT_S).close()
    except OSError as error:
        remedy = "start that node; check the address, routes and firewalls between the hosts"
        return Diagnosis(of, f"peer {name}", Soundness.WARNING, f"{address}: {error}", remedy)
    return ok(of, f"peer {name}", f"{address} takes connections")
