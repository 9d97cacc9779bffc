"""Tables of documentation that are made from code, between two marks on a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """The page with its tables as they should be, by where they come from."""
    for source, table in tables.items():
        begin, end = (f"<!-- from {source}: {word} -->\n" for word in ("begin", "end"))
        before, rest = text.split(begin)
        text = before + begin + table + end + rest.split(end)[1]
    return text


def write_tables(page: Path, tables: Callable[[Path], Mapping[str, str]]) -> None:
    """Rewrite the tables; `tables` gets an empty directory."""
    with TemporaryDirectory() as directory:
        made = tables(Path(directory))
    page.write_text(with_tables(page.read_text(encoding="utf-8"), made), encoding="utf-8")
