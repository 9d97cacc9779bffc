"""What an authenticated identity may do.

Invariant: whatever no grant allows is denied; a session right alone never gives a topic, nor the
other way round, and rights of different grants to the same identity add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samelog.config.tables.node import Grant
from samelog.format.names import EVENTS_TOPIC, is_mirror_session

NODE_PREFIX = "samelog://node/"
USER_PREFIX = "samelog://user/"
"""Of whoever has authenticated with a name and a password."""
ANONYMOUS = USER_PREFIX + "anonymous"
"""Whoever comes over a listener that asks for neither certificate nor password."""


DECIDED_MAX = 10_000


def matches(pattern: str, text: str) -> bool:
    """Whether `text` is `pattern`, or begins with what stands before the pattern's final `*`."""
    if pattern.endswith("*"):
        return text.startswith(pattern[:-1])
    return text == pattern


class Rights:
    """Answers by grants, and by the members of the cluster for what only peers may do."""

    def __init__(self, grants: Iterable[Grant], peers: Iterable[str]) -> None:
        self._grants = tuple(grants)
        self._peers = frozenset(NODE_PREFIX + name for name in peers)
        self._decided: dict[tuple[str, ...], bool] = {}
        """What was asked before about topics; identities ask the same for every request."""

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Those in force."""
        return self._grants

    def grant(self, grants: Iterable[Grant]) -> None:
        """Replace the grants."""
        self._grants = tuple(grants)
        self._decided.clear()

    def set_peers(self, identities: Iterable[str]) -> None:
        """Replace the identities of the cluster's members."""
        self._peers = frozenset(identities)

    def may_push(self, identity: str, session: str) -> bool:
        """Whether it may be the publisher of this session."""
        if is_mirror_session(session):
            return any(grant.mirror for grant in self._of(identity))
        return any(_any(grant.publish_sessions, session) for grant in self._of(identity))

    def may_publish(self, identity: str, session: str, topic: str) -> bool:
        """Whether it may write to this topic in this session: one grant must allow both."""
        if topic == EVENTS_TOPIC:
            return False
        decided = self._decided.get((identity, session, topic))
        if decided is not None:
            return decided
        if is_mirror_session(session):
            return self.may_mirror(identity, topic)
        may = any(
            _any(grant.publish_sessions, session) and _any(grant.publish_topics, topic)
            for grant in self._of(identity)
        )
        return self._decide((identity, session, topic), may=may)

    def may_write(self, identity: str) -> bool:
        """Whether it may write to any topic in any session."""
        return any(grant.publish_sessions and grant.publish_topics for grant in self._of(identity))

    def may_mirror(self, identity: str, topic: str) -> bool:
        """Whether it may make this topic as a mirror, and bring its records."""
        return any(_any(grant.mirror, topic) for grant in self._of(identity))

    def may_use_dedup_id(self, identity: str, dedup_id: str) -> bool:
        """Whether its runs may carry this dedup id."""
        return any(_any(grant.publish_dedup_ids, dedup_id) for grant in self._of(identity))

    def may_subscribe(self, identity: str, topic: str) -> bool:
        """Whether it may read this topic's merged log."""
        if identity in self._peers:
            return True
        decided = self._decided.get((identity, topic))
        if decided is not None:
            return decided
        may = any(_any(grant.subscribe_topics, topic) for grant in self._of(identity))
        return self._decide((identity, topic), may=may)

    def may_see(self, identity: str, topic: str) -> bool:
        """Whether it may know what this topic's values are: it reads or writes some."""
        if identity in self._peers:
            return True
        return any(
            grant.admin or _any((*grant.subscribe_topics, *grant.publish_topics), topic)
            for grant in self._of(identity)
        )

    def _decide(self, question: tuple[str, ...], *, may: bool) -> bool:
        """Remember an answer, until grants change or there are too many."""
        if len(self._decided) >= DECIDED_MAX:
            self._decided.clear()
        self._decided[question] = may
        return may

    def may_use_group(self, identity: str, group: str) -> bool:
        """Whether it may be a member of a consumer group, commit to it, and look at it."""
        return any(
            grant.admin or (grant.subscribe_topics and _any(grant.subscribe_groups, group))
            for grant in self._of(identity)
        )

    def is_admin(self, identity: str) -> bool:
        """Whether it may create and delete topics and see the cluster's state."""
        return any(grant.admin for grant in self._of(identity))

    def is_peer(self, identity: str) -> bool:
        """Whether it is a member of the cluster."""
        return identity in self._peers

    def _of(self, identity: str) -> Iterator[Grant]:
        return (grant for grant in self._grants if matches(grant.identity, identity))


def _any(patterns: Iterable[str], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)
