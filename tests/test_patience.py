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
    slow, written = SlowTests({}, 2.0), list[str]()
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


def test_a_test_that_takes_much_longer_than_recorded_is_listed() -> None:
    slow = SlowTests({"a.py::one": 5.0, "a.py::long": 20.0}, 2.0)
    for test, seconds, markers in (
        ("a.py::one", 20.0, {"cluster": 1}),
        ("a.py::one", 21.0, {"cluster": 1}),
        ("a.py::long", 29.0, {"cluster": 1}),
        ("a.py::long", 31.0, {"cluster": 1}),
        ("a.py::half_a_second", 8.0, {"jvm": 1}),
        ("a.py::half_a_second", 9.0, {"jvm": 1}),
        ("a.py::in_this_process", 6.0, {}),
    ):
        report: Any = SimpleNamespace(nodeid=test, when="call", duration=seconds, keywords=markers)
        slow.pytest_runtest_logreport(report)
    assert [(taken, limit) for taken, _, limit in slow.found] == [
        (21.0, 20.0),
        (31.0, 30.0),
        (9.0, 8.0),
        (6.0, 5.0),
    ]
