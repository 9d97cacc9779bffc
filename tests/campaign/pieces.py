"""Runs one piece in a process of its own, and makes its result.

What is left of a run that failed stays in `build/campaign/`; the rest is removed.

Invariant: a piece gives a result that is not broken only if its process said so, and the code was
the same before and after it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.campaign.digest import ROOT, commit, digest
from tests.campaign.plan import Piece, Row
from tests.campaign.results import BROKEN, KEPT, SKIPPED, Result
from tests.campaign.rows import CHAOS, CLUSTERS, GROUPS, POWER, POWER_S, SOAK, code_of

PLACE = ROOT / "build" / "campaign"
HANGS_S = 900.0
"""A piece that takes so much longer than four times what it should hangs."""
REMARK_LENGTH = 300
CHAOS_FIGURES = (
    "acknowledged",
    "merged",
    "lost",
    "unmerged",
    "doubled",
    "reordered",
    "foreign",
    "pause_ms",
    "read_pause_ms",
    "healed_in_s",
)


def run(piece: Piece) -> Result | None:
    """One piece's result; None if it has to be run again, as the code changed meanwhile."""
    place = PLACE / f"{piece.row.kind}-{piece.row.name}-{piece.seed}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    places = code_of(piece.row)
    begin, began, of_commit = time.monotonic(), _now(), commit(places)
    told = _run_process(piece, place)
    result = result_of(piece, told, of_commit, began, round(time.monotonic() - begin))
    if result.verdict == BROKEN:
        return result
    shutil.rmtree(place, ignore_errors=True)
    return result if digest(places) == piece.row.digest else None


def skipped(row: Row) -> Result:
    """That a row cannot run here."""
    return Result(
        kind=row.kind,
        row=row.name,
        count=0,
        digest=row.digest,
        commit=commit(code_of(row)),
        at=_now(),
        took_s=0,
        verdict=SKIPPED,
        remarks=[str(row.why_not)],
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="minutes")


def command_of(piece: Piece) -> list[str]:
    """The process that runs a piece, and prints one JSON object."""
    row, seed = piece.row, str(piece.seed)
    if row.kind in {CHAOS, POWER}:
        seconds = ["--seconds", str(POWER_S)] if row.kind == POWER else []
        return ["tests.chaos", row.name, "--seed", seed, "--json", "--keep", *seconds]
    if row.kind == SOAK:
        return ["tests.campaign.soak", "--minutes", str(piece.count)]
    return ["tests.campaign.worlds", row.kind, seed, str(piece.count)]


def _run_process(piece: Piece, place: Path) -> Mapping[str, Any]:
    """What the process printed; `remarks` alone if it did not come so far."""
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command_of(piece)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(place)},
        )
        try:
            code = process.wait(4 * piece.row.takes_s + HANGS_S)
        except subprocess.TimeoutExpired:
            return {"remarks": ["hangs"]}
        finally:
            _end(process)
    lines = (place / "output").read_text(encoding="utf-8", errors="replace").splitlines()
    return told_by(lines, code)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM has a process end all that it has started."""
    process.terminate()
    try:
        process.wait(HANGS_S)
    finally:
        process.kill()


def told_by(lines: Sequence[str], code: int) -> Mapping[str, Any]:
    """The object among the lines that a process has printed."""
    for line in reversed(lines):
        if line.startswith("{"):
            told: Mapping[str, Any] = json.loads(line)
            return told
    return {"remarks": [f"ended with {code}: {lines[-1] if lines else 'no output'}"]}


def result_of(
    piece: Piece, told: Mapping[str, Any], of_commit: str, began: str, took_s: int
) -> Result:
    """What a process has told, as a result."""
    row = piece.row
    verdict = _verdict(row, told)
    figures: dict[str, Any] = {
        name: value
        for name, value in told.items()
        if (name in CHAOS_FIGURES or row.kind not in {CHAOS, POWER}) and name not in _APART
    }
    if row.kind in {GROUPS, CLUSTERS}:
        figures.setdefault("failed", piece.count)  # of a batch that did not come to its end
    return Result(
        kind=row.kind,
        row=row.name,
        seed=piece.seed,
        seeds=piece.count if row.kind in {GROUPS, CLUSTERS} else 1,
        count=_count(piece, told),
        digest=row.digest,
        commit=of_commit,
        at=began,
        took_s=took_s,
        verdict=verdict,
        figures=figures,
        remarks=_remarks(told) if verdict == BROKEN or not figures.get("healed_in_s", 1) else (),
    )


def _remarks(told: Mapping[str, Any]) -> list[str]:
    return [shortened(each) for each in told["remarks"]]


_APART = ("remarks", "verdict")


def _verdict(row: Row, told: Mapping[str, Any]) -> str:
    """What could run a moment ago, and then says that it cannot, is broken, too."""
    if row.kind in {GROUPS, CLUSTERS}:
        return KEPT if told.get("failed") == 0 else BROKEN
    verdict = str(told.get("verdict", BROKEN))
    return BROKEN if verdict == SKIPPED else verdict


def _count(piece: Piece, told: Mapping[str, Any]) -> int:
    """At least one: a piece that fails at once is not run for ever."""
    return max(1, told.get("power_losses", 0)) if piece.row.kind == POWER else piece.count


def shortened(remark: str) -> str:
    """A remark that can be published: without this machine's paths, and not too long."""
    return " ".join(remark.replace(f"{ROOT}/", "").split())[:REMARK_LENGTH]
