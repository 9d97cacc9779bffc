"""The audit log holds all that was asked, however long it is."""

from __future__ import annotations

import json
import logging
import re

import pytest

from samelog.format.steps import finished
from samelog.runtime import audit
from samelog.runtime.audit import noting_change


def lines(caplog: pytest.LogCaptureFixture, asked: object, error: str | None = None) -> list[str]:
    with caplog.at_level(logging.INFO, "samelog.audit"):
        who, what = "samelog://admin/a", "Delete"
        finished(noting_change(who=who, peer="::1", what=what, asked=asked, error=error))
    return [record.getMessage() for record in caplog.records]


def asked_in(line: str) -> str:
    [found] = re.findall(r'asked=("(?:[^"\\]|\\.)*")', line)
    return str(json.loads(found))


def test_what_is_short_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    [line] = lines(caplog, {"topics": ["a"]}, "not you")
    assert asked_in(line) == '{"topics": ["a"]}'
    assert 'result="failed: not you"' in line
    assert "part" not in line


def test_nothing_hides_behind_others(caplog: pytest.LogCaptureFixture) -> None:
    topics = ["x" * 249] * 100 + ["payments"]
    found = lines(caplog, {"topics": topics})
    assert len(found) > 1
    assert all("\n" not in line and 'who="samelog://admin/a"' in line for line in found)
    assert json.loads("".join(map(asked_in, found))) == {"topics": topics}


def test_what_is_endless_is_cut_and_said_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ASKED_CHARACTERS_MAX", 50)
    [line] = lines(caplog, "x" * 50)
    assert asked_in(line) == '"' + "x" * 49
    assert line.endswith("left_out_characters=2")
