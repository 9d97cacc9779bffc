"""Tests that take longer than their kind should are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import LONG_S, SHORT_S, USUAL_S, SlowTests, expected_s


@pytest.mark.parametrize(
    ("markers", "seconds"),
    [
        (set(), SHORT_S),
        ({"world"}, USUAL_S),
        ({"cluster", "smoke"}, USUAL_S),
        ({"cluster", "jvm"}, LONG_S),
    ],
)
def test_the_kind_of_a_test_is_what_it_needs(markers: set[str], seconds: float) -> None:
    assert expected_s(markers) == seconds


def test_slow_tests_are_listed() -> None:
    slow, written = SlowTests(), list[str]()
    for test, when, seconds, markers in (
        ("a.py::quick", "call", 4.9, {}),
        ("a.py::slow", "call", 50.4, {}),
        ("a.py::with_a_cluster", "call", 29.0, {"cluster": 1}),
        ("a.py::prepared_slowly", "setup", 50.0, {}),
        ("b.py::slower", "call", 130.0, {"jvm": 1}),
    ):
        report: Any = SimpleNamespace(nodeid=test, when=when, duration=seconds, keywords=markers)
        slow.pytest_runtest_logreport(report)
    reporter: Any = SimpleNamespace(section=written.append, write_line=written.append)
    slow.pytest_terminal_summary(reporter)
    assert written == [
        "2 slow tests",
        "130 s, expected at most 120 s: b.py::slower",
        "50 s, expected at most 5 s: a.py::slow",
    ]
