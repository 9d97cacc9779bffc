"""Asks the process that checks records, which is started when there is something to check.

A thread waits for its answers, so that the event loop never does; sessions have it by turns, and
who made it end waits longest. Invariant: a batch counts as checked only when that process has said
so; one that ended, or says nothing for long, is replaced, and asked again.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import structs

from samelog.runtime.fair_thread import FairThread
from samelog.sequencer.judging.worker import (
    LENGTH,
    TOPICS_KEPT,
    JudgeAnswer,
    JudgeTask,
    frame,
)
from samelog.typed.judging import PLAIN, BatchMisfits, Terms

STALL_S = 60.0
"""Of a process that was given something: no batch takes that long."""
TRIES = 3
READ_BYTES = 1 << 18
COMMAND = (sys.executable, "-m", "samelog.sequencer.judging.worker")

_decoder = msgspec.msgpack.Decoder(JudgeAnswer)


class CannotCheck(Exception):
    """Nothing can be said of some batches now; the message says why."""

    def __init__(self, why: str, *, is_for_long: bool) -> None:
        """`is_for_long`: something is not installed on this node."""
        super().__init__(why)
        self.is_for_long = is_for_long


class WorkerGone(Exception):
    """The process has ended, or has to."""


class BatchJudge(Protocol):
    """Says what of batches does not fit."""

    async def judge(
        self,
        who: Hashable,
        key: str,
        texts: Sequence[str],
        batches: Sequence[bytes],
        *,
        terms: Terms = PLAIN,
    ) -> list[BatchMisfits]:
        """By batch. `who`: whose they are; `key`: of these versions of a topic's schema. Raises
        CannotCheck.
        """

    async def close(self) -> None:
        """Let go of everything."""


class ProcessJudge:
    """One node's. Implements BatchJudge."""

    def __init__(self, *, stall_s: float = STALL_S, command: Sequence[str] = COMMAND) -> None:
        self._stall_s = stall_s
        self._command = command
        self._thread = FairThread("samelog-schemas")
        self._worker: _Worker | None = None
        self._is_closed = self._is_used = False
        self.started = 0
        """How many processes there were."""

    async def judge(
        self,
        who: Hashable,
        key: str,
        texts: Sequence[str],
        batches: Sequence[bytes],
        *,
        terms: Terms = PLAIN,
    ) -> list[BatchMisfits]:
        """See BatchJudge."""
        self._is_used = True
        task = JudgeTask(key, [*texts], [*batches], terms)
        answer = await self._thread.run(who, lambda: self._ask(task), _is_bad)
        if answer.problem:
            raise CannotCheck(answer.problem, is_for_long=answer.is_for_long)
        return answer.misfits

    def _ask(self, task: JudgeTask) -> JudgeAnswer:
        """In the thread."""
        why = "this node stops"
        for _ in range(TRIES):
            if self._is_closed:
                break
            try:
                if self._worker is None:
                    self._worker = _Worker(self._command)
                    self.started += 1
                return self._worker.ask(task, self._stall_s)
            except (WorkerGone, OSError, msgspec.MsgspecError) as error:
                why = f"the process that checks records has ended: {error}"
                self._end()
        return JudgeAnswer(problem=why)

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    async def close(self) -> None:
        """End the process; what waits for it hears that nothing can be said."""
        self._is_closed = True
        worker = self._worker
        if worker is not None:
            worker.kill()
        if self._is_used:  # the pipes are the thread's
            await self._thread.run(self, self._end, lambda _: False)


def _is_bad(answer: JudgeAnswer) -> bool:
    return bool(answer.problem)


class _Worker:
    """A process that was started."""

    def __init__(self, command: Sequence[str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)
        if self._process.stdin is None or self._process.stdout is None:
            raise WorkerGone("it has no pipes")
        self._tasks, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._tasks, False)
        os.set_blocking(self._answers, False)
        self._known: set[str] = set()

    def ask(self, task: JudgeTask, stall_s: float) -> JudgeAnswer:
        """Raises WorkerGone, OSError."""
        key, is_known = task.key, task.key in self._known
        deadline = time.monotonic() + stall_s
        self._write(frame(structs.replace(task, texts=None) if is_known else task), deadline)
        size: int = LENGTH.unpack(self._read(LENGTH.size, deadline))[0]
        answer = _decoder.decode(self._read(size, deadline))
        if not is_known:
            if len(self._known) >= TOPICS_KEPT:
                self._known.clear()
            self._known.add(key)
        return answer

    def _write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            self._wait(self._tasks, select.POLLOUT, deadline)
            left = left[os.write(self._tasks, left) :]

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(self._answers, select.POLLIN, deadline)
            piece = os.read(self._answers, min(READ_BYTES, size - len(data)))
            if not piece:
                raise WorkerGone(f"with code {self._process.poll()}")
            data += piece
        return bytes(data)

    def _wait(self, pipe: int, wanted: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, wanted)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise WorkerGone("it said nothing for long")

    def kill(self) -> None:
        """Who asks it hears so."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def end(self) -> None:
        """Kill it, and let go of it."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
