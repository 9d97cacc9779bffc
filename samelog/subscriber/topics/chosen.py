"""The topics that a subscriber reads: those that it names, and all that its patterns mean, also
those that come later.

`ed*` and `e?` are patterns, `re:` begins a regular expression (RE2) of whole names, `*` is the
whole cluster. Invariant: what a pattern means was taken up or is yet to be; a topic that was taken
up stays until it is deleted, whatever a node says that lags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from samelog.config.expressions import InvalidPattern, compiled
from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name

EXPRESSION = "re:"
SIGNS = {"*": ".*", "?": "."}
INTERNAL = "__"
"""What the names of the cluster's own topics begin with: only a pattern that does, too, means them.
"""


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """What names are meant."""

    expression: Any
    """Of RE2."""
    is_of_internal: bool

    def means(self, topic: str) -> bool:
        """Whether a topic is one of them."""
        if topic.startswith(INTERNAL) and not self.is_of_internal:
            return False
        return self.expression.fullmatch(topic) is not None


def is_pattern(text: str) -> bool:
    """Whether it is no name."""
    return text.startswith(EXPRESSION) or any(sign in text for sign in SIGNS)


def parse_pattern(text: str) -> TopicPattern:
    """Raises InvalidName."""
    if text.startswith(EXPRESSION):
        expression = text.removeprefix(EXPRESSION)
        is_of_internal = expression.startswith(INTERNAL)
    else:
        _check_glob(text)
        expression = "".join(SIGNS.get(each) or re.escape(each) for each in text)
        is_of_internal = text.startswith(INTERNAL)
    try:
        return TopicPattern(compiled(expression), is_of_internal)
    except InvalidPattern as error:
        raise InvalidName(f"{text!r} is no pattern of topics: {error}") from error


def _check_glob(text: str) -> None:
    """Whatever else is in it is in a name."""
    others = "".join(each for each in text if each not in SIGNS)
    if others.strip("."):
        check_topic_name(others)


class ChosenTopics:
    """Of one subscriber. Read by any thread; one changes it."""

    def __init__(self, names: Iterable[str], patterns: Iterable[TopicPattern] = ()) -> None:
        self.names = tuple(names)
        """Those that are read now."""
        self.patterns = tuple(patterns)
        self._named = frozenset(self.names)
        self._left: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def is_by_pattern(self, topic: str) -> bool:
        """Whether nobody named it."""
        return topic not in self._named

    def unknown(self, topics: Iterable[str]) -> list[str]:
        """Those of these that patterns mean, and that are not read yet."""
        return [
            topic
            for topic in topics
            if topic not in self.names and any(each.means(topic) for each in self.patterns)
        ]

    def add(self, topics: Iterable[str]) -> None:
        """They are read from now on."""
        self.names = tuple(dict.fromkeys((*self.names, *topics)))

    def leave(self, log_id: str) -> None:
        """Do not read this log again: its topic was deleted, and all its records were read."""
        self._left.add(log_id)

    def has_left(self, log_id: str) -> bool:
        """Whether this log is not to be read again."""
        return log_id in self._left

    def drop(self, topic: str) -> None:
        """It was deleted."""
        self.names = tuple(name for name in self.names if name != topic)


def parse_topics(texts: Iterable[str]) -> ChosenTopics:
    """Names and patterns. Raises InvalidName."""
    given = tuple(texts)
    patterns = [parse_pattern(text) for text in given if is_pattern(text)]
    return ChosenTopics((check_topic_name(n) for n in given if not is_pattern(n)), patterns)
