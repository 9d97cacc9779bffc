"""docs/configuration.md says what the tables of keys say. `make docs` rewrites its lists."""

from __future__ import annotations

import textwrap
from pathlib import Path

from samelog.config.schema.environment import variable_names
from samelog.config.schema.keys import ConfigKey, Reload, TableSpec
from samelog.config.tables.client import CLIENT_FILE
from samelog.config.tables.mirror import MIRROR_FILE
from samelog.config.tables.node import NODE_FILE
from tests.tables import with_tables, write_tables

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "configuration.md"
LINE_MAX = 100
COUNTS = {
    Reload.NO: "",
    Reload.YES: " A change counts at once.",
    Reload.CONTENTS: " What the file holds counts at once.",
}


def default(key: ConfigKey) -> str:
    """What counts if the key is left out."""
    if key.is_required:
        return "required"
    return f"without it {key.without or f'`{key.kind.show(key.kind.write(key.default))}`'}"


def item(name: str, key: ConfigKey) -> str:
    """One key: what it means, its values, what counts without it, and when a change does."""
    no_variable = " It has no variable." if key.secret else ""
    said = f"{key.meaning}. Value: {key.kind.documented}; {default(key)}."
    text = f"- {name}: {said}{COUNTS[key.reload]}{no_variable}"
    return filled(text, "  ")


def filled(text: str, indent: str = "") -> str:
    """Lines that people can read; a path or a name is never broken."""
    lines = textwrap.fill(
        text,
        LINE_MAX,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines + "\n"


def title(spec: TableSpec) -> str:
    """A table's name as it stands in the file, and what it is for."""
    meaning = filled(f"{spec.meaning}.")
    if not spec.path:
        return meaning
    name = f"[[{spec.path}]]" if spec.is_many else f"[{spec.path}]"
    return f"### `{name}`\n\n{meaning}"


def shown(name: str) -> str:
    """A key as it stands in a file."""
    return f'`"{name}"`' if "." in name else f"`{name}`"


def keys(file: TableSpec) -> str:
    """All keys of one kind of file."""
    text = ""
    for spec in file.walk():
        items = [item(shown(name), key) for name, key in spec.keys.items()]
        if spec.named is not None:
            items.insert(0, item("*any*", spec.named))
        text += "\n".join(["", title(spec), "".join(items)] if items else ["", title(spec)])
    return text + "\n"


def tables(directory: Path | None = None) -> dict[str, str]:
    """Each list of the page."""
    return {
        "the keys of nodes": keys(NODE_FILE),
        "the keys of clients": keys(CLIENT_FILE),
        "the keys of mirrors": keys(MIRROR_FILE),
    }


def test_the_page_has_the_lists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text, tables())


def test_lines_of_the_page_can_be_read() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > LINE_MAX] == []


def test_every_key_has_a_variable_of_its_own() -> None:
    for each in (NODE_FILE, CLIENT_FILE):
        names = list(variable_names(each).values())
        assert len(names) == len(set(names))


if __name__ == "__main__":
    write_tables(PAGE, tables)
