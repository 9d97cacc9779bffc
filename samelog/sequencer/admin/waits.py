"""Waits until data groups have done what group 0 has decided.

Invariant: what is returned as left was still to be done at the last look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sized
from typing import TypeVar

LeftT = TypeVar("LeftT", bound=Sized)


async def until_settled(
    look: Callable[[], LeftT], moved: Callable[[], Awaitable[None]], over_at: float
) -> LeftT:
    """Look again after each move until nothing is left, or until `over_at`, by the clock of the
    event loop. Return the rest. `moved` returns after the next move.
    """
    while left := look():
        try:
            async with asyncio.timeout_at(over_at):
                await moved()
        except TimeoutError:
            return left
    return left
