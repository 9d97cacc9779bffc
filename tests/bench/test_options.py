"""bench/README.md is true: `python -m bench NAME --option` takes what it says."""

from __future__ import annotations

import re
import runpy
import sys

import pytest

from bench.__main__ import ALL, LONG
from tests.campaign.digest import ROOT

README = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
OPTIONS = re.compile(r"^- `(\w+)`: (?:.+\n)+?  - (.+)$", re.MULTILINE)
LISTED = dict(OPTIONS.findall(README.split("\n## ")[0]))
"""The options of each benchmark."""


def test_every_benchmark_is_described() -> None:
    assert sorted(LISTED) == sorted(ALL + LONG)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_benchmark_takes_the_options_that_are_documented(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"bench.{name}.__main__" if (ROOT / "bench" / name).is_dir() else f"bench.{name}"
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert ended.value.code == 0
    assert set(re.findall(r"--[a-z-]+", LISTED[name])) <= known
