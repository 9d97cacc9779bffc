"""The memory and threads of this process, and their limits.

Limits of control groups are those of version 2, of the process's own group and all above it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PROC = Path("/proc")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
THREADS_FIELD, RESIDENT_PAGES_FIELD = 17, 21
"""Of /proc/self/stat, counted from behind the name of the program."""


class Usage(NamedTuple):
    """How much of a resource is in use, and its limit (0: there is none)."""

    used: int
    limit: int


def memory() -> Usage:
    """The resident bytes of this process, and those of its control group or the host."""
    page = os.sysconf("SC_PAGESIZE")
    limits = [os.sysconf("SC_PHYS_PAGES") * page, *_group_limits("memory.max")]
    return Usage(_stat_field(RESIDENT_PAGES_FIELD) * page, min(limits))


def threads() -> Usage:
    """The threads of this process, and those that its user, control group or host may have."""
    limits = list(_group_limits("pids.max"))
    of_user, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if of_user != resource.RLIM_INFINITY:
        limits.append(of_user)
    if (of_host := _number(PROC / "sys/kernel/threads-max")) is not None:
        limits.append(of_host)
    return Usage(_stat_field(THREADS_FIELD), min(limits, default=0))


def _stat_field(index: int) -> int:
    text = (PROC / "self/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[index])


def _group_limits(name: str) -> Iterator[int]:
    """Yield the limits of the process's control group and of those above it."""
    try:
        lines = (PROC / "self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None:
        return
    path = PurePosixPath(own)
    for group in (path, *path.parents):
        limit = _number(CONTROL_GROUPS / str(group).lstrip("/") / name)
        if limit is not None:
            yield limit


def _number(file: Path) -> int | None:
    """Return the number in a file, or None if the file is absent or says `max`."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
