"""Which topics are mirrored, and what comes along with them."""

from __future__ import annotations

import pytest

from samelog.mirror.choosing import copied_settings, is_chosen, matches, mirror_name


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("ed", "ed", True),
        ("ed", "eda", False),
        ("ed*", "eda", True),
        ("re:e.*", "eda", True),
        ("re:e", "eda", False),
    ],
)
def test_patterns_are_names_beginnings_and_expressions(
    pattern: str, name: str, *, fits: bool
) -> None:
    assert matches(pattern, name) is fits


def test_mirrors_and_internal_topics_are_chosen_by_their_names_alone() -> None:
    assert is_chosen(["*"], "a", is_mirror=False)
    assert not is_chosen(["*", "re:.*"], "b.a", is_mirror=True)
    assert is_chosen(["b.a"], "b.a", is_mirror=True)
    assert not is_chosen(["*"], "__events", is_mirror=False)
    assert is_chosen(["__events"], "__events", is_mirror=False)


def test_settings_that_would_harm_stay_where_they_are() -> None:
    settings = {"retention.ms": "60000", "max.message.bytes": "500", "segment.bytes": "1"}
    assert copied_settings(settings) == {"max.message.bytes": "500"}
    assert mirror_name("eu.{topic}", "a") == "eu.a"
