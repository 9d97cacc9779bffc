"""What a running node takes over when its configuration file changes, or at SIGHUP.

Invariant: a file that cannot be used changes nothing, and is told of once; what cannot change in a
running node is told of, and counts from its next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from samelog.config.load import node_config, read_node
from samelog.config.settings import changed_settings, with_reloadable
from samelog.config.values import ConfigError
from samelog.runtime.reload import ConfigProblem, tell_changes

log = logging.getLogger(__name__)


class NodeReload:
    """The configuration of a node that runs."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError."""
        self.path = path
        self._document = read_node(path)
        self.config = node_config(self._document)
        self.on_change: Callable[[], None] = lambda: None
        self._problem = ConfigProblem(log)

    @property
    def problem(self) -> str:
        """Why the newest file does not count."""
        return self._problem.text

    def load(self) -> None:
        """Take over what has changed."""
        try:
            document = read_node(self.path)
            found = node_config(document)
        except ConfigError as error:
            if self._problem.set(str(error)):
                self.on_change()
            return
        if self._problem.set(""):
            self.on_change()
        changed = changed_settings(self._document, document)
        self._document = document
        if changed:
            self.config = with_reloadable(self.config, found)
            self.on_change()
            tell_changes(log, changed)
