"""Ids of logs that readers ask for and this node does not know: deleted, or recreated just now.

A node that lags has not heard of the newest logs, while a reader that was at another node has. So
nobody is told that a log is gone before this node is as current as the cluster was when it was
asked.

Invariant: what is called gone was not there when everything committed before the question was
applied here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

REMEMBERED = 1000


class UnknownLogs:
    """What one node knows of logs that it does not have."""

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`catch_up` returns when this node is current; it raises TimeoutError without a leader."""
        self._catch_up = catch_up
        self._spawn = spawn
        self._gone: set[str] = set()
        self._asking: set[str] = set()

    def is_gone(self, log_id: str) -> bool:
        """Whether that is certain; if it is not, the cluster is asked, for the next time."""
        if log_id in self._gone:
            return True
        if log_id not in self._asking:
            self._asking.add(log_id)
            self._spawn(self._ask(log_id))
        return False

    async def _ask(self, log_id: str) -> None:
        try:
            await self._catch_up()
        except TimeoutError:
            return
        finally:
            self._asking.discard(log_id)
        if len(self._gone) >= REMEMBERED:
            self._gone.clear()
        self._gone.add(log_id)
