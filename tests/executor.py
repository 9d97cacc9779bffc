"""What pretended event loops do instead of using a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def execute(future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call `func` now; the future gets its result or its error, unless it was cancelled."""
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 - the seam: the caller gets it
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)
