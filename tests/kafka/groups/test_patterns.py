"""Topics by regular expression: what is taken, what it costs, when it is looked at again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.expressions import InvalidPattern, compiled
from samelog.format.steps import finished
from samelog.kafka.groups.patterns import TopicPatterns
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State


def state_of(*names: str) -> State:
    state = State()
    for name in names:
        topic = state.topics.by_id[name] = Topic(name, name, {}, 0, [])
        state.topics.by_name[name] = name
        state.add_partitions(topic, 1)
    return state


def test_an_expression_means_whole_names() -> None:
    patterns = TopicPatterns(lambda: state_of("flights", "flights-2", "all-flights"))
    assert finished(patterns.topics("flights.*")) == ["flights", "flights-2"]
    assert finished(patterns.topics("^(all-)?flights$")) == ["all-flights", "flights"]
    assert finished(patterns.topics("")) == []


def test_topics_that_come_and_go_count_at_once() -> None:
    state = state_of("a1")
    patterns = TopicPatterns(lambda: state)
    assert finished(patterns.topics("a.")) == ["a1"]
    state.topics.by_name["a2"] = "a2"
    state.add_partitions(Topic("a2", "a2", {}, 0, []), 1)
    assert finished(patterns.topics("a.")) == ["a1", "a2"]
    del state.topics.by_name["a1"]
    assert finished(patterns.topics("a.")) == ["a2"]


@pytest.mark.parametrize("pattern", ["(", "[", "(?=a)", r"(a)\1", "a" * 1025, "\ud800", "(?P<"])
def test_what_is_no_expression_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"\w"):
        compiled(pattern)


def test_expressions_that_grow_are_bounded() -> None:
    with pytest.raises(InvalidPattern):
        compiled("((((((a{0,100}){0,100}){0,100}){0,100}){0,100}){0,100})")


def test_an_expression_made_to_run_for_ever_does_not() -> None:
    patterns = TopicPatterns(lambda: state_of("a" * 249))
    assert finished(patterns.topics("(a*)*" * 200 + "b")) == []


@given(st.text(max_size=60))
def test_any_text_is_taken_or_refused(pattern: str) -> None:
    try:
        found = finished(TopicPatterns(lambda: state_of("a", "b.c")).topics(pattern))
    except InvalidPattern:
        return
    assert set(found) <= {"a", "b.c"}
