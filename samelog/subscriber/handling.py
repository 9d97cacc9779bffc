"""Calls an application's handler with what comes, and does as it is asked when the handler fails.

Invariant: what a handler failed for is handed to it again, or is skipped by name, or ends the run
with the position before it; nothing of it counts as dealt with otherwise (docs/typed.md, T31).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypedDict

from samelog.format.arguments import check_choice
from samelog.subscriber.engine import Engine
from samelog.subscriber.errors import PositionLost

log = logging.getLogger(__name__)

RETRY_S, RETRY_MOST_S = 0.1, 30.0


class OnError(Enum):
    """What happens with what a handler raised an error for."""

    STOP = "stop"
    RETRY = "retry"
    SKIP = "skip"


class BatchForm(Enum):
    """As what a handler gets a batch."""

    RECORDS = "records"
    ROWS = "rows"
    ARROW = "arrow"
    PANDAS = "pandas"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets [first_offset, next_offset) that nobody dealt with, and why."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    error: Exception


class HandlingKeywords(TypedDict, total=False):
    """What `Subscriber.run` does when its handler fails."""

    on_error: str | OnError
    on_skipped: Callable[[Skipped], object] | None


class Handling:
    """One run of a handler."""

    def __init__(
        self,
        handler: Callable[[Any], object],
        engine: Engine,
        closed: threading.Event,
        options: HandlingKeywords,
    ) -> None:
        """`closed`: nothing is handed out any more."""
        self._handler, self._engine, self._closed = handler, engine, closed
        self._on_error = check_choice("on_error", options.get("on_error", OnError.STOP), OnError)
        self._on_skipped = options.get("on_skipped")

    def run(self, items: Iterable[Any], tend: Callable[[], None]) -> None:
        """Until there are no more, or it is closed. `tend` is called while the handler is to be
        called again: it stores what was dealt with before. Raises what the handler raised.
        """
        for item in items:
            if not self._deal_with(item, tend):
                return  # not to the next one: that would count this one as dealt with

    def _deal_with(self, item: Any, tend: Callable[[], None]) -> bool:
        wait_s = RETRY_S
        while not self._closed.is_set():
            try:
                self._handler(item)
            except PositionLost as lost:
                log.warning("what the handler was given is another member's: %s", lost)
                self._engine.lose()
                return True
            except Exception as error:
                if self._on_error is OnError.SKIP:
                    self._skip(error)
                    return True
                if self._on_error is OnError.STOP:
                    self._engine.rewind()
                    raise
                log.warning("the handler failed, again in %.1f s", wait_s, exc_info=True)
            else:
                return True
            tend()
            self._closed.wait(wait_s)
            wait_s = min(2 * wait_s, RETRY_MOST_S)
        return False

    def _skip(self, error: Exception) -> None:
        for (topic, partition), first, behind in self._engine.undone():
            skipped = Skipped(topic, partition, first, behind, error)
            log.warning(
                "%s-%d: offsets %d to %d are skipped, the handler failed: %r",
                *(topic, partition, first, behind - 1, error),
            )
            if self._on_skipped is not None:
                self._on_skipped(skipped)
