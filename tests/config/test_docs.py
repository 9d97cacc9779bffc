"""docs/configuration.md says what the tables of keys say. `make docs` writes its tables anew."""

from __future__ import annotations

import textwrap
from pathlib import Path

from samelog.config.schema.environment import variable_names
from samelog.config.schema.keys import ConfigKey, TableSpec, joined
from samelog.config.tables.client import CLIENT_FILE
from samelog.config.tables.mirror import MIRROR_FILE
from samelog.config.tables.node import NODE_FILE
from tests.tables import with_tables, write_tables

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
HEAD = (
    "| key | what | values | without it | a change counts | variable |\n|---|---|---|---|---|---|\n"
)


def default(key: ConfigKey) -> str:
    """What counts if the key is left out."""
    if key.is_required:
        return "**required**"
    return key.without or f"`{key.kind.show(key.kind.write(key.default))}`"


def row(name: str, key: ConfigKey, variable: str) -> str:
    """One key."""
    shown = f'"{name}"' if "." in name else name
    values = key.kind.documented
    cells = (f"`{shown}`", key.meaning, values, default(key), key.reload.value, variable)
    return f"| {' | '.join(cells)} |\n"


def title(spec: TableSpec) -> str:
    """A table's name as it stands in the file, and what it is for."""
    meaning = textwrap.fill(f"{spec.meaning}.", 100, break_on_hyphens=False) + "\n"
    if not spec.path:
        return meaning
    name = f"[[{spec.path}]]" if spec.is_many else f"[{spec.path}]"
    return f"### `{name}`\n\n{meaning}"


def table(file: TableSpec, *, has_variables: bool = True) -> str:
    """All keys of one kind of file."""
    names = variable_names(file).items() if has_variables else ()
    variables = {name.replace("[]", ""): text for name, text in names}
    text = ""
    for spec in file.walk():
        text += f"\n{title(spec)}"
        if spec.named is not None:
            text += "\n" + HEAD + row("*", spec.named, "–").replace("`*`", "*any*")
        if spec.keys:
            text += "\n" + HEAD
        for name, key in spec.keys.items():
            variable = variables.get(joined(spec.path, name))
            text += row(name, key, f"`{variable}`" if variable else "–")
    return text + "\n"


def tables(directory: Path | None = None) -> dict[str, str]:
    """Each table of the page."""
    return {
        "the keys of nodes": table(NODE_FILE),
        "the keys of clients": table(CLIENT_FILE),
        "the keys of mirrors": table(MIRROR_FILE, has_variables=False),
    }


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text, tables())


def test_every_key_has_a_variable_of_its_own() -> None:
    for each in (NODE_FILE, CLIENT_FILE):
        names = list(variable_names(each).values())
        assert len(names) == len(set(names))


if __name__ == "__main__":
    write_tables(PAGE, tables)
