"""Takes the real clock and the real chance away while a world runs.

Cores get time and chance as arguments; what little of the rest asks the operating system is
answered from the world.

Invariant: nothing that runs inside `nothing_real` sees a difference between two runs of one seed.
"""

from __future__ import annotations

import gc
import random
import secrets
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch
from weakref import WeakKeyDictionary

from samelog.format import _kernels as kernels
from samelog.publisher import output
from samelog.runtime import slices
from samelog.runtime.clock import SystemClock
from samelog.store.disk.directories import DirectoryWatch
from samelog.store.disk.disk_errors import DiskFault
from tests.cluster_sim.files import open_files
from tests.cluster_sim.loop import SimLoop
from tests.cluster_sim.process import Process

START_MS = 1_790_000_000_000


@contextmanager
def nothing_real(loop: SimLoop, seed: int) -> Iterator[None]:
    """Let time, chance and descriptors be simulated."""
    chance = random.Random(f"names {seed}")

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    def token_hex(size: int = 32) -> str:
        return chance.randbytes(size).hex()

    with ExitStack() as stack:
        for name, now in (
            ("monotonic", loop.looked),
            ("perf_counter", loop.looked),
            ("time", lambda: START_MS / 1000 + loop.time()),
            ("time_ns", lambda: START_MS * 1_000_000 + int(loop.time() * 1e9)),
        ):
            stack.enter_context(patch.object(time, name, now))
        stack.enter_context(patch.object(SystemClock, "now", staticmethod(loop.looked)))
        stack.enter_context(patch.object(uuid, "uuid4", new_uuid))
        stack.enter_context(patch.object(secrets, "token_hex", token_hex))
        stack.enter_context(patch.object(DirectoryWatch.__init__, "__defaults__", (loop.looked,)))
        stack.enter_context(patch.object(output, "kernels", simulated_kernels()))
        stack.enter_context(patch.object(slices, "_slices", _SlicesOfProcesses()))
        stack.enter_context(patch.object(sys, "unraisablehook", _be_silent))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of processes that died
        open_files.clear()
        gc.disable()
        gc.collect()  # the world before: nobody ever looks through what is frozen
        gc.freeze()  # what is there already need not be looked through with this world, or later
        try:
            yield
        finally:
            gc.enable()


class _SlicesOfProcesses:
    """Each process has an event loop of its own, as far as it knows, and slices of that: the timer
    of one that is killed never rings.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Process, slices.Slices] = WeakKeyDictionary()

    def get(self, loop: SimLoop) -> slices.Slices | None:
        return self._known.get(loop.current)

    def __setitem__(self, loop: SimLoop, made: slices.Slices) -> None:
        self._known[loop.current] = made


def _be_silent(unraisable: object) -> None:
    """What dead processes leave behind may end as it likes."""


def simulated_kernels() -> SimpleNamespace:
    """The kernels that write through descriptors, for simulated ones."""

    def write_at(descriptor: int, data: bytes, position: int) -> None:
        try:
            open_files[descriptor].pwrite(data, position)
        except DiskFault as fault:
            raise OSError(fault.error_number, str(fault)) from fault

    return SimpleNamespace(write_at=write_at, build_record=kernels.build_record)
