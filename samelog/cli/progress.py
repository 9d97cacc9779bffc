"""Progress on a terminal: what is done of how much, how fast, and how long it will take.

Invariant: nothing is shown for what is over within SILENT_S, and nothing stays on the screen.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from samelog.cli.terminal import size_text

SILENT_S = 2.0
LOOK_S = 0.5


def amount_text(amount: float, *, is_bytes: bool) -> str:
    """An amount of bytes, or a number of things."""
    return size_text(amount) if is_bytes else f"{amount:,.0f}"


def done_text(done: float, total: float | None, speed: float | None, *, is_bytes: bool) -> str:
    """`1,200/3,000 400/s`: without the total or the rate where they are not known."""
    said = amount_text(done, is_bytes=is_bytes)
    if total is not None:
        said += f"/{amount_text(total, is_bytes=is_bytes)}"
    return said if speed is None else f"{said} {amount_text(speed, is_bytes=is_bytes)}/s"


class _DoneColumn(ProgressColumn):
    """What is done, of how much, and the rate."""

    def __init__(self, *, is_bytes: bool) -> None:
        super().__init__()
        self._is_bytes = is_bytes

    def render(self, task: Task) -> Text:
        """Its text now."""
        return Text(done_text(task.completed, task.total, task.speed, is_bytes=self._is_bytes))


class Bar:
    """One line about one piece of work. A context manager."""

    def __init__(self, label: str, total: float | None, *, is_bytes: bool) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            _DoneColumn(is_bytes=is_bytes),
            TimeRemainingColumn(elapsed_when_finished=True),
        )
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task(label, total=total)
        self._shown_at = time.monotonic() + SILENT_S
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_shown:
            self._progress.stop()

    def advance(self, amount: float) -> None:
        """So much more is done."""
        self._progress.advance(self._task, amount)
        self._show()

    def set(self, done: float, total: float | None, label: str) -> None:
        """So much of so much is done, and what is done now."""
        self._progress.update(self._task, completed=done, total=total, description=label)
        self._show()

    def _show(self) -> None:
        if not self._is_shown and time.monotonic() >= self._shown_at:
            self._is_shown = True
            self._progress.start()


class _Stderr:
    """stderr as it is at each moment: rich takes its place, to write above a bar."""

    def write(self, text: str) -> int:
        """Write a text."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Keep nothing back."""
        sys.stderr.flush()


@contextmanager
def logged_above() -> Iterator[None]:
    """Let lines of the log stay above a bar that is shown meanwhile."""
    of_root = logging.getLogger().handlers
    handlers = [each for each in of_root if type(each) is logging.StreamHandler]
    before = [handler.setStream(_Stderr()) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            handler.setStream(stream)


class Follower:
    """Shows how far work is that somebody else does: looks from a thread of its own while the
    caller waits. A context manager.
    """

    def __init__(
        self, bar: Bar, look: Callable[[], tuple[float, float | None, str]], every_s: float = LOOK_S
    ) -> None:
        """`look` gives (done, total, what is done now)."""
        self._bar, self._look, self._every_s = bar, look, every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="samelog-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(self._every_s):
            self._bar.set(*self._look())
