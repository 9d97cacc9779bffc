"""The tables that docs/reliability.md has of the campaign."""

from __future__ import annotations

from dataclasses import replace

from tests.campaign import tables
from tests.campaign.page import PAGE, all_tables
from tests.campaign.results import BROKEN, KEPT, SKIPPED, Result, parse, read, to_line
from tests.tables import with_tables


def run_of(
    row: str, *, code: str, verdict: str = KEPT, kind: str = "chaos", **figures: float
) -> Result:
    """A run on some code; its commit is called as its code."""
    return Result(
        kind=kind,
        row=row,
        seed=7,
        count=20 if kind == "power" else 1,
        digest=code,
        commit=code,
        at="2026-01-01T00:00+00:00",
        took_s=50,
        verdict=verdict,
        figures=figures,
        remarks=["a reason | with a bar"] if verdict in {BROKEN, SKIPPED} else (),
    )


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text, all_tables(read())), "run `make docs`"


def test_a_result_is_read_as_it_was_written() -> None:
    whole = run_of("kill-all", code="new", verdict=BROKEN, lost=3)
    bare = run_of("kill-all", code="new")
    lines = (to_line(whole) + to_line(bare)).splitlines()
    assert parse(lines) == [whole, bare]
    assert "figures" not in lines[1]


def test_a_row_has_the_runs_of_the_newest_code_and_counts_the_others() -> None:
    runs = [
        run_of("kill-all", code="old", acknowledged=1000, pause_ms=9000),
        run_of("kill-all", code="new", acknowledged=1200, pause_ms=80, healed_in_s=0.5),
        run_of("kill-all", code="new", acknowledged=1300, pause_ms=90, healed_in_s=0.25),
    ]
    table = tables.chaos(runs)
    row = "| `kill-all` | `new` | 2 | 1 | 2,500 | 0 | 0 | 0 | 0 | 90 | 0 | 0.5 | kept |\n"
    assert row in table
    assert "In all: 2 runs, 2,500 acknowledged records, 0 lost, 0 runs broken." in table
    assert "On earlier code: 1 runs, 0 broken." in " ".join(table.split())


def test_a_broken_run_is_named_even_when_later_code_holds() -> None:
    runs = [
        run_of("kill-all", code="old", verdict=BROKEN, lost=5),
        run_of("kill-all", code="new", acknowledged=10),
    ]
    assert "On earlier code: 1 runs, 1 broken." in " ".join(tables.chaos(runs).split())
    assert "| `kill-all` | 7 | `old` | a reason / with a bar |\n" in tables.broken(runs)
    both = [*runs, run_of("kill-all", code="new", verdict=BROKEN, acknowledged=10, lost=5)]
    assert "| 20 | 5 | 0 | 0 | 0 | 0 | 0 | 2 not | 1 broken, 1 kept |" in tables.chaos(both)


def test_what_did_not_heal_in_time_is_counted() -> None:
    runs = [run_of("rot-all", code="new", healed_in_s=seconds) for seconds in (0.5, 0.0, 2.25)]
    assert tables.healed(runs) == "2.2, 1 not"
    assert tables.healed(runs[:1]) == "0.5"


def test_what_cannot_run_is_named_with_the_reason_until_it_runs() -> None:
    cannot = run_of("storm", code="new", verdict=SKIPPED)
    cannot = replace(cannot, remarks=["needs root"])
    assert "Not run on this machine, as it needs root: `storm`." in tables.chaos([cannot])
    assert "Not run" not in tables.chaos([cannot, run_of("storm", code="new")])


def test_losses_of_power_are_added_up() -> None:
    runs = [run_of("power-all", code="new", kind="power", acknowledged=10) for _ in range(3)]
    assert "| all nodes | `new` | 60 | 0 | 30 | 0 | 0 | kept |" in tables.power(runs)


def test_worlds_are_added_up() -> None:
    runs = [
        Result(
            kind="groups",
            row="groups",
            seed=seed,
            seeds=200,
            count=200,
            digest="new",
            commit="new",
            at="2026-01-01T00:00+00:00",
            took_s=9,
            verdict=KEPT,
            figures={"simulated_s": 900, "events": 5, "agreed": 4, "elections": 3, "failed": 0},
        )
        for seed in (1000, 1200)
    ]
    row = "| groups | `new` | 400 | 1,000 to 1,399 | 1,800 | 10 | 8 | 6 | 0 | 0 |\n"
    assert row in tables.worlds(runs)
