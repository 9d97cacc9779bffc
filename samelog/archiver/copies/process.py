"""Has segments copied by a process of its own, which is started when there is something to copy.

Invariant: a copy counts as made only when that process says that it has read it back; one that says
nothing for long is ended, and nothing was copied.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from samelog.archiver.copies.manifests import CopyFault, CopyJob, Manifest, SourceFault
from samelog.archiver.copies.worker import (
    CopyAdvanced,
    CopyFailed,
    SegmentCopied,
    WorkerMessage,
)

STALL_S = 120.0
"""Without a word: no target needs that long for a few megabytes, and if it does it is given up."""
END_S = 5.0

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[WorkerMessage] = msgspec.json.Decoder(WorkerMessage)


class SegmentCopier(Protocol):
    """Copies segments, one at a time."""

    async def copy(self, job: CopyJob, progress: Callable[[int], None]) -> Manifest:
        """Copy one; `progress` is told how many bytes were read so far. Raises CopyFault,
        SourceFault. When it is cancelled, nothing goes on.
        """

    async def close(self) -> None:
        """Let go of everything until the next copy."""


class ProcessCopier:
    """Copies segments in a process of its own."""

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        self._stall_s = stall_s
        self._process: Process | None = None
        self._killed: list[Process] = []
        """Those that are not known to be gone."""

    async def copy(self, job: CopyJob, progress: Callable[[int], None]) -> Manifest:
        """Copy one segment."""
        is_over = False
        try:
            said = await self._ask(job, progress)
            is_over = True
        finally:
            if not is_over:
                self._kill()
        if isinstance(said, SegmentCopied):
            return said.manifest
        raise SourceFault(said.reason) if said.is_source else CopyFault(said.reason)

    async def _ask(
        self, job: CopyJob, progress: Callable[[int], None]
    ) -> SegmentCopied | CopyFailed:
        try:
            process = self._process or await self._start()
            if process.stdin is None or process.stdout is None:
                raise CopyFault("the process that copies has no pipes")
            process.stdin.write(_encoder.encode(job) + b"\n")
            while line := await self._line(process.stdout):
                said = _decoder.decode(line)
                if not isinstance(said, CopyAdvanced):
                    return said
                progress(said.done)
            code = await process.wait()
            raise CopyFault(f"the process that copies ended with code {code}: see the node's log")
        except TimeoutError as error:
            raise CopyFault(f"{job.url} has not answered for {self._stall_s:g} s") from error
        except (OSError, msgspec.DecodeError) as error:
            raise CopyFault(f"the process that copies: {error}") from error

    async def _line(self, answers: asyncio.StreamReader) -> bytes:
        async with asyncio.timeout(self._stall_s):
            return await answers.readline()

    async def _start(self) -> Process:
        command = (sys.executable, "-m", "samelog.archiver.copies.worker")
        self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            self._killed = [each for each in self._killed if each.returncode is None]
            self._killed.append(process)

    async def close(self) -> None:
        """End the process, which gives its memory back."""
        if self._process is not None:
            await self._end(self._process)
        killed, self._killed = self._killed, []
        for process in killed:
            await process.wait()

    async def _end(self, process: Process) -> None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
            self._process = None
        except TimeoutError:
            self._kill()
