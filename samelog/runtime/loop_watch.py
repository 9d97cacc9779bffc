"""How late an event loop is, all the time.

Invariant: looking costs a timer's turn, and nothing else.
"""

from __future__ import annotations

import asyncio

from samelog.runtime.histogram import Histogram

TICK_S = 0.05


async def watch_delay(delays: Histogram) -> None:
    """Count by how much a timer is late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        delays.observe(max(0.0, loop.time() - due))
