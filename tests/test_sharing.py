"""How processes share the tests: the longest first, all of Spark's together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import sharing

ROOT = Path(__file__).resolve().parent.parent


def test_what_is_recorded_is_there() -> None:
    assert [share for share in sharing.recorded() if not (ROOT / share).exists()] == []


def test_spark_is_one_share_and_others_are_files() -> None:
    assert sharing.share_of("tests/spark/test_a.py::test_b") == sharing.SPARK
    assert sharing.share_of("tests/store/test_a.py::test_b[c::d]") == "tests/store/test_a.py"


class Worker:
    """Notes what it is given."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw0")

    def __init__(self, tests: list[str]) -> None:
        self.given: list[str] = []
        self._tests = tests

    def send_runtest_some(self, places: list[int]) -> None:
        self.given += [self._tests[place] for place in places]


def test_the_longest_goes_first(pytestconfig: pytest.Config, monkeypatch: Any) -> None:
    monkeypatch.setattr(sharing, "recorded", lambda: {"b.py": 9, "c.py": 20})
    tests = ["a.py::x", "b.py::x", "b.py::y", "b.py::z", "c.py::x", "c.py::y", "c.py::z"]
    worker: Any = Worker(tests)
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen"])
    shared = sharing.LongestFirst(pytestconfig, None)
    shared.add_node(worker)
    shared.add_node_collection(worker, tests)
    shared.schedule()
    assert worker.given == ["c.py::x", "c.py::y", "c.py::z"]
    shared.mark_test_complete(worker, 4)
    assert worker.given[3:] == ["b.py::x", "b.py::y", "b.py::z"]


def test_seconds_of_what_was_not_run_are_kept(monkeypatch: Any, tmp_path: Path) -> None:
    record = tmp_path / "seconds.toml"
    old = '"a.py" = 30\n"b.py" = 20\n"c.py" = 15\n[tests]\n"a.py::x" = 9\n"b.py::x" = 15\n'
    record.write_text(old, encoding="utf-8")
    monkeypatch.setattr(sharing, "RECORD", record)
    recorder = sharing.Recorder()
    for test, when, seconds in (
        ("b.py::x", "setup", 19.0),
        ("b.py::x", "call", 1.0),
        ('b.py::y["z"]', "call", 13.6),
        ("c.py::x", "call", 1.0),
    ):
        report: Any = SimpleNamespace(nodeid=test, when=when, duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert list(sharing.recorded().items()) == [("b.py", 34), ("a.py", 30)]
    assert list(sharing.recorded_tests().items()) == [('b.py::y["z"]', 14), ("a.py::x", 9)]
