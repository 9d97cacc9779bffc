"""The console's runbooks are those of docs/operations.md. `make docs` rewrites them."""

from __future__ import annotations

import json
import re
from importlib.resources import files

from samelog.http.console import alarms
from tests.http.test_docs import DOCS

RUNBOOKS = DOCS.parent / "samelog" / "http" / "console" / "files" / "runbooks.json"
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def runbooks() -> str:
    """Of each alert what to do, in paragraphs."""
    parts = (DOCS / "operations.md").read_text(encoding="utf-8").split("\n### ")[1:]
    found = {}
    for part in parts:
        name, _, text = part.partition("\n")
        paragraphs = text.partition("\n## ")[0].strip().split("\n\n")
        found[name] = "\n\n".join(LINK.sub(r"\1", " ".join(each.split())) for each in paragraphs)
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def test_pages_have_the_runbooks_of_the_docs() -> None:
    assert RUNBOOKS.read_text(encoding="utf-8") == runbooks(), "run make docs"


def test_every_alarm_has_a_runbook() -> None:
    known = json.loads(RUNBOOKS.read_text(encoding="utf-8"))
    source = files("samelog.http.console").joinpath("alarms.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"(Samelog\w+)"', source))
    assert alarms.TROUBLES
    assert len(named) > 10
    assert named <= set(known)


if __name__ == "__main__":
    RUNBOOKS.write_text(runbooks(), encoding="utf-8")
