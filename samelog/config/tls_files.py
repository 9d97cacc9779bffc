"""PEM files and other secrets that a configuration names.

Invariant: a secret that others can read is refused, with what to do about it.
"""

from __future__ import annotations

import os
import stat

from samelog.config.table import Table
from samelog.config.types import TlsFiles


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
    """Raises ConfigError if others can read a file of this table."""
    reason = why_shared(path)
    if reason:
        raise table.error(key, reason)


def why_shared(path: str) -> str:
    """What is wrong with a secret file's mode; empty if nothing is. PostgreSQL's rule: only the
    owner may read it, or the group too if the owner is root. Raises OSError.
    """
    status = os.stat(path)
    shared = 0o037 if status.st_uid == 0 else 0o077
    mode = stat.S_IMODE(status.st_mode)
    if not mode & shared:
        return ""
    return f"{path!r} can be used by others (mode {mode:04o}); run: chmod 600 {path!r}"
