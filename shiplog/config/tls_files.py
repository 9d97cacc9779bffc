"""PEM files and other secrets that a configuration names.

Invariant: a secret that others can read is refused, with what to do about it.
"""

from __future__ import annotations

import os
import stat

from shiplog.config.table import Table
from shiplog.config.types import TlsFiles


def load_tls(table: Table) -> TlsFiles:
    """The PEM files that a table names. Raises ConfigError."""
    files = TlsFiles(
        ca=table.existing_file("ca"),
        cert=table.existing_file("cert"),
        key=table.existing_file("key"),
        crl=table.existing_file("crl") if table.has("crl") else None,
    )
    check_secret(table, "key", files.key)
    return files


def check_secret(table: Table, key: str, path: str) -> None:
    """PostgreSQL's rule: only the owner may read a key, or the group too if the owner is root."""
    status = os.stat(path)
    shared = 0o037 if status.st_uid == 0 else 0o077
    mode = stat.S_IMODE(status.st_mode)
    if mode & shared:
        reason = f"{path!r} can be used by others (mode {mode:04o}); run: chmod 600 {path!r}"
        raise table.error(key, reason)
