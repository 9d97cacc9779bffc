"""Files that hold secrets: whether others can read one, and writing one whole.

Invariant: nobody ever sees a part of a file that is written here, nor one of wider rights.
"""

from __future__ import annotations

import os
import stat
import tempfile


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
