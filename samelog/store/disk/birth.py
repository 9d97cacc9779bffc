"""What tells a file from any copy of it: where it is, and when it was made.

A copy, however it was made, is another inode, born later, in this file system or another one. A
rolled-back or cloned block device is the exception: nothing in it tells it from what it was.

Invariant: the same file answers the same for as long as it is never replaced, across restarts.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import NamedTuple

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_MASK = struct.Struct("=I")
_BIRTH = struct.Struct("=qI")
_BIRTH_AT = 80
_TYPE = struct.Struct("@l")
_STATFS_BYTES = 512
_XFS = 0x58465342
"""Its id follows the number of the device, which another start of the host may give another one."""

_libc = ctypes.CDLL(None, use_errno=True)


class Birth(NamedTuple):
    """Where and when a file was made. `file_system` is 0 where that has no lasting id; `at_ns` is
    when the inode last changed where the file system keeps no time of birth.
    """

    file_system: int
    inode: int
    at_ns: int


def birth_of(path: str) -> Birth:
    """Of a file that is there. Raises OSError."""
    facts = os.lstat(path)
    born_ns = _born_ns(path)
    return Birth(
        _file_system(path), facts.st_ino, facts.st_ctime_ns if born_ns is None else born_ns
    )


def _born_ns(path: str) -> int | None:
    """statx(2): the standard library does not ask for it; None where nobody knows."""
    statx = getattr(_libc, "statx", None)
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    name = os.fsencode(path)
    if statx is None or statx(_AT_FDCWD, name, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, buffer):
        return None
    (mask,) = _MASK.unpack_from(buffer)
    seconds, nanoseconds = _BIRTH.unpack_from(buffer, _BIRTH_AT)
    return int(seconds * 10**9 + nanoseconds) if mask & _STATX_BTIME else None


def _file_system(path: str) -> int:
    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.statfs(os.fsencode(path), buffer) == 0 and _TYPE.unpack_from(buffer)[0] == _XFS:
        return 0
    return os.statvfs(path).f_fsid
