"""Who runs the cluster in a directory: one `samelog up` at a time, and what a killed one left.

Invariant: nothing is written into the directory of a cluster that another process runs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob

from samelog.cli.local_cluster import POLL_S, STOP_TIMEOUT_S, ClusterError, make_directory
from samelog.format.errors import DirectoryInUse
from samelog.store.disk.files import OsFileSystem

LOCK = "up.lock"


@contextmanager
def hold(directory: str) -> Iterator[None]:
    """Be the one who runs the cluster in `directory`. Raises ClusterError if another process is."""
    make_directory(directory)
    try:
        lock = OsFileSystem().lock(os.path.join(directory, LOCK))
    except DirectoryInUse:
        raise ClusterError(
            f"process {holder(directory)} runs the cluster in {directory} already: use its "
            f"client.toml, or end it with: samelog down --dir {directory}"
        ) from None
    try:
        end_left_nodes(directory)
        yield
    finally:
        lock.close()


def holder(directory: str) -> int | None:
    """The process that runs the cluster in `directory`."""
    path = os.path.join(directory, LOCK)
    if not os.path.exists(path):
        return None
    try:
        OsFileSystem().lock(path).close()
    except DirectoryInUse:
        return _number_in(path)
    return None


def end(directory: str) -> list[int]:
    """End whoever runs the cluster in `directory`, and all its nodes; which processes that were.
    Raises ClusterError.
    """
    runs = holder(directory)
    if runs is not None:
        os.kill(runs, signal.SIGTERM)
        _wait_for_end([runs])
    return [*filter(None, [runs]), *end_left_nodes(directory)]


def end_left_nodes(directory: str) -> list[int]:
    """End the nodes that a killed `samelog up` left behind; which processes that were. They would
    answer in the place of new ones. Raises ClusterError.
    """
    left = [pid for path in glob(os.path.join(directory, "*", "node.pid")) if (pid := _node(path))]
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    _wait_for_end(left)
    return left


def _node(pid_file: str) -> int | None:
    """The process in this file, if it still is that node's: numbers of processes are used again."""
    pid = _number_in(pid_file)
    config = os.path.join(os.path.dirname(pid_file), "node.toml").encode()
    return pid if pid is not None and config in _command_line(pid).split(b"\0") else None


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _number_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 3 * STOP_TIMEOUT_S
    while still := [pid for pid in pids if _command_line(pid)]:
        if time.monotonic() > deadline:
            raise ClusterError(f"still running: {', '.join(map(str, still))}")
        time.sleep(POLL_S)
