"""Writes the tables of docs/reliability.md: the campaign after each result, and `make docs`.

Invariant: the page says what the results file says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.campaign import tables
from tests.campaign.results import Result, read
from tests.campaign.soak_table import soak
from tests.mutants.catalogue import listed
from tests.tables import write_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability.md"


def all_tables(known: Sequence[Result]) -> dict[str, str]:
    """Each table of the page."""
    made = {
        "simulated worlds": tables.worlds(known),
        "real faults": tables.chaos(known),
        "losses of power": tables.power(known),
        "the soak": soak(known),
        "broken runs": tables.broken(known),
    }
    return {f"the campaign, {name}": f"\n{table}\n" for name, table in made.items()}


def write() -> None:
    """Rewrite the tables."""
    write_tables(PAGE, lambda _: all_tables(read()))


if __name__ == "__main__":
    write()
    write_tables(PAGE, lambda _: {"the planted bugs": listed()})
