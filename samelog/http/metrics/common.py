"""What nodes and sidecars have in common: build, certificates, disk, Kafka listeners.

Invariant: a certificate is read again only when its file has changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping

from cryptography import x509

import samelog
from samelog.config.tables.shared import HttpConfig, TlsFiles
from samelog.http.metrics.collector import Sample
from samelog.runtime.counters import Histogram, ListenerTally
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.tls import ReloadingContext, open_context, signatures

OWN = "own"


def tls_files_of(
    own: TlsFiles, http: HttpConfig | None, others: Mapping[str, TlsFiles | None]
) -> dict[str, TlsFiles]:
    """Name -> files: the own ones, and those of listeners that have their own."""
    listeners = {OWN: own, "http": None if http is None else http.tls, **others}
    return {name: files for name, files in listeners.items() if files is not None}


class Certificates:
    """When certificates expire, and whether their files can be used."""

    def __init__(self, files: Mapping[str, TlsFiles], identity: str | None = None) -> None:
        """`identity`: what the process's own certificate has to be for."""
        self._files = files
        self._identity = identity
        self._known: dict[str, tuple[tuple[int, int], float]] = {}
        """File -> (inode and time of change), when it expires."""
        self._tried: dict[str, tuple[object, bool]] = {}
        """Name -> signatures, whether they can be used."""

    def samples(self) -> Iterator[Sample]:
        """Expiry and usability; a certificate that cannot be read has no expiry."""
        paths = {name: files.cert for name, files in self._files.items()}
        paths["authority"] = self._files[OWN].ca
        for name, path in paths.items():
            expiry = self._expiry(path)
            if expiry is not None:
                yield "samelog_tls_certificate_expiry_timestamp_seconds", (name,), expiry
        for name in self._files:
            yield "samelog_tls_files_unusable", (name,), not self._is_usable(name)

    def _is_usable(self, name: str) -> bool:
        files = self._files[name]
        found, (seen, is_usable) = signatures(files), self._tried.get(name, (None, False))
        if seen != found or (name == OWN and not is_usable):  # the process tries those again, too
            self._tried[name] = found, self._try(name, files)
        return self._tried[name][1]

    def _try(self, name: str, files: TlsFiles) -> bool:
        """Whether the files can be used; a listener needs no authority."""
        try:
            if name == OWN:
                ReloadingContext(files, own=self._identity)
            else:
                open_context(files, ask_certificate=False)
        except TlsFault:
            return False
        return True

    def _expiry(self, path: str) -> float | None:
        try:
            status = os.stat(path)
            seen = status.st_ino, status.st_mtime_ns
            known = self._known.get(path)
            if known is None or known[0] != seen:
                with open(path, "rb") as file:
                    known = seen, earliest_expiry(file.read())
                self._known[path] = known
        except (OSError, ValueError):
            return None
        return known[1]


def earliest_expiry(pem: bytes) -> float:
    """When the first of the certificates in a file expires, in seconds of the epoch. Raises
    ValueError where there is none.
    """
    found = x509.load_pem_x509_certificates(pem)
    return min(each.not_valid_after_utc.timestamp() for each in found)


def build() -> Iterator[Sample]:
    """The version of samelog."""
    yield "samelog_build_info", (samelog.__version__,), 1


def disk(directory: str) -> Iterator[Sample]:
    """Space of the file system that has the directory."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return
    yield "samelog_disk_used_bytes", (), usage.used
    yield "samelog_disk_free_bytes", (), usage.free


def kafka(tallies: Mapping[str, ListenerTally]) -> Iterator[Sample]:
    """Counters of the Kafka listeners."""
    for name, tally in tallies.items():
        yield "samelog_kafka_connections", (name,), tally.connections
        yield "samelog_kafka_refused_connections_total", (name,), tally.refused
        yield "samelog_kafka_requests_total", (name,), tally.requests
        yield "samelog_kafka_received_bytes_total", (name,), tally.in_bytes
        yield "samelog_kafka_sent_bytes_total", (name,), tally.out_bytes
        yield "samelog_kafka_held_bytes", (name,), tally.held()


def config_refused(problem: Callable[[], str]) -> Iterator[Sample]:
    """Whether the newest configuration is refused. `problem`: why; empty if it is not."""
    yield "samelog_config_refused", (), bool(problem())


def ready(not_ready: Callable[[], str]) -> Iterator[Sample]:
    """Whether /readyz answers that the process can serve."""
    yield "samelog_ready", (), not not_ready()


def loop_delay(histogram: Histogram) -> Iterator[Sample]:
    """Delays of the event loop's timers."""
    yield "samelog_event_loop_delay_seconds", (), histogram
