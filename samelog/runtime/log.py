"""Structured log lines: an event and fields, one line each, whatever the fields hold.

Names and texts in fields come from peers. They are written as JSON strings in ASCII, cut to a
bounded length, so that no peer can forge a line; and events that a peer can cause at will are
limited in rate.

Invariant: one call writes at most one line, and only printable ASCII.
"""

from __future__ import annotations

import json
import logging

from samelog.config.tables.shared import LogLevel
from samelog.runtime.clock import Clock

FIELD_LIMIT_CHARACTERS = 200
AUDIT = "samelog.audit"
"""The logger of changes."""
LINE = "%(asctime)s %(levelname)s %(name)s %(message)s"


class Whole(str):
    """A text that is logged in full, because its length is limited already."""

    __slots__ = ()


def format_event(event: str, **fields: object) -> str:
    """The line's text: `event key="value" number=3`."""
    return " ".join([event, *(f"{key}={_shown(value)}" for key, value in fields.items())])


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Write one structured line."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", format_event(event, **fields))


def start_log(level: LogLevel) -> None:
    """Write lines to stderr; again: which lines from now on. The audit log is written always."""
    logging.basicConfig(format=LINE)
    logging.getLogger().setLevel(level.name)
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # a line for every probe


class RateLimitedLog:
    """Lines that a peer can cause at will: `burst` per `interval_s` and event, the rest counted."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, *, burst: int = 10, interval_s: float = 10.0
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._burst = burst
        self._interval_s = interval_s
        self._windows: dict[str, tuple[float, int]] = {}

    def event(
        self, level: int, event: str, *, fault: BaseException | None = None, **fields: object
    ) -> None:
        """Write one line, or count it; the first line after a burst says how many were left out.
        `fault`: an error whose traceback follows the line.
        """
        now = self._clock.now()
        started, count = self._windows.get(event, (now, 0))
        if now - started >= self._interval_s:
            if count > self._burst:
                fields["suppressed"] = count - self._burst
            started, count = now, 0
        self._windows[event] = (started, count + 1)
        if count < self._burst:
            self._logger.log(level, "%s", format_event(event, **fields), exc_info=fault)


def _shown(value: object) -> str:
    if isinstance(value, int | float | None):
        return str(value)
    text = str(value)
    if len(text) > FIELD_LIMIT_CHARACTERS and not isinstance(value, Whole):
        text = text[: FIELD_LIMIT_CHARACTERS - 3] + "..."
    return json.dumps(text)
