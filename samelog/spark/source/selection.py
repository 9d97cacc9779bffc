"""Which topics and partitions a query reads, of those there are.

Invariant: a topic or partition that the query names and that does not exist is an error, never
nothing.
"""

from __future__ import annotations

import re

from samelog.spark.errors import TopicNotFound
from samelog.spark.options import TopicSelection
from samelog.spark.plan.catalogue import Catalogue, Logs, TopicState


def selected_topics(logs: Logs, selection: TopicSelection) -> Catalogue:
    """What there is of the selection now. Raises SourceError."""
    topics = selection.topics
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        topics = tuple(name for name in logs.names() if pattern.fullmatch(name))
    found = logs.topic_states(topics)
    if selection.assigned is None:
        return found
    return {topic: _only(topic, state, selection.assigned[topic]) for topic, state in found.items()}


def _only(topic: str, state: TopicState, numbers: tuple[int, ...]) -> TopicState:
    missing = sorted(set(numbers) - set(state.partitions))
    if missing:
        raise TopicNotFound(
            f"assign: topic {topic} has no partition {', '.join(map(str, missing))}; it has "
            f"{', '.join(map(str, sorted(state.partitions)))}"
        )
    return TopicState(state.topic_id, {number: state.partitions[number] for number in numbers})


def check_all_there(selection: TopicSelection, catalogue: Catalogue) -> None:
    """Every topic that is named must exist. Raises TopicNotFound."""
    missing = [topic for topic in selection.topics if topic not in catalogue]
    if missing:
        raise TopicNotFound(
            f"there is no topic {', '.join(missing)}: check the name, or make it with "
            "`samelog topic create`; a subscriber's directory has only the topics it copies"
        )
    if selection.pattern is not None and not catalogue:
        raise TopicNotFound(f"subscribePattern: no topic matches {selection.pattern!r}")
