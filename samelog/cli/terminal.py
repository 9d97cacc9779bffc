"""What people see on a terminal: tables within its width, short sizes, states in colour.

Invariant: a program never gets any of it; nothing is left out, only folded. NO_COLOR counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

STYLES = {
    "live": "green",
    "ok": "green",
    "stable": "green",
    "whole": "green",
    "leader": "bold",
    "syncing": "yellow",
    "initializing": "yellow",
    "maintenance": "yellow",
    "warning": "yellow",
    "preparingrebalance": "yellow",
    "completingrebalance": "yellow",
    "assigning": "yellow",
    "reconciling": "yellow",
    "empty": "dim",
    "offline": "bold red",
    "failed": "bold red",
    "dead": "red",
}
"""Of the first word of a state, role or verdict."""
STATES = {"state", "role", "verdict"}
UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
ALARMING = {"trouble": "red"}
SIZES = {"bytes", "bytes/s", "held bytes", "unmerged bytes"}


def size_text(count: float) -> str:
    """So many bytes, as people read it: `12.3 MB`."""
    for unit in UNITS[:-1]:
        if abs(count) < 999.95:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} {UNITS[-1]}"


def style_of(column: str, text: str) -> str:
    """How a cell is shown: by its state, or because it says what is wrong."""
    if column in ALARMING:
        return ALARMING[column]
    words = text.casefold().replace("?", " ").split()
    return STYLES.get(words[0], "") if column in STATES and words else ""


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    cells: Sequence[Sequence[str]],
    title: str | None,
) -> None:
    """Print a table. `cells`: the texts of `rows`; numbers are right-aligned, text folds."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.pad_edge = table.show_edge = False
    for index, column in enumerate(columns):
        is_number = _are_numbers([row[index] for row in rows])
        if is_number:
            table.add_column(column, justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold", min_width=_longest_word(column))
    for row, texts in zip(rows, cells, strict=True):
        table.add_row(*map(_cell, columns, row, texts))
    Console(highlight=False).print(table)


def _longest_word(text: str) -> int:
    """No column gets narrower than a word of its name."""
    return max(map(len, text.split()), default=1)


def _are_numbers(values: Sequence[object]) -> bool:
    """Whether some are, and nothing else is there but what stands for none."""
    given = [value for value in values if value not in ("", "-", None)]
    return bool(given) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in given
    )


def _cell(column: str, value: object, text: str) -> Text:
    if column in SIZES and isinstance(value, int | float):
        text = size_text(value)
    return Text(text, style=style_of(column, text))
