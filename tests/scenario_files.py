"""Scenarios: scripts of commands, each followed by everything that happens because of it.

A file is a sequence of blocks, separated by empty lines: comments (#), one or more commands,
`----`, the expected trace. Run pytest with --rewrite to record traces again, and review the diff.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.executor import execute


class Script(Protocol):
    """Carries out commands."""

    def run(self, line: str) -> list[str]:
        """One command; the trace it leaves."""


def files(beside: str, pattern: str = "*.txt") -> list[Path]:
    """The scenarios in the folder `scenarios` beside a test module."""
    return sorted((Path(beside).parent / "scenarios").glob(pattern))


def check(path: Path, script: Script, request: pytest.FixtureRequest) -> None:
    """Run a scenario; fail, or rewrite it, if something else happens than is recorded."""
    recorded = path.read_text()
    blocks = []
    for block in recorded.strip().split("\n\n"):
        head = block.partition("\n----")[0]
        commands = [line for line in head.splitlines() if not line.startswith("#")]
        trace = [line for command in commands for line in script.run(command)]
        blocks.append("\n".join([head, "----", *trace] if commands else [head]))
    happened = "\n\n".join(blocks) + "\n"
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened)
    assert happened == recorded


class Commands:
    """A script whose command `a-b X Y` is its method `do_a_b(X, Y)`; methods add to `trace`."""

    def __init__(self) -> None:
        self.trace: list[str] = []

    def run(self, line: str) -> list[str]:
        """One command; the trace it leaves."""
        name, *arguments = shlex.split(line)
        self.trace.clear()
        command: Callable[..., Any] = getattr(self, "do_" + name.replace("-", "_"))
        command(*arguments)
        self.settle()
        return list(self.trace)

    def settle(self) -> None:
        """Let happen whatever happens without time passing."""


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop in which time passes only when it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do it in the next turn."""
        future = self.create_future()
        self.call_soon(execute, future, func, args)
        return future


class LoopCommands(Commands):
    """Commands that are run within an event loop of their own, in which time stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = ManualLoop()

    def run(self, line: str) -> list[str]:
        """One command; the trace it leaves."""

        async def inside() -> list[str]:
            return Commands.run(self, line)

        trace = self.loop.run_until_complete(inside())
        self.loop.run_until_complete(self._settle())
        return [*trace, *self.trace[len(trace) :]]

    async def _settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    def do_wait(self, seconds: str) -> None:
        """`wait S`: time passes."""
        self.loop.now += float(seconds)

    def close(self) -> None:
        """The scenario is over."""
        self.loop.close()
