"""The tables of docs/reliability.md, from results alone: pure, and the same on every machine.

A table shows the runs of the newest code that its row ran on; those of earlier code are counted.
What is broken is named whatever code it ran on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

from tests.campaign.results import BROKEN, SKIPPED, Result

CHAOS_HEAD = (
    "| scenario | commit | runs | earlier | acknowledged | lost | doubled | out of order | "
    "made up | pause ms | read pause ms | healed s | verdict |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
)
POWER_HEAD = (
    "| power loss of | commit | losses of power | earlier | acknowledged | lost | doubled | "
    "verdict |\n|---|---|--:|--:|--:|--:|--:|---|\n"
)
WORLDS_HEAD = (
    "| | commit | seeds | from, to | simulated s | events or steps | committed entries or "
    "acknowledged records | elections | failed | earlier seeds |\n"
    "|---|---|--:|---|--:|--:|--:|--:|--:|--:|\n"
)
BROKEN_HEAD = "| run | seed | commit | what happened |\n|---|--:|---|---|\n"
POWER_NAMES = {"power-all": "all nodes", "power-leader": "the leader"}
NOTHING = "Nothing was run yet.\n"


def ran(results: Iterable[Result], kind: str) -> dict[str, list[Result]]:
    """Row -> its runs, of all code, in the order of time."""
    rows: dict[str, list[Result]] = {}
    for each in results:
        if each.kind == kind and each.verdict != SKIPPED:
            rows.setdefault(each.row, []).append(each)
    return rows


def newest(runs: Sequence[Result]) -> list[Result]:
    """The runs of the code that ran last."""
    return [each for each in runs if each.digest == runs[-1].digest]


def total(runs: Sequence[Result], name: str) -> Any:
    """A figure, added up."""
    return sum(each.figures.get(name, 0) for each in runs)


def most(runs: Sequence[Result], name: str) -> Any:
    """A figure, at its worst."""
    return max(each.figures.get(name, 0) for each in runs)


def paragraph(text: str) -> str:
    """A sentence or more, behind a table; lines of docs have at most 100 characters."""
    return "\n" + fill(text, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def line(cells: Iterable[object]) -> str:
    """A row of a table."""
    return "| " + " | ".join(f"{c:,}" if isinstance(c, int) else str(c) for c in cells) + " |\n"


def verdicts(runs: Sequence[Result]) -> str:
    """The verdict of all, or how many have which."""
    counts: dict[str, int] = {}
    for each in runs:
        counts[each.verdict] = counts.get(each.verdict, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


_ADDED = ("acknowledged", "lost", "doubled", "reordered", "foreign")


def chaos(results: Sequence[Result]) -> str:
    """Every scenario that ran, the sums, and what could not run."""
    rows = ran(results, "chaos")
    text = CHAOS_HEAD + "".join(_chaos_line(name, runs) for name, runs in sorted(rows.items()))
    if not rows:
        return NOTHING + _skipped(results)
    return text + _sums(list(rows.values())) + _skipped(results)


def _sums(rows: Sequence[Sequence[Result]]) -> str:
    new = [each for runs in rows for each in newest(runs)]
    known = [each for runs in rows for each in runs]
    return paragraph(
        f"In all: {len(new):,} runs, {total(new, 'acknowledged'):,} acknowledged records, "
        f"{total(new, 'lost'):,} lost, {_broken(new):,} runs broken. On earlier code: "
        f"{len(known) - len(new):,} runs, {_broken(known) - _broken(new):,} broken."
    )


def _broken(runs: Iterable[Result]) -> int:
    return sum(each.verdict == BROKEN for each in runs)


def _chaos_line(name: str, runs: Sequence[Result]) -> str:
    new = newest(runs)
    told = [each for each in new if each.figures.get("acknowledged")] or new
    return line(
        (
            f"`{name}`",
            f"`{new[-1].commit}`",
            len(new),
            len(runs) - len(new),
            *(total(new, figure) for figure in _ADDED),
            *(most(told, figure) for figure in ("pause_ms", "read_pause_ms")),
            healed(new),
            verdicts(new),
        )
    )


def healed(runs: Sequence[Result]) -> str:
    """The longest time it took, and how often not all was merged and copied in time."""
    times = [each.figures.get("healed_in_s", 0) for each in runs]
    never = sum(not each for each in times)
    found = [f"{max(times):.1f}"] if never < len(times) else []
    return ", ".join([*found, f"{never} not"] if never else found)


def _skipped(results: Sequence[Result]) -> str:
    """Scenarios of which the last word is that they could not run."""
    last = {each.row: each for each in results if each.kind == "chaos"}
    reasons: dict[str, list[str]] = {}
    for name, each in sorted(last.items()):
        if each.verdict == SKIPPED:
            reasons.setdefault(each.remarks[0], []).append(f"`{name}`")
    return "".join(
        paragraph(f"Not run on this machine, as it {reason}: {', '.join(names)}.")
        for reason, names in reasons.items()
    )


def power(results: Sequence[Result]) -> str:
    """Losses of power, counted."""
    rows = ran(results, "power")
    return POWER_HEAD + "".join(map(_power_line, rows.values())) if rows else NOTHING


def _power_line(runs: Sequence[Result]) -> str:
    new = newest(runs)
    losses = sum(each.count for each in new)
    return line(
        (
            POWER_NAMES[new[-1].row],
            f"`{new[-1].commit}`",
            losses,
            sum(each.count for each in runs) - losses,
            *(total(new, figure) for figure in ("acknowledged", "lost", "doubled")),
            verdicts(new),
        )
    )


def worlds(results: Sequence[Result]) -> str:
    """Simulated groups and clusters."""
    rows = ran(results, "groups") | ran(results, "clusters")
    return WORLDS_HEAD + "".join(map(_worlds_line, rows.values())) if rows else NOTHING


def _worlds_line(runs: Sequence[Result]) -> str:
    new = newest(runs)
    seeds = sum(each.count for each in new)
    return line(
        (
            new[-1].kind,
            f"`{new[-1].commit}`",
            seeds,
            f"{new[0].seed:,} to {max(each.seed + each.seeds for each in new) - 1:,}",
            *(total(new, name) for name in ("simulated_s", "events", "agreed", "elections")),
            total(new, "failed"),
            sum(each.count for each in runs) - seeds,
        )
    )


def broken(results: Sequence[Result]) -> str:
    """Every run that failed, on whatever code."""
    lines = [
        line(
            (
                f"`{each.row}`" if each.kind == "chaos" else f"{each.kind}: `{each.row}`",
                each.seed,
                f"`{each.commit}`",
                "; ".join(each.remarks).replace("|", "/") or "see its figures",
            )
        )
        for each in results
        if each.verdict == BROKEN
    ]
    return BROKEN_HEAD + "".join(lines) if lines else "None.\n"
