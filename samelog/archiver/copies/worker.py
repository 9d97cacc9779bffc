"""The process that copies segments: jobs on standard input, what becomes of them on standard
output, a JSON object a line.

It is a process of its own, so that reading, compressing and waiting for a target take neither the
node's processor time nor its memory, and so that a target which never answers can be given up. It
ends with its input, and with whoever reads its output.

Invariant: every job is answered by SegmentCopied or CopyFailed, unless the process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TypeAlias

import msgspec

from samelog.archiver.copies.copying import copy_segment
from samelog.archiver.copies.manifests import CopyFault, CopyJob, Manifest, SourceFault
from samelog.archiver.copies.targets import Target, open_target
from samelog.store.disk.files import OsFileSystem

NICE = 5


class CopyAdvanced(msgspec.Struct, frozen=True, tag=True):
    """So many bytes were read, of the segment and of its copies."""

    done: int


class SegmentCopied(msgspec.Struct, frozen=True, tag=True):
    """The copies are there, and were read back."""

    manifest: Manifest


class CopyFailed(msgspec.Struct, frozen=True, tag=True):
    """They are not; `is_source`: because of the segment."""

    reason: str
    is_source: bool


WorkerMessage: TypeAlias = CopyAdvanced | SegmentCopied | CopyFailed

_decoder = msgspec.json.Decoder(CopyJob)


class CopyWorker:
    """Does one job after the other; a target is opened once."""

    def __init__(self) -> None:
        self._fs = OsFileSystem()
        self._targets: dict[str, Target] = {}
        self._done = 0

    def do(self, job: CopyJob) -> WorkerMessage:
        """Do a job. Returns the message that says how it went."""
        self._done = 0
        try:
            target = self._targets.get(job.url)
            if target is None:
                target = self._targets[job.url] = open_target(job.url)
            now_ms = int(time.time() * 1000)
            return SegmentCopied(
                copy_segment(self._fs, target, job, now_ms=now_ms, progress=self._progress)
            )
        except CopyFault as fault:
            return CopyFailed(str(fault), isinstance(fault, SourceFault))

    def _progress(self, count: int) -> None:
        self._done += count
        say(CopyAdvanced(self._done))


def say(what: WorkerMessage) -> None:
    """Send a message to the node."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Until the input ends."""
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the node, which ends this one
    worker = CopyWorker()
    try:
        for line in sys.stdin.buffer:
            say(worker.do(_decoder.decode(line)))
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
