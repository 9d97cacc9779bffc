"""PEM files and other secrets that a configuration names, and files that are replaced whole.

Invariant: a secret that others can read is refused, with what to do about it; nobody ever sees a
part of a file that is written here.
"""

from __future__ import annotations

import os
import stat
import tempfile

from samelog.config.table import Table
from samelog.config.tables.shared import TlsFiles


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


def replace_file(path: str, data: bytes, mode: int) -> None:
    """Write a file, in the place of an older one. Raises OSError."""
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or ".", delete=False) as file:
        try:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
