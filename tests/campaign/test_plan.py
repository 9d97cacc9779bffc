"""What is next, and what a change of the code has run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign import pieces
from tests.campaign.digest import digest
from tests.campaign.pieces import result_of, run, shortened, told_by
from tests.campaign.plan import (
    Piece,
    Row,
    done,
    is_broken,
    left_s,
    newly_skipped,
    next_piece,
)
from tests.campaign.results import BROKEN, KEPT, SKIPPED, Result
from tests.campaign.rows import all_rows, code_of

QUICK = Row(kind="chaos", name="quick", wanted=2, batch=1, takes_s=20, digest="now")
SLOW = Row(kind="chaos", name="slow", wanted=2, batch=1, takes_s=300, digest="now")
WORLDS = Row(
    kind="groups", name="groups", wanted=500, batch=200, takes_s=9, digest="now", first_seed=1000
)
ROWS = (SLOW, QUICK, WORLDS)
HOUR_S = 3600.0


def result(piece: Piece, *, verdict: str = KEPT, code: str = "now") -> Result:
    told = {"verdict": verdict, "failed": 0, "remarks": ["a reason"]}
    row = replace(piece.row, digest=code)
    return result_of(Piece(row, piece.seed, piece.count), told, "abc", "2026-01-01T00:00+00:00", 9)


def order(rows: tuple[Row, ...], results: list[Result]) -> list[tuple[str, int, int]]:
    """Every piece until nothing is left."""
    found = []
    while (piece := next_piece(rows, results, HOUR_S)) is not None:
        found.append((piece.row.name, piece.seed, piece.count))
        results = [*results, result(piece)]
    return found


def test_all_rows_advance_side_by_side_the_quick_ones_first() -> None:
    assert order(ROWS, []) == [
        ("groups", 1000, 200),
        ("quick", 1, 1),
        ("slow", 1, 1),
        ("groups", 1200, 200),
        ("quick", 2, 1),
        ("slow", 2, 1),
        ("groups", 1400, 100),
    ]


def test_it_goes_on_where_it_was() -> None:
    whole = order(ROWS, [])
    there = [result(Piece(WORLDS, 1000, 200)), result(Piece(QUICK, 1, 1))]
    assert order(ROWS, there) == whole[2:]


def test_what_ran_on_other_code_runs_again_with_other_seeds() -> None:
    there = [result(Piece(QUICK, seed, 1), code="before") for seed in (1, 2)]
    assert done(QUICK, there) == 0
    assert order((QUICK,), there) == [("quick", 3, 1), ("quick", 4, 1)]


def test_nothing_begins_that_does_not_end_in_time() -> None:
    piece = next_piece((SLOW, QUICK), [result(Piece(QUICK, 1, 1))], 100)
    assert piece == Piece(QUICK, 2, 1)
    assert next_piece((SLOW,), [], 100) is None
    # It took 9 s when it ran.
    assert next_piece((SLOW,), [result(Piece(SLOW, 1, 1))], 100) == Piece(SLOW, 2, 1)


def test_what_is_left_takes_as_long_as_what_there_is() -> None:
    assert left_s(SLOW, []) == 600
    assert left_s(WORLDS, [result(Piece(WORLDS, 1000, 50))]) == 450 / 50 * 9
    assert left_s(QUICK, [result(Piece(QUICK, seed, 1)) for seed in (1, 2)]) == 0


def test_a_broken_run_counts_and_is_not_forgotten_before_the_code_changes() -> None:
    there = [result(Piece(QUICK, 1, 1), verdict=BROKEN), result(Piece(QUICK, 2, 1))]
    assert order((QUICK,), there) == []
    assert is_broken(QUICK, there)
    assert not is_broken(replace(QUICK, digest="later"), there)


def test_what_cannot_run_is_said_once() -> None:
    cannot = replace(QUICK, why_not="needs root")
    said = replace(result(Piece(QUICK, 1, 1)), verdict=SKIPPED, count=0, remarks=["needs root"])
    assert next_piece((cannot,), [], HOUR_S) is None
    assert newly_skipped((cannot, SLOW), []) == [cannot]
    assert newly_skipped((cannot, SLOW), [said]) == []
    assert done(QUICK, [said]) == 0


# --- the code that a row depends on ---------------------------------------------------------------


def test_the_digest_is_of_sources_and_of_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "code" / "inner").mkdir(parents=True)
    (tmp_path / "code" / "inner" / "a.py").write_text("one")
    (tmp_path / "shim.c").write_text("c")
    places = ("code", "shim.c")
    before = digest(places, tmp_path)
    for name in ("test_a.py", "a.so", "made.c"):
        (tmp_path / "code" / name).write_text("x")
    assert digest(places, tmp_path) == before
    (tmp_path / "code" / "inner" / "a.py").write_text("two")
    changed = digest(places, tmp_path)
    (tmp_path / "code" / "inner" / "a.py").rename(tmp_path / "code" / "a.py")
    renamed = digest(places, tmp_path)
    (tmp_path / "shim.c").write_text("d")
    assert len({before, changed, renamed, digest(places, tmp_path)}) == 4


def test_every_row_depends_on_code_that_is_there() -> None:
    root = Path(__file__).resolve().parents[2]
    for row in all_rows():
        places = code_of(row)
        assert row.digest == digest(places)
        assert [place for place in places if not (root / place).exists()] == []


# --- running one ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("simulates")
def test_a_batch_of_worlds_is_run_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PLACE", tmp_path)
    row = next(row for row in all_rows() if row.kind == "groups")
    found = run(Piece(row, 5, 2))
    assert found is not None
    assert (found.verdict, found.seed, found.seeds, found.count) == (KEPT, 5, 2, 2)
    assert found.figures["simulated_s"] > 0
    assert found.digest == row.digest
    assert list(tmp_path.iterdir()) == []


def test_what_ran_while_the_code_changed_is_no_result_unless_it_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PLACE", tmp_path)
    row = next(row for row in all_rows() if row.kind == "groups")
    told = {"failed": 0, "remarks": []}
    monkeypatch.setattr(pieces, "_run_process", lambda piece, place: told)
    assert run(Piece(row, 6, 2)) is not None
    before = replace(row, digest="before")
    assert run(Piece(before, 6, 2)) is None
    told["failed"] = 1
    broken = run(Piece(before, 6, 2))
    assert broken is not None
    assert (broken.verdict, broken.digest) == (BROKEN, "before")
    assert [path.name for path in tmp_path.iterdir()] == ["groups-groups-6"]


# --- what a process says --------------------------------------------------------------------------


def test_what_a_process_prints_last_counts() -> None:
    assert told_by(['{"verdict":"kept"}', "a warning"], 0) == {"verdict": "kept"}
    assert told_by(["Traceback", "KeyError"], 1)["remarks"] == ["ended with 1: KeyError"]
    assert told_by([], -9)["remarks"] == ["ended with -9: no output"]


@pytest.mark.parametrize("row", ROWS)
def test_a_piece_that_says_nothing_is_broken(row: Row) -> None:
    silent = result_of(Piece(row, 1, row.batch), {"remarks": ["hangs"]}, "abc", "now", 9)
    assert (silent.verdict, silent.remarks) == (BROKEN, ["hangs"])
    assert silent.figures.get("failed", 0) == (200 if row is WORLDS else 0)


def test_a_skip_by_surprise_and_a_run_without_a_loss_of_power_end() -> None:
    losses = replace(QUICK, kind="power", wanted=100)
    told = {"verdict": SKIPPED, "power_losses": 0, "remarks": ["no loop device"]}
    found = result_of(Piece(losses, 1, 100), told, "abc", "now", 9)
    assert (found.verdict, found.count) == (BROKEN, 1)
    told = {"verdict": KEPT, "power_losses": 23, "remarks": [], "lost": 0, "seconds": 120}
    found = result_of(Piece(losses, 1, 100), told, "abc", "now", 9)
    assert (found.verdict, found.count, found.figures) == (KEPT, 23, {"lost": 0})


def test_what_did_not_heal_in_time_says_why() -> None:
    told = {"verdict": "noticed", "healed_in_s": 0.0, "remarks": ["n0 is not Live"]}
    assert result_of(Piece(QUICK, 1, 1), told, "abc", "now", 9).remarks == ["n0 is not Live"]
    told["healed_in_s"] = 0.5
    assert result_of(Piece(QUICK, 1, 1), told, "abc", "now", 9).remarks == ()


def test_remarks_are_short_and_name_no_place_of_this_machine() -> None:
    root = Path(__file__).resolve().parents[2]
    assert shortened(f"kept in {root}/build/x\n and more") == "kept in build/x and more"
    assert len(shortened("x" * 5000)) == 300
