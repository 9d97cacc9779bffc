"""The ratchet measures what it says, and its record can only shrink."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests import ratchet
from tests.ratchet import Record


def test_nothing_exceeds_its_limit_by_more_than_is_recorded() -> None:
    """What was only renamed has its new name recorded by `python -m tests.ratchet`."""
    assert ratchet.all_exceeded(ratchet.recorded()) == []


def test_the_record_is_exact() -> None:
    """Nothing is recorded that is not needed any more: run `python -m tests.ratchet`."""
    assert ratchet.stale(ratchet.recorded()) == []


def test_smaller_numbers_are_recorded_and_larger_ones_are_refused() -> None:
    before = {"a.f": 12, "b.g": 11}
    assert ratchet.growing({"a.f": 12}, before) == []
    assert ratchet.growing({"a.renamed": 12, "b.g": 11}, before) == []
    assert ratchet.growing({"a.f": 13, "b.g": 11}, before) == ["a.f: 13, 12 allowed"]
    assert ratchet.growing({"a.f": 12, "b.g": 11, "c.h": 11}, before) == ["c.h: 11"]


def test_what_has_grown_is_named_and_not_recorded() -> None:
    record = ratchet.recorded()
    name = next(iter(record.exceptions["complexity"]))
    without = {key: value for key, value in record.exceptions["complexity"].items() if key != name}
    with pytest.raises(ValueError, match=f"complexity: {name}: "):
        ratchet.tightened(replace(record, exceptions={**record.exceptions, "complexity": without}))


def test_a_package_above_its_budget_is_refused_and_so_is_one_without_a_budget() -> None:
    assert ratchet.over_budget({"wire": 120}, {"wire": 120}) == []
    assert ratchet.over_budget({"new": 1, "wire": 1121}, {"wire": 1120}) == [
        "budget: new has 1 lines, 1 above its budget of 0",
        "budget: wire has 1,121 lines, 1 above its budget of 1,120",
    ]
    budget = dict.fromkeys(ratchet.lines_per_package(), 10**6)
    found = ratchet.all_exceeded(replace(ratchet.recorded(), budget={**budget, "wire": 1}))
    assert [text for text in found if text.startswith("budget: ")] == [
        text for text in found if text.startswith("budget: wire has ")
    ]
    assert "budget: wire has " in "\n".join(found)


def test_recording_never_changes_a_budget() -> None:
    exceptions = {rule: ratchet.measured(rule) for rule in ratchet.RULES}
    record = Record(exceptions, budget={"wire": 1, "store": 10**6})
    assert ratchet.tightened(record).budget == record.budget


def test_the_record_is_written_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    record = replace(ratchet.recorded(), budget={"wire": 100}, coverage={"wire": 90})
    text = ratchet.written(record)
    assert "\n[hops]\n" in text
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_options: text)
    assert ratchet.recorded() == record


def test_words_may_become_fewer_without_a_record() -> None:
    exceptions: dict[str, dict[str, int]] = {rule: {} for rule in ratchet.RULES}
    exceptions["house_words"] = {"wire": 10**6}
    assert ratchet.stale(Record(exceptions)) == []


def test_the_names_that_are_measured_exist_and_so_do_their_reasons() -> None:
    record = ratchet.recorded()
    for reason in record.reasons:
        rule, _, name = reason.partition(".")
        assert name in record.exceptions[rule]
    assert set(record.coverage) == set(ratchet.lines_per_package()), "each package has a floor"
    assert all(90 <= floor <= 100 for floor in record.coverage.values()), "per cent"


SAMPLE = """
class Value:
    a: int
    b: int

    def __init__(self, x: int, *, y: int) -> None:
        self.a, self.c = x, y
        self.d = y

    def go(self, items: list[int]) -> int:
        if items and (self.a or self.b):
            return 1
        try:
            return [x for x in items if x > 1][0]
        except IndexError:
            return 2 if items else 3
"""


def test_fields_parameters_and_ways_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "samelog").mkdir()
    (tmp_path / "samelog" / "value.py").write_text(SAMPLE)
    monkeypatch.setattr(ratchet, "ROOT", tmp_path)
    monkeypatch.setattr(ratchet, "product", cache(ratchet.product.__wrapped__))
    assert ratchet.fields_per_class() == {"value.Value": 4}
    assert ratchet.parameters() == {"value.Value.__init__": 2, "value.Value.go": 1}
    assert ratchet.complexity() == {"value.Value.__init__": 1, "value.Value.go": 8}
    assert ratchet.duplicate_type_names() == {"Value": 1}


@pytest.mark.parametrize("suffix", ["py", "pyi", "pyx", "pxi", "c", "h", "js", "css"])
def test_lines_of_every_language_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    (tmp_path / "samelog" / "wire").mkdir(parents=True)
    (tmp_path / "samelog" / "wire" / f"own.{suffix}").write_text("1\n2\n")
    (tmp_path / "samelog" / "top.py").write_text("1\n")
    (tmp_path / "samelog" / "wire" / "kernel.pyx").write_text("1\n")
    (tmp_path / "samelog" / "wire" / "kernel.c").write_text("generated\n" * 100)
    monkeypatch.setattr(ratchet, "ROOT", tmp_path)
    assert ratchet.lines_per_package() == {"samelog": 1, "wire": 3}
