"""Standard files that the caller closed (`samelog topic list >&-`).

Python has None for such a file, and the next file that a process opens would get its descriptor.

Invariant: descriptors 0 to 2 are never those of another file; a command that writes results to a
closed standard output, or reads a closed standard input, fails; diagnostics are discarded.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, NoReturn

from samelog.cli.output import OperatorError


class ClosedFile(io.TextIOBase):
    """A standard file that is closed: every use fails with a message."""

    name = "-"

    def __init__(self, what: str) -> None:
        self._what = what

    @property
    def buffer(self) -> ClosedFile:
        """Bytes fail as text does."""
        return self

    def _fail(self, *_: Any) -> NoReturn:
        raise OperatorError(f"{self._what} is closed")

    read = readline = write = __next__ = _fail


def open_closed() -> None:
    """Give each closed standard file a descriptor, and Python an object that says so."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = ClosedFile("standard input")
    if sys.stdout is None:
        sys.stdout = ClosedFile("standard output")
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
