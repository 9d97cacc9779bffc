"""Types of the numbers on the command line.

Invariant: a number that is accepted fits into the request, the file or the timer that takes it.
"""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import click

from samelog.format.numbers import OFFSETS, PARTITIONS, VERSIONS


class Integer(click.IntRange):
    """A whole number below a power of two."""

    def __init__(self, low: int, bits: int) -> None:
        super().__init__(low, (1 << bits) - 1)
        self._bits = bits

    def _describe_range(self) -> str:
        """Return the range, short enough for a help text."""
        return f"{self.min}<=x<2^{self._bits}"


class Real(click.FloatRange):
    """A number that need not be whole. NaN, which lies within all bounds to Python, is refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fails with a usage error."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number

    def _describe_range(self) -> str:
        """Return the range, short enough for a help text."""
        low = f"{self.min:g}<{'' if self.min_open else '='}x"
        return low if self.max == inf else f"{low}<={self.max:g}"


PARTITION = Integer(0, PARTITIONS[-1].bit_length())
PARTITION_COUNT = Integer(1, PARTITIONS[-1].bit_length())
OFFSET = Integer(0, OFFSETS[-1].bit_length())
END_OFFSET = Integer(1, OFFSETS[-1].bit_length())
"""The offset after the last one of a range."""
COUNT = Integer(1, OFFSETS[-1].bit_length())
"""How many records, or rows of a table, are wanted."""
VERSION = Integer(VERSIONS[0], VERSIONS[-1].bit_length())
"""Of a schema."""
NEWEST_VERSION = Integer(0, 31)
"""Of a schema; 0: there is none."""
NUMBER = Integer(1, 32)
"""Of a task or a data group."""
DAYS = click.IntRange(1, 36_500)
"""Of a certificate's validity."""
SECONDS_MOST = 1e9
"""Thirty years: timers and sockets take it."""
TIME_S = Real(0, SECONDS_MOST)
SOME_TIME_S = Real(0, SECONDS_MOST, min_open=True)
PERIOD_S = Real(0.1, SECONDS_MOST)
GAP_S = Real(0, inf, min_open=True)
"""Of a replay, which may wait for any gap."""
SPEED = Real(0, 1e9, min_open=True)
"""How many times as fast."""
