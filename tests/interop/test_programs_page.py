"""docs/kafka-programs.md names the tests there are, and the settings they use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop import test_connect, test_debezium, test_mirror_maker, test_streams

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent.parent / "docs" / "kafka-programs.md"
SECTION = re.compile(r"^## (.*)\n([^#]*)", re.MULTILINE)
ROW = re.compile(r"\| `(test_\w+\.py)` \|$", re.MULTILINE)
FETCHES = re.compile(r"^from bench\.maven import ", re.MULTILINE)
SET_BY_EACH_RUN = {"application.id", "processing.guarantee"}


def blocks() -> dict[str, dict[str, str]]:
    """Section -> the settings of its block."""
    found = {}
    for title, text in SECTION.findall(PAGE.read_text(encoding="utf-8")):
        _, _, rest = text.partition("```properties\n")
        lines = rest.partition("```")[0].splitlines()
        found[title] = dict(line.split("=", 1) for line in lines)
    return found


@pytest.mark.parametrize(
    ("section", "settings"),
    [
        ("Kafka Streams", test_streams.SETTINGS),
        ("Kafka Connect", test_connect.WORKER),
        ("MirrorMaker 2", test_mirror_maker.MIRROR),
        ("Debezium", test_debezium.SETTINGS),
    ],
)
def test_the_pages_settings_are_those_of_the_runs(
    section: str, settings: Mapping[str, object]
) -> None:
    shown = blocks()[section]
    assert shown
    used = {name: str(settings.get(name)) for name in shown if name not in SET_BY_EACH_RUN}
    assert {name: value for name, value in shown.items() if name in used} == used


def test_the_table_names_every_program() -> None:
    named = {*ROW.findall(PAGE.read_text(encoding="utf-8"))}
    texts = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("test_*.py")}
    assert named == {name for name, text in texts.items() if FETCHES.search(text)}
