"""docs/kafka.md says what the registry says. Run this file to write the table anew."""

from __future__ import annotations

from pathlib import Path

from shiplog.kafka.registry import APIS

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "kafka.md"
BEGIN, END = "<!-- from the registry: begin -->\n", "<!-- from the registry: end -->\n"


def table() -> str:
    """The APIs as a table."""
    apis = sorted(APIS.values(), key=lambda api: api.key)
    rows = [f"| {a.key} | {a.name} | {a.first}–{a.last} | {a.notes} |" for a in apis]
    return "\n".join(["| key | API | versions | notes |", "|---|---|---|---|", *rows, ""])


def with_table(text: str) -> str:
    """The page with the table as it should be."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def test_the_page_has_the_registrys_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
