"""What every process that reads its configuration again tells of it.

Invariant: a problem is told once for as long as there is one; names of keys are told, never values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from samelog.config.schema.keys import Reload
from samelog.config.settings import Setting
from samelog.runtime.log import log_event


class Problem:
    """Why the newest configuration does not count; `text` is empty if it does."""

    def __init__(self, log: logging.Logger, text: str = "") -> None:
        self.text = text
        self._log = log
        self._told = {text}

    def set(self, text: str) -> bool:
        """Whether it is another one than before."""
        if text == self.text:
            return False
        self.text = text
        if not text:
            self._told.clear()
            log_event(self._log, logging.INFO, "configuration is taken again")
        elif text not in self._told:
            self._told.add(text)
            log_event(self._log, logging.ERROR, "configuration not taken, kept the old", why=text)
        return True


def tell_changes(log: logging.Logger, changed: Iterable[Setting]) -> None:
    """Say what was taken over, and what was not."""
    found = tuple(changed)
    for reload, event in (
        (Reload.YES, "configuration reloaded"),
        (Reload.NO, "configuration changed: counts from the next start"),
        (Reload.CONTENTS, "configuration names other files: counts from the next start"),
    ):
        names = ", ".join(setting.name for setting in found if setting.key.reload is reload)
        if names:
            level = logging.INFO if reload is Reload.YES else logging.WARNING
            log_event(log, level, event, keys=names)
