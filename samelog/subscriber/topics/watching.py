"""Learns of topics that a subscriber's patterns mean: asks the cluster now and then which there are
that may be read.

Invariant: a log is handed on once. A topic that took the name of another, which was deleted, is
another one: it is handed on, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from samelog.admin.errors import AdminError
from samelog.admin.kept import KeptConnection
from samelog.admin.requests import ListTopics
from samelog.config.tables.client import ClientConfig
from samelog.replicator.client_errors import SubscriberError
from samelog.subscriber.topics.chosen import ChosenTopics
from samelog.typed.filters.operands import BadFilter
from samelog.typed.schema import NoSchema

log = logging.getLogger(__name__)

LOOK_S = 2.0
PER_TOPIC_S = 0.002
"""A node lists all topics each time: of many it is asked less often."""
ANSWER_S = 10.0


class TopicWatch:
    """Of one subscriber with patterns."""

    def __init__(self, config: ClientConfig, topics: ChosenTopics) -> None:
        self.problem: Exception | None = None
        """What keeps a topic that is meant from being read."""
        self._topics = topics
        self._take_up: Callable[[Mapping[str, str]], None] = topics.add
        self._connection = KeptConnection(config)
        self._deleted: dict[str, set[str]] = {}
        """By topic, the logs that were left because it was deleted: a node that lags lists them."""
        self._is_reached = True
        self._count = 0
        self._moved = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="samelog-topics", daemon=True)

    def list_topics(self) -> dict[str, str]:
        """Return the logs of topics that the patterns match and that are new, by topic. Raises
        AdminError.
        """
        found = self._connection.ask(ListTopics(), ANSWER_S).topics
        self._count = len(found)
        logs = {each.name: each.topic_id for each in found}
        new = self._topics.unknown(logs)
        return {name: logs[name] for name in new if logs[name] not in self._deleted.get(name, ())}

    def disconnect(self) -> None:
        """Until it asks again."""
        self._connection.close()

    def start(self, take_up: Callable[[Mapping[str, str]], None]) -> None:
        """Begin to ask. `take_up` is called with the logs of topics that are new, in the thread; it
        may raise NoSchema, BadFilter, SubscriberError.
        """
        self._take_up = take_up
        self._thread.start()

    def deleted(self, topic: str, log_id: str) -> None:
        """Do not hand this log of a topic on again."""
        self._deleted.setdefault(topic, set()).add(log_id)

    def follow(self, config: ClientConfig) -> None:
        """Ask these nodes from now on."""
        self._connection.config = config

    def check(self) -> None:
        """Raise what keeps a topic from being read."""
        if self.problem is not None:
            raise self.problem

    def close(self) -> None:
        """Ask no more."""
        with self._moved:
            self._is_closed = True
            self._moved.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            self._look()
        self._connection.close()

    def _wait(self) -> bool:
        with self._moved:
            if not self._is_closed:
                self._moved.wait(LOOK_S + PER_TOPIC_S * self._count)
            return not self._is_closed

    def _look(self) -> None:
        try:
            new = self.list_topics()
        except AdminError as error:
            if self._is_reached:
                log.warning("which topics there are is not known: %s", error)
            self._is_reached = False
            return
        self._is_reached = True
        if not new:
            return
        log.info("topics are taken up: %s", ", ".join(new))
        try:
            self._take_up(new)
        except (NoSchema, BadFilter, SubscriberError) as error:
            self.problem = error
