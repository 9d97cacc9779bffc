"""Who ships a session: one push client at a time, embedded or of a sidecar.

Two would send the same bytes to the same nodes, and each would take the other's answers for a
fault. Invariant: whoever ships a session holds the lock on `push.lock` in its directory.
"""

from __future__ import annotations

import os

from samelog.format.errors import DirectoryInUse
from samelog.store.disk.files import File, FileSystem

LOCK_FILE = "push.lock"


def lock_shipping(fs: FileSystem, session: str) -> File:
    """Become the one who ships the session's directory, until the file is closed.

    Raises:
        DirectoryInUse: another process, or another publisher of this one, ships it.
    """
    try:
        return fs.lock(os.path.join(session, LOCK_FILE))
    except DirectoryInUse as error:
        raise DirectoryInUse(
            f"{error}: it ships this session already; publish with ship=False, or stop it"
        ) from error
