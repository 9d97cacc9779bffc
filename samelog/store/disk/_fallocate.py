"""Blocks ahead of a growing file, by the one system call that keeps its size true.

`os.posix_fallocate` is no use here: it changes the size of the file, and writes zeros where the
file system cannot reserve. Reserving is an optimisation, so whatever cannot be reserved is simply
not: the plain write that follows finds out whether there is room.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable

FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h

_NOT_RESERVED = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EINVAL,
        errno.EINTR,
    }
)


def _find() -> Callable[[int, int, int, int], int] | None:
    library = ctypes.CDLL(None, use_errno=True)
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    typed: Callable[[int, int, int, int], int] = function
    return typed


_fallocate = _find()


def reserve(descriptor: int, position: int, length: int) -> None:
    """Reserve blocks for `length` bytes from `position`, if the system and the disk can; the size
    does not change.

    Raises:
        OSError: the disk fails.
    """
    if _fallocate is None:
        return
    if _fallocate(descriptor, FALLOC_FL_KEEP_SIZE, position, length) != 0:
        number = ctypes.get_errno()
        if number not in _NOT_RESERVED:
            raise OSError(number, os.strerror(number))
