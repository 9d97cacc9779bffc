"""docs/design/recreation.md: each table has each kind of client, and each cited test exists."""

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
CITED = re.compile(r"`([\w/]+\.py)::(\w+)`")


def tables() -> dict[str, list[list[str]]]:
    """The cells of each section's rows, without the heads of the tables."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        name: [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines()
            if line.startswith("| ") and not line.startswith("| client |")
        ]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def functions(path: Path) -> set[str]:
    """The functions of a test file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}


def test_each_table_has_each_kind_of_client() -> None:
    found = tables()
    assert list(found) == OBJECTS
    assert {name: [row[0] for row in rows] for name, rows in found.items()} == dict.fromkeys(
        OBJECTS, CLIENTS
    )


def test_each_cell_says_what_happens_and_cites_tests_that_exist() -> None:
    offenders = []
    for name, rows in tables().items():
        for client, says, cited in rows:
            tests = CITED.findall(cited)
            if not (says and tests):
                offenders.append(f"{name}, {client}: no test")
            for file, function in tests:
                path = ROOT / "tests" / file
                if not path.is_file() or function not in functions(path):
                    offenders.append(f"{name}, {client}: {file}::{function}")
    assert offenders == []
