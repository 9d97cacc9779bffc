"""Counts the calls of Python code in several processes while a shared flag is up.

Timers are off meanwhile: what an event loop would call later waits until the flag is down, so
that only what the record itself causes is counted: calls of Python functions, whosever they are,
and apart from them calls from the product's functions into compiled code. Only what is put off for
a moment (`SOON_S`) while the flag is up is part of it, such as an acknowledgement.

Invariant: nothing is counted while the flag is down, and nothing of the counting itself.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from types import CodeType, FrameType
from typing import Any, TypeVarTuple

import uvloop

import samelog
from samelog.runtime.disk.pace import DiskPace

PACKAGE = f"{os.path.dirname(samelog.__file__)}/"
COUNTING = "/tests/hops/"
POLL_S = 0.005
SOON_S = 0.01

ArgumentTs = TypeVarTuple("ArgumentTs")


class Flag:
    """One byte that processes share through a file: whether calls count now."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "a+b") as file:
            file.truncate(1)
            self._memory = mmap.mmap(file.fileno(), 1)

    def __bool__(self) -> bool:
        return self._memory[0] == 1

    def up(self) -> None:
        """From now on calls count, in all processes."""
        self._memory[0] = 1

    def down(self) -> None:
        """From now on they do not."""
        self._memory[0] = 0


class CallCounter:
    """Counts the calls of all threads of this process that start after `install`, and of its own.

    The counts are by code object, so that counting itself calls nothing.
    """

    def __init__(self, flag: Flag) -> None:
        self._flag = flag
        self._python: Counter[CodeType] = Counter()
        self._compiled = 0

    def install(self) -> None:
        """Begin to listen. Threads must be started later than this."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def take(self) -> tuple[dict[str, int], int]:
        """Calls by "file:function" since the last `take`, and calls out into compiled code."""
        python, self._python = self._python, Counter()
        compiled, self._compiled = self._compiled, 0
        named: Counter[str] = Counter()
        for code, count in list(python.items()):  # other threads may still add to it
            if COUNTING not in code.co_filename:
                _, _, module = code.co_filename.rpartition(PACKAGE)
                named[f"{module}:{code.co_qualname}"] += count
        return dict(named), compiled

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self._flag:
            return
        if event == "call":
            self._python[frame.f_code] += 1
        elif event == "c_call" and PACKAGE in frame.f_code.co_filename:
            self._compiled += 1


def disks_are_fast() -> None:
    """Have syncs waited for at once, also where a busy machine makes some of them slow: what is
    counted is one way.
    """

    def took(pace: DiskPace, _: float) -> None:
        pace.is_fast = True

    DiskPace.took = took  # type: ignore[assignment, method-assign]


def timers_wait_for(flag: Flag) -> None:
    """Have event loops that are made from now on keep their timers back while the flag is up."""

    class PatientLoop(uvloop.Loop):
        def call_later(
            self,
            delay: float,
            callback: Callable[[*ArgumentTs], object],
            *args: *ArgumentTs,
            context: Context | None = None,
        ) -> asyncio.TimerHandle:
            is_caused = bool(flag) and delay <= SOON_S

            def fire() -> None:
                if flag and not is_caused:
                    super(PatientLoop, self).call_later(POLL_S, fire)
                else:
                    callback(*args)

            return super().call_later(delay, fire, context=context)

        def call_at(
            self,
            when: float,
            callback: Callable[[*ArgumentTs], object],
            *args: *ArgumentTs,
            context: Context | None = None,
        ) -> asyncio.TimerHandle:
            return self.call_later(max(0.0, when - self.time()), callback, *args, context=context)

    uvloop.new_event_loop = PatientLoop
