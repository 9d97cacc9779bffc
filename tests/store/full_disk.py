"""A disk that is soon full: a small file system of its own where that is allowed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.test_files import file_size_limit

ROOM_BYTES = 1 << 20


@contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A directory with room for about ROOM_BYTES.

    A mounted tmpfs, which answers ENOSPC; where mounting is not allowed, a limit on file sizes,
    which answers EFBIG.
    """
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(directory)]
    try:
        is_mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        with file_size_limit(ROOM_BYTES):
            yield directory
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
