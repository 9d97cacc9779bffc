"""Small files that are there whole or not at all.

Invariant: at no time anybody sees a part of one, or one that others may read who must not.
"""

from __future__ import annotations

import os
import tempfile


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
