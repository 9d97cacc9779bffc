"""What a benchmark says of the machine that it ran on: what it is, how busy it was, how fast its
disk syncs, and how much processor time processes have spent.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

PROBES = 100
REST_S, BUSY_PERCENT = 30, 25
PROBE_BYTES = bytes(4096)
WARM_BYTES, WARM_PIECE = 3 << 29, bytes(1 << 20)


def description() -> dict[str, object]:
    """What belongs beside every figure."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "nats": _first_line("nats-server", "--version"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _first_line(command: str, *arguments: str) -> str:
    if shutil.which(command) is None:
        return ""
    told = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    return next(iter((told.stdout + told.stderr).splitlines()), "")


def load() -> float:
    """Processes that ran or wanted to, on average over a minute."""
    return round(os.getloadavg()[0], 2)


def disk_pace(directory: str) -> dict[str, float]:
    """How long `fdatasync` of 4 KiB more takes here, in milliseconds."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(PROBES):
            os.write(file.fileno(), PROBE_BYTES)
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - begin))
    return {name: round(percentile(times, at), 3) for name, at in (("p50", 0.5), ("p99", 0.99))}


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def cpu_s(pids: Iterable[int]) -> float:
    """Processor time of processes since they began, with that of the kernel for them."""
    return float(sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))


def settled() -> None:
    """Have everything on disk that was written so far, and memory at hand for what is written next:
    neither is paid by what is measured next.
    """
    os.sync()
    warm_memory()


def warm_memory() -> None:
    """Write into as much of the page cache as a measurement takes, and give it back.

    The host of a virtual machine finds memory when it is written to for the first time, or again
    after it was free for some seconds. That takes up to 20 times as long as the write itself, on
    the account of whoever writes; where memory is in use, as on a machine that has run for a while,
    it does not happen.
    """
    with tempfile.TemporaryFile() as file:
        for _ in range(min(WARM_BYTES, psutil.virtual_memory().free // 2) // len(WARM_PIECE)):
            os.write(file.fileno(), WARM_PIECE)


def rested() -> None:
    """Wait until the machine has little to do, but not for ever: what others do at a fault, such as
    a broker that is just starting, would be counted as the time of who gets over it.
    """
    for _ in range(REST_S):
        if psutil.cpu_percent(interval=1.0) < BUSY_PERCENT:
            return
