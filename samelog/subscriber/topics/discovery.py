"""Takes topics up that a subscriber's patterns mean, and leaves those that were deleted.

Invariant: a topic is read only once everything is told of it that copies it, filters it and shares
it; what is new since the start is read from its beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from samelog.admin.errors import AdminError
from samelog.config.tables.client import ClientConfig
from samelog.format.directory_files import RowsFile
from samelog.subscriber.errors import TopicsNotKnown
from samelog.subscriber.groups.sharing import Sharing
from samelog.subscriber.keeper import Keeper
from samelog.subscriber.start import StartFinder
from samelog.subscriber.topics.chosen import ChosenTopics
from samelog.subscriber.topics.watching import TopicWatch

log = logging.getLogger(__name__)


class Discovery:
    """Of one subscriber with patterns and a cluster. Implements engine.Topics."""

    def __init__(self, config: ClientConfig, topics: ChosenTopics) -> None:
        self._topics = topics
        self._watch = TopicWatch(config, topics)
        self._copier: Keeper | None = None
        self._sharing: Sharing | None = None

    def look(self, there: Iterable[str], *, follows: bool) -> None:
        """Know what there is at the start: as the cluster says, or else what is `there` in the
        directory. Raises TopicsNotKnown, if nothing is read later.
        """
        new: Iterable[str]
        try:
            new = self._watch.list_topics()
        except AdminError as error:
            if not follows:
                raise TopicsNotKnown(f"which topics there are is not known: {error}") from error
            log.warning("which topics there are is not known yet: %s", error)
            new = self._topics.unknown(there)
        finally:
            self._watch.disconnect()
        self._topics.add(new)

    def start(
        self,
        copier: Keeper,
        finder: StartFinder,
        filters: Callable[[Sequence[str]], Mapping[str, RowsFile]],
        rows: dict[str, RowsFile],
        sharing: Sharing | None,
    ) -> None:
        """Begin to take up what is new; `rows` are all filters that are in force."""
        self._copier, self._sharing = copier, sharing

        def take_up(new: Mapping[str, str]) -> None:
            rows.update(filters(tuple(new)))
            finder.note_new(new)
            self._topics.add(new)
            self._tell(new)

        self._watch.start(take_up)

    def _tell(self, new: Mapping[str, str]) -> None:
        if self._sharing is not None:
            self._sharing.follow_topics(self._topics.names)
        if self._copier is not None:
            self._copier.follow_topics(self._topics.names, new)

    def leaves(self, topic: str, log_id: str) -> bool:
        """It was deleted: whether the subscriber goes on without it."""
        if not self._topics.is_by_pattern(topic):
            return False
        log.warning(
            "topic %r was deleted; if it is created again, it is read from its start", topic
        )
        self._watch.deleted(topic, log_id)
        self._topics.drop(topic)
        self._tell({})
        return True

    def follow(self, config: ClientConfig) -> None:
        """Ask these nodes from now on."""
        self._watch.follow(config)

    def check(self) -> None:
        """Raise what keeps a topic from being read."""
        self._watch.check()

    def close(self) -> None:
        """Take up no more."""
        self._watch.close()
