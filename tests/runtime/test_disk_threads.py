"""The threads that wait for the disk: every call is answered once, with its own errno."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

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
        numbered = [(number, call, fd) for number, (call, fd, _) in enumerate(calls)]
        for start in range(0, len(calls), 7):
            threads.submit(numbered[start : start + 7])
        await until(lambda: len(answers) == len(calls))
        for number, (_, _, expected) in enumerate(calls):
            error, seconds = answers[number]
            assert error == expected
            assert 0 <= seconds < 60
        threads.close()
        for descriptor in (file, directory, reader, writer):
            os.close(descriptor)

    in_loop(main)


def test_the_calls_of_a_round_are_answered_together(tmp_path: Path) -> None:
    """The event loop wakes once for a round."""

    async def main() -> None:
        threads = DiskThreads(2)
        loop = asyncio.get_running_loop()
        answers: list[int] = []
        turns: set[int] = set()
        turn = 0

        def answered(number: int, error: int, seconds: float) -> None:
            answers.append(number)
            turns.add(turn)

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        threads.attach(loop, answered)
        next_turn()
        files = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab"]
        for number in range(100):
            for file in files:
                os.write(file, b"x" * 4096)
            pair = [(2 * number + at, DiskCall.FDATASYNC, file) for at, file in enumerate(files)]
            threads.submit(pair)
            await until(lambda: len(answers) == 2 * (number + 1))  # noqa: B023
            assert len(turns) == number + 1
        assert answers == list(range(200))
        threads.close()
        for file in files:
            os.close(file)

    in_loop(main)


def test_a_round_has_one_to_64_calls() -> None:
    async def main() -> None:
        threads = DiskThreads(1)
        for count in (0, 65):
            with pytest.raises(ValueError, match="1 to 64"):
                threads.submit([(0, DiskCall.FDATASYNC, 0)] * count)
        threads.close()

    in_loop(main)
