"""What processes spend while something is measured: processor time, time in which their threads
waited for a processor, calls; and the scheduling groups that give all of them equal shares.

Linux only: `/proc/PID/autogroup`, `schedstat` and `io`, `/proc/diskstats`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.machine import cpu_s

GROUP_NICE = -15
"""Of every scheduling group that takes part in a benchmark: equal shares, and a fixed one beside
other work on the machine."""
SECTOR = 512
WAITED = "nodes_waited"
"""A figure of every system of a measure: threads of its nodes that waited, on average."""


def own_group(pid: int) -> bool:
    """Set the share of a process's scheduling group, which the kernel made when the process began a
    session of its own. False: the system has no such groups, or only root may set shares; groups
    have equal shares then, too.
    """
    try:
        Path(f"/proc/{pid}/autogroup").write_text(f"{GROUP_NICE}\n", encoding="ascii")
    except OSError:
        return False
    return True


def waited_ns(pids: Iterable[int]) -> dict[tuple[int, int], int]:
    """For how long each thread of some processes was runnable and waited for a processor."""
    found = {}
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*"):
            with suppress(OSError):  # a thread that ended
                fields = (task / "schedstat").read_text(encoding="ascii").split()
                found[pid, int(task.name)] = int(fields[1])
    return found


def calls(pids: Iterable[int]) -> tuple[int, int]:
    """The read and write calls that processes have made, of files and sockets alike."""
    reads = writes = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
        counts = {name: int(count) for name, count in (line.split(": ") for line in lines)}
        reads, writes = reads + counts["syscr"], writes + counts["syscw"]
    return reads, writes


def disk_written(directory: str) -> int | None:
    """Bytes written to the whole disk of a directory, by all processes; None if it is on no disk.
    `/proc/PID/io` is no substitute: it counts a whole folio for each write into one.
    """
    device = os.stat(directory).st_dev
    wanted = [str(os.major(device)), str(os.minor(device))]
    for line in Path("/proc/diskstats").read_text(encoding="ascii").splitlines():
        fields = line.split()
        if fields[:2] == wanted:
            return int(fields[9]) * SECTOR
    return None


@dataclass(slots=True)
class Spent:
    """What processes spent in windows of time that have ended."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0
    reads: int = 0
    writes: int = 0

    def add(self, other: Spent) -> None:
        """Add another window."""
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.waited_s += other.waited_s
        self.reads += other.reads
        self.writes += other.writes

    @property
    def cores(self) -> float:
        """Processors that were in use, on average."""
        return self.cpu_s / self.seconds if self.seconds else 0.0

    @property
    def waited(self) -> float:
        """Threads that waited for a processor, on average."""
        return self.waited_s / self.seconds if self.seconds else 0.0


class Meter:
    """Watches processes while something is measured. `total`: of all windows so far."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self.total = Spent()

    def taken(self) -> Spent:
        """All windows since this was asked last."""
        total, self.total = self.total, Spent()
        return total

    @contextmanager
    def waiting(self) -> Iterator[Spent]:
        """Measure only how long threads wait, also where processes end and others begin; counts for
        no window.
        """
        spent, begun, before = Spent(), time.monotonic(), waited_ns(self._pids())
        yield spent
        spent.seconds = time.monotonic() - begun
        more = (ns - before.get(thread, 0) for thread, ns in waited_ns(self._pids()).items())
        spent.waited_s = sum(more) / 1e9

    @contextmanager
    def window(self) -> Iterator[Spent]:
        """Measure until the end of the block; the value is complete then."""
        pids, spent, begun = self._pids(), Spent(), time.monotonic()
        cpu, (reads, writes) = cpu_s(pids), calls(pids)
        with self.waiting() as waited:
            yield spent
        pids = self._pids()
        spent.seconds, spent.cpu_s = time.monotonic() - begun, cpu_s(pids) - cpu
        spent.waited_s, now = waited.waited_s, calls(pids)
        spent.reads, spent.writes = now[0] - reads, now[1] - writes
        self.total.add(spent)
