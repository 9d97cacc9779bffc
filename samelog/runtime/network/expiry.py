"""When the certificates of a process expire.

Invariant: of a file with several certificates the first to expire counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography import x509

from samelog.config.tables.shared import HttpConfig, TlsFiles

OWN = "own"
"""The name of a process's own files, among those of its listeners."""


def tls_files_of(
    own: TlsFiles, http: HttpConfig | None, others: Mapping[str, TlsFiles | None]
) -> dict[str, TlsFiles]:
    """Name -> files: the own ones, and those of listeners that have their own."""
    listeners = {OWN: own, "http": None if http is None else http.tls, **others}
    return {name: files for name, files in listeners.items() if files is not None}


def certificate_paths(files: Mapping[str, TlsFiles]) -> dict[str, str]:
    """Name -> file of each certificate; `authority`: that of the own files."""
    return {**{name: each.cert for name, each in files.items()}, "authority": files[OWN].ca}


def earliest_expiry(pem: bytes) -> float:
    """When the first of the certificates in a file expires, in seconds of the epoch. Raises
    ValueError where there is none.
    """
    found = x509.load_pem_x509_certificates(pem)
    return min(each.not_valid_after_utc.timestamp() for each in found)
