"""What a node is asked about topics on one connection.

Invariant (rule sessions.31): a topic that was there once is asked for by its name alone, so that it
is not created again after its deletion, until there are bytes for the next topic of that name.
"""

from __future__ import annotations

from samelog.wire.effects import Send
from samelog.wire.messages import OpenTopic
from samelog.wire.push.effects import ClusterKnowledge, PushEffect

TOPICS_AGAIN_S = 10.0
"""A topic may get more partitions."""


class AskedTopics:
    """The topics that the client wants, and what this node was asked about them."""

    def __init__(self, cluster: ClusterKnowledge, effects: list[PushEffect]) -> None:
        self._cluster = cluster
        self._effects = effects
        self._asked: dict[str, int] = {}
        """Topic -> with how many partitions it was to be created; 0: it was not to be created."""
        self._since = 0.0

    def ask(self, now: float) -> None:
        """Ask for those that are wanted and were not asked for yet: before anything of them is
        opened, which would create them with one partition.
        """
        if not self._asked:
            self._since = now
        for topic, partitions in self._cluster.wanted_topics().items():
            if topic not in self._asked:
                self._ask(topic, 0 if self._cluster.is_known(topic) else partitions)

    def ask_again(self, now: float) -> None:
        """Ask for all of them if the answers are old."""
        if now >= self._since + TOPICS_AGAIN_S:
            self._asked.clear()
            self.ask(now)

    def create(self, topic: str) -> None:
        """There are bytes for a topic whose id is not known."""
        partitions = self._cluster.wanted_topics().get(topic, 0)
        if self._asked.get(topic) != partitions and partitions:
            self._ask(topic, partitions)

    def forget(self, topic: str) -> None:
        """What was asked may have been about a topic that was deleted since."""
        self._asked.pop(topic, None)

    def _ask(self, topic: str, partitions: int) -> None:
        self._asked[topic] = partitions
        self._effects.append(Send(OpenTopic(topic, partitions)))
