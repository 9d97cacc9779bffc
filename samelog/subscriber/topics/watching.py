"""Learns of topics that a subscriber's patterns mean: asks the cluster now and then which there are
that may be read.

Invariant: a topic is handed on once; one that took the name of another, which was deleted, is said
and not read.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from samelog.admin.errors import AdminError
from samelog.admin.kept import KeptConnection
from samelog.admin.requests import ListTopics
from samelog.config.tables.client import ClientConfig
from samelog.replicator.client_errors import SubscriberError, TopicDeleted
from samelog.subscriber.errors import COPY_KEPT
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
        self._take_up: Callable[[Sequence[str]], None] = topics.add
        self._connection = KeptConnection(config)
        self._ids: dict[str, str] = {}
        self._deleted: set[str] = set()
        self._is_reached = True
        self._count = 0
        self._moved = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="samelog-topics", daemon=True)

    def list_topics(self) -> list[str]:
        """Those that are meant and are new, without telling anybody. Raises AdminError."""
        found = self._connection.ask(ListTopics(), ANSWER_S).topics
        self._count = len(found)
        ids = {each.name: each.topic_id for each in found}
        self._check_names(ids)
        new = [name for name in self._topics.unknown(ids) if name not in self._deleted]
        for name in (*new, *(ids.keys() & set(self._topics))):
            self._ids.setdefault(name, ids[name])
        return new

    def _check_names(self, ids: Mapping[str, str]) -> None:
        """Whether a topic that was deleted was made anew: a node that lags lists the old one."""
        for topic in self._deleted & ids.keys():
            if ids[topic] != self._ids.get(topic):
                self.problem = TopicDeleted(topic, COPY_KEPT)

    def disconnect(self) -> None:
        """Until it asks again."""
        self._connection.close()

    def start(self, take_up: Callable[[Sequence[str]], None]) -> None:
        """Begin to ask. `take_up` is called with topics that are new, in the thread; it may raise
        NoSchema, BadFilter, SubscriberError.
        """
        self._take_up = take_up
        self._thread.start()

    def deleted(self, topic: str) -> None:
        """It is there no more."""
        self._deleted.add(topic)

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
