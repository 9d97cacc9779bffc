"""Starts nodes and commands quickly: as forks of a process that has imported all that a node does.

Importing takes a node most of a second of a processor, and tests start hundreds of nodes. What runs
is the `samelog` command, or another module, in a process of its own all the same. What else tests
start (`up`, nodes under faults that are preloaded) are programs of their own.

Invariant: a fork begins with one thread, in a session of its own, with no file of the test's open
but its standard ones; the test's process is its parent, and the kernel kills the fork when that
process ends in any way.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from runpy import run_module
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from samelog.cli import local_cluster

SAMELOG = "samelog"
MODULES = (
    "samelog.cli.main",
    "samelog.cli.commands.node",
    "samelog.cli.node_process",
    "samelog.publisher",
    "samelog.subscriber",
)
REQUEST_BYTES_MAX = 1 << 17
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36

_turn = threading.Lock()


class Forked:
    """A child of this process. Implements local_cluster.Process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None
        self._lock = threading.Lock()
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit code, once it has ended; negative: the signal that ended it."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
                    os.close(self._end)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises TimeoutExpired."""
        if self.poll() is None:
            ended = select.poll()
            ended.register(self._end, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def take_over() -> None:
    """Start nodes so from now on."""
    local_cluster.start_process = fork


def fork(
    arguments: Sequence[str],
    log: BinaryIO,
    env: Mapping[str, str] | None = None,
    *,
    module: str = SAMELOG,
) -> local_cluster.Process:
    """Start a module with these arguments, and this environment or our own."""
    from tests import tiers  # not in the process that forks

    tiers.require("starts_nodes")
    with open(os.devnull, "rb") as nothing:
        return _begin([module, *arguments], (nothing, log, log), env)


def run(
    arguments: Sequence[str],
    *,
    stdin: str = "",
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `samelog` with these arguments. Raises TimeoutExpired."""
    with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        process = _begin([SAMELOG, *arguments], (given, out, err), env)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        told = (os.pread(each.fileno(), os.fstat(each.fileno()).st_size, 0) for each in (out, err))
        return subprocess.CompletedProcess(arguments, code, *(text.decode() for text in told))


def _begin(
    command: Sequence[str], files: Sequence[IO[bytes]], env: Mapping[str, str] | None
) -> Forked:
    environment = dict(os.environ if env is None else env)
    told = json.dumps([list(command), os.getcwd(), environment, os.getpid()])
    with _turn:
        channel = _template()
        socket.send_fds(channel, [told.encode()], [file.fileno() for file in files])
        pid, is_ours = channel.recv(64), channel.recv(64)
    if not is_ours:
        raise RuntimeError("the process that nodes are forked from is gone")
    return Forked(int(pid))


@cache
def _template() -> socket.socket:
    """A channel to the process that forks; it ends when this process does."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = theirs.fileno()
    command = [sys.executable, "-m", "tests.forking", str(number)]
    process = subprocess.Popen(command, pass_fds=[number])
    theirs.close()
    atexit.register(_end, process, ours)
    return ours


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.wait()


# --- in the process that forks --------------------------------------------------------------------


def serve(channel: socket.socket) -> list[str]:
    """Fork whenever asked to; returns the command, in each fork alone."""
    while True:
        told, files, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 3)
        if not told:
            sys.exit()
        middle = os.fork()
        if middle == 0:
            ending = os.pidfd_open(os.getpid())
            if child := os.fork():
                channel.send(str(child).encode())
                os._exit(0)  # which makes the child the test's
            channel.close()
            command, directory, environment, parent = json.loads(told)
            end_with(parent, ending)
            become(files, directory, environment)
            return list(command)
        for file in files:
            os.close(file)
        os.waitpid(middle, 0)
        channel.send(b"ours")


def end_with(parent: int, ending: int) -> None:
    """Have the kernel kill this process when its parent ends. `ending`: a descriptor that becomes
    readable when the process that forked this one has ended and the parent has taken its place.
    """
    select.select([ending], [], [])
    os.close(ending)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which has ended meanwhile
        os._exit(1)


def become(files: Sequence[int], directory: str, environment: dict[str, str]) -> None:
    """What a program begins with."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for source, target in zip(files, (0, 1, 2), strict=True):
        os.dup2(source, target)
        os.close(source)


def fork_whenever_asked() -> None:
    """Import everything, and fork. Ctrl-C reaches this process too, while tests still clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in MODULES:
        import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("importing a node has started threads: it cannot be forked")
    gc.freeze()
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    fork_whenever_asked()
