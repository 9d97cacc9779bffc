"""Showing something again and again: `samelog top`, and lists with --watch.

Invariant: on a terminal what is shown replaces what was shown; elsewhere it is written below. A
fault after the first time is shown in its place, because the next look may succeed.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import click

from samelog.cli.numbers import PERIOD_S
from samelog.cli.output import CommandT, OperatorError, printable, wants_json

HOME, REST_OF_LINE, REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = "\x1b[2J"


class _Screen(StringIO):
    """Takes what is printed for a terminal."""

    def isatty(self) -> bool:
        """What it gets goes to a terminal."""
        return True


def repeat(show: Callable[[], None], every_s: float) -> None:
    """Call `show`, which prints, every so many seconds until SIGINT. Raises what it raises at
    first.
    """
    is_terminal = sys.stdout.isatty() and not wants_json()
    try:
        text = _shown(show, is_terminal=is_terminal, is_first=True)
        click.echo(CLEAR if is_terminal else "", nl=False)
        while True:
            click.echo(in_place(text) if is_terminal else text, nl=False)
            time.sleep(every_s)
            text = _shown(show, is_terminal=is_terminal, is_first=False)
    except KeyboardInterrupt:
        return


def in_place(text: str) -> str:
    """`text` from the top left on, over what is there."""
    return HOME + text.replace("\n", REST_OF_LINE + "\n") + REST_OF_SCREEN


def _shown(show: Callable[[], None], *, is_terminal: bool, is_first: bool) -> str:
    screen = _Screen() if is_terminal else StringIO()
    try:
        with redirect_stdout(screen):
            show()
    except Exception as error:
        from samelog.cli.errors import operator_error

        told = error if isinstance(error, OperatorError) else operator_error(error)
        if is_first or told is None:
            raise
        return f"samelog: {printable(told.message, keep=chr(10))}\n"
    return screen.getvalue()


def watchable(function: CommandT) -> CommandT:
    """Gives a command that lists something --watch."""

    @click.option(
        "--watch",
        "watch_s",
        type=PERIOD_S,
        metavar="SECONDS",
        help="Show it again every so many seconds, until it is interrupted.",
    )
    @functools.wraps(function)
    def watched(*args: Any, watch_s: float | None, **kwargs: Any) -> None:
        def show() -> None:
            function(*args, **kwargs)

        show() if watch_s is None else repeat(show, watch_s)

    return watched  # type: ignore[return-value]
