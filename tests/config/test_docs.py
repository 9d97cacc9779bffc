"""docs/configuration.md says what the tables of keys say. `make docs` writes its tables anew."""

from __future__ import annotations

import json
from pathlib import Path

from samelog.config.client_keys import CLIENT
from samelog.config.document import variable_names
from samelog.config.node_keys import NODE
from samelog.config.schema import Key, Kind, Schema, Section, allowed, size
from tests.tables import with_tables, write_tables

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
HEAD = (
    "| key | what | values | without it | a change counts | variable |\n|---|---|---|---|---|---|\n"
)


def default(key: Key) -> str:
    """What counts if the key is left out."""
    if key.default is None:
        return key.without or "**required**"
    if key.kind is Kind.SIZE:
        return f"`{size(key.default)}`"
    return f"`{json.dumps(key.plain_default)}`"


def row(name: str, key: Key, variable: str) -> str:
    """One key."""
    shown = f'"{name}"' if "." in name else name
    cells = (f"`{shown}`", key.meaning, allowed(key), default(key), key.reload.value, variable)
    return f"| {' | '.join(cells)} |\n"


def title(section: Section) -> str:
    """A table's name as it stands in the file, and what it is for."""
    if not section.name:
        return f"{section.meaning}.\n"
    name = f"[[{section.name}]]" if section.many else f"[{section.name}]"
    return f"### `{name}`\n\n{section.meaning}.\n"


def table(tables: Schema) -> str:
    """All keys of one kind of file."""
    variables = {name.replace("[]", ""): text for name, text in variable_names(tables).items()}
    text = ""
    for section in tables.values():
        text += f"\n{title(section)}"
        if section.anything is not None:
            text += "\n" + HEAD + row("*", section.anything, "–").replace("`*`", "*any*")
        if section.keys:
            text += "\n" + HEAD
        for name, key in section.keys.items():
            variable = variables.get(f"{section.name}.{name}".lstrip("."))
            text += row(name, key, f"`{variable}`" if variable else "–")
    return text + "\n"


def tables(directory: Path | None = None) -> dict[str, str]:
    """Each table of the page."""
    return {"the keys of nodes": table(NODE), "the keys of clients": table(CLIENT)}


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text, tables())


def test_every_key_has_a_variable_of_its_own() -> None:
    for each in (NODE, CLIENT):
        names = list(variable_names(each).values())
        assert len(names) == len(set(names))


if __name__ == "__main__":
    write_tables(PAGE, tables)
