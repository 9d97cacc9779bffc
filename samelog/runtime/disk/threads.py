"""Threads that sync files for an event loop, without holding up the interpreter.

Invariant: each request is answered once, in the loop's thread; after `close` nothing is.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from samelog.runtime.disk._disk_threads import serve, submit

T = TypeVar("T")

_ANSWER = struct.Struct("=qqq")
_ANSWERS_BYTES = _ANSWER.size * 64


class InThread(Protocol):
    """Runs what may wait for a disk, without holding up the event loop."""

    def __call__(self, work: Callable[..., T], /, *arguments: Any) -> Awaitable[T]:
        """What `work(*arguments)` returns or raises."""


class DiskCall(IntEnum):
    """The system calls that sync a descriptor."""

    FDATASYNC = 0
    FSYNC = 1
    SYNCFS = 2


class DiskThreads:
    """Some threads behind two pipes. The descriptor of a call must stay open until its answer."""

    def __init__(self, count: int) -> None:
        """Raises OSError when there are too many open files."""
        requests, self._requests = os.pipe2(os.O_CLOEXEC)
        self._answers, answers = os.pipe2(os.O_CLOEXEC)
        self._ends = [requests, answers]
        self._threads = [
            threading.Thread(target=serve, args=(requests, answers), name="disk", daemon=True)
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(
        self, loop: asyncio.AbstractEventLoop, on_answer: Callable[[int, int, float], None]
    ) -> None:
        """Have `loop` call `on_answer(number, errno, seconds)` for each call that is done: what it
        was called, 0 or why it failed, and how long it took.
        """
        self._loop = loop

        def ready() -> None:
            data = os.read(self._answers, _ANSWERS_BYTES)
            for number, error, nanoseconds in _ANSWER.iter_unpack(data):
                on_answer(number, error, nanoseconds / 1e9)

        loop.add_reader(self._answers, ready)

    def submit(self, calls: Sequence[tuple[int, DiskCall, int]]) -> None:
        """Have threads make these calls, (number, call, descriptor) each, side by side; all are
        answered together when the last one is done. At most 64; at most some thousand may be under
        way in all.
        """
        submit(self._requests, calls)

    def close(self) -> None:
        """End the threads; nothing may be under way."""
        if self._loop is not None:
            self._loop.remove_reader(self._answers)
        os.close(self._requests)
        for thread in self._threads:
            thread.join()
        for descriptor in (*self._ends, self._answers):
            os.close(descriptor)
