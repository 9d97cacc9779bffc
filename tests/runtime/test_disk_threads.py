"""The threads that wait for the disk: every call is answered once, with its own errno."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

from samelog.runtime.disk.threads import DiskCall, DiskThreads
from tests.runtime.peers import in_loop, until


def test_every_call_is_answered_with_its_own_outcome(tmp_path: Path) -> None:
    async def main() -> None:
        threads = DiskThreads(2)
        answers: dict[int, tuple[int, float]] = {}
        threads.attach(
            asyncio.get_running_loop(),
            lambda number, error, seconds: answers.update({number: (error, seconds)}),
        )
        file = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
        directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
        reader, writer = os.pipe()
        calls = [
            (DiskCall.FDATASYNC, file, 0),
            (DiskCall.FSYNC, directory, 0),
            (DiskCall.SYNCFS, directory, 0),
            (DiskCall.FDATASYNC, reader, errno.EINVAL),
            (DiskCall.FSYNC, 1 << 20, errno.EBADF),
        ] * 20
        for number, (call, descriptor, _) in enumerate(calls):
            threads.submit(number, call, descriptor)
        await until(lambda: len(answers) == len(calls))
        for number, (_, _, expected) in enumerate(calls):
            error, seconds = answers[number]
            assert error == expected
            assert 0 <= seconds < 60
        threads.close()
        for descriptor in (file, directory, reader, writer):
            os.close(descriptor)

    in_loop(main)
