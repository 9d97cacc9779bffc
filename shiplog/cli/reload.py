"""What a running node takes over when its configuration file changes, or at SIGHUP.

Invariant: a file that cannot be used changes nothing, and is told of once; what cannot change in a
running node is told of, and counts from its next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from shiplog.config.document import Document, Setting, settings
from shiplog.config.load import node_config, read_node
from shiplog.config.schema import Reload
from shiplog.config.types import ConfigError, NodeConfig
from shiplog.kafka.service import KafkaService
from shiplog.runtime.log import log_event
from shiplog.sequencer.node import Node

log = logging.getLogger(__name__)


class NodeReload:
    """The configuration of a node that runs."""

    def __init__(self, path: str) -> None:
        """Raises ConfigError."""
        self.path = path
        self._document = read_node(path)
        self.config = node_config(self._document)
        self.on_change: Callable[[], None] = lambda: None
        self.problem = ""
        """Why the newest file does not count."""

    def load(self) -> None:
        """Take over what has changed."""
        try:
            document = read_node(self.path)
            found = node_config(document)
        except ConfigError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                log_event(log, logging.ERROR, "configuration not taken, kept the old", why=error)
                self.on_change()
            return
        if self.problem:
            self.problem = ""
            self.on_change()
        changed = changes(self._document, document)
        self._document = document
        if changed:
            self._take(found, changed)

    def _take(self, found: NodeConfig, changed: list[Setting]) -> None:
        self.config = with_reloadable(self.config, found)
        self.on_change()
        for reload, event in (
            (Reload.YES, "configuration reloaded"),
            (Reload.NO, "configuration changed: counts from the next start"),
            (Reload.CONTENTS, "configuration names other files: counts from the next start"),
        ):
            names = ", ".join(setting.name for setting in changed if setting.reload is reload)
            if names:
                level = logging.INFO if reload is Reload.YES else logging.WARNING
                log_event(log, level, event, keys=names)


def changes(before: Document, after: Document) -> list[Setting]:
    """What differs, as it is now; of what is gone, as it was."""
    old = {each.name: each for each in settings(before)}
    new = {each.name: each for each in settings(after)}
    return [
        new.get(name, old.get(name, each))
        for name, each in (old | new).items()
        if name not in old or name not in new or old[name].value != new[name].value
    ]


def with_reloadable(config: NodeConfig, found: NodeConfig) -> NodeConfig:
    """What can change while a node runs from `found`, the rest as it is."""
    return replace(
        config,
        grants=found.grants,
        quotas=found.quotas,
        kafka=replace(config.kafka, quotas=found.kafka.quotas),
        log_level=found.log_level,
    )


def take_over(node: Node, reload: NodeReload) -> None:
    """Let a node go by it from now on."""
    config = node.config = reload.config
    node.config_problem = reload.problem
    node.rights.grant(config.grants)
    node.quotas.limit(config.quotas)
    for service in node.services:
        if isinstance(service, KafkaService):
            service.limit(config.kafka.quotas)
