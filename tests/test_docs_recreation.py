"""docs/design/recreation.md: each section has each kind of client, and each cited test exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "design" / "recreation.md"
OBJECTS = [
    "Topics",
    "Groups",
    "Sessions",
    "Sites",
    "Members",
    "Schemas",
    "Views",
    "Mirrors",
    "Transactional ids",
    "Users",
]
CLIENTS = [
    "native publisher",
    "sidecar",
    "subscriber",
    "Spark query",
    "Kafka producer",
    "Kafka consumer",
    "mirror",
    "HTTP",
]
CASE = re.compile(r"^- \*\*(.+?)\*\*: .+\n((?:  - .+\n)*)", re.MULTILINE)
"""Clients, what happens to them, and the list of tests, where no line is wrapped."""
CITED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def cases() -> dict[str, list[tuple[list[str], str]]]:
    """Return the cases of each section: clients, and the list of tests."""
    text = re.sub(r"\n  (?!- )", " ", PAGE.read_text(encoding="utf-8"))
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    return {
        name: [(clients.split(", "), tests) for clients, tests in CASE.findall(text)]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def functions(path: Path) -> set[str]:
    """The functions of a test file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_each_section_has_each_kind_of_client_once() -> None:
    found = cases()
    assert list(found) == OBJECTS
    for name, of_section in found.items():
        assert sorted(each for clients, _ in of_section for each in clients) == sorted(CLIENTS), (
            name
        )


def test_each_case_cites_tests_that_exist() -> None:
    offenders = []
    for name, of_section in cases().items():
        for clients, listed in of_section:
            tests = CITED.findall(listed)
            if not tests:
                offenders.append(f"{name}, {clients}: no test")
            for file, function in tests:
                path = ROOT / "tests" / file
                if not path.is_file() or function not in functions(path):
                    offenders.append(f"{name}, {clients}: {file}::{function}")
    assert offenders == []
