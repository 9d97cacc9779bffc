"""Writes what rounds came to: NAME.json with all rows, NAME.md with tables, and charts beside them.

Invariant: all of it is made from the lines alone, again after each round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.rounds.chart import Bar, chart, number_text
from bench.rounds.lines import Line
from bench.rounds.rows import Figure, Row, disk_of, results, values

VERDICT = {True: "yes", False: "**no**", None: ""}


@dataclass(frozen=True, slots=True)
class Chart:
    """Which figures make a chart; `ours` are drawn as our own."""

    name: str
    title: str
    unit: str
    measure: str
    bars: Mapping[str, Figure]
    ours: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """What is written, and where: `place`/`name`.json and so on."""

    place: Path
    name: str
    title: str
    rows: Sequence[Row]
    charts: Sequence[Chart]
    notes: str


def write(page: Page, counting: Mapping[str, Sequence[Line]]) -> None:
    """Write all of it; `counting`: the rounds of each measure that count."""
    page.place.mkdir(parents=True, exist_ok=True)
    found = results(page.rows, counting)
    whole = {"machine": machine.description(), **about(counting), "rows": found}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (page.place / f"{page.name}.json").write_text(text + "\n", encoding="utf-8")
    drawn = [each for each in page.charts if counting.get(each.measure)]
    for each in drawn:
        path = page.place / f"{page.name}-{each.name}.svg"
        path.write_text(_drawing(each, counting[each.measure]), encoding="utf-8")
    markdown = _markdown(page, whole, drawn)
    (page.place / f"{page.name}.md").write_text(markdown, encoding="utf-8")


def about(counting: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """Under what circumstances each measure's rounds ran."""
    return {
        "measures": {
            name: {
                "rounds": len(lines),
                "commits": sorted({line.commit for line in lines}),
                "from": lines[0].at,
                "to": lines[-1].at,
                "load": [min(line.load[0] for line in lines), max(line.load[1] for line in lines)],
                "fdatasync_p50_ms": disk_of(lines),
                "settings": dict(lines[-1].settings),
                "skipped": dict(lines[-1].skipped),
            }
            for name, lines in counting.items()
            if lines
        }
    }


def _drawing(each: Chart, lines: Sequence[Line]) -> str:
    bars = [
        Bar(label, values(figure, lines), label in each.ours) for label, figure in each.bars.items()
    ]
    return chart(each.title, each.unit, bars)


def _markdown(page: Page, whole: Mapping[str, Any], drawn: Sequence[Chart]) -> str:
    facts = "; ".join(f"{name} {value}" for name, value in whole["machine"].items() if value)
    parts = [f"# {page.title}", page.notes, f"Machine: {facts}.", table(whole["rows"])]
    parts += [_circumstances(whole["measures"])]
    parts += [f"![{each.title}]({page.name}-{each.name}.svg)" for each in drawn]
    return "\n\n".join(parts) + "\n"


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The rows, in Markdown."""
    head = "| row | what | ours | peer | ratio | target | met | rounds | waited |\n"
    lines = [
        f"| {row['row']} | {row['what']}, {row['unit']} | {_with_range(row, 'ours')} "
        f"| {_with_range(row, 'peer')} | {number_text(row['ratio'])} | {row['target'] or ''} "
        f"| {VERDICT[row['met']]} | {row['rounds']} | {_waited(row)} |"
        for row in found
    ]
    return head + "|---|---|--:|--:|--:|--:|---|--:|--:|\n" + "\n".join(lines)


def _waited(row: Mapping[str, Any]) -> str:
    """Of ours and of the peer."""
    found = (row.get("ours_waited"), row.get("peer_waited"))
    return ", ".join(f"{each:.2f}" for each in found if each is not None)


def _with_range(row: Mapping[str, Any], name: str) -> str:
    found = row[f"{name}_range"]
    if not found:
        return ""
    low, high = (number_text(each) for each in found)
    return f"{number_text(row[name])} ({low}–{high})"


def _circumstances(measures: Mapping[str, Mapping[str, Any]]) -> str:
    head = "| measure | rounds | commits | load | fdatasync p50, ms | settings | not measured |\n"
    lines = [
        f"| {name} | {found['rounds']} | {', '.join(found['commits'])} "
        f"| {found['load'][0]:g}–{found['load'][1]:g} | {found['fdatasync_p50_ms']:.2f} "
        f"| {_pairs(found['settings'])} | {_pairs(found['skipped'])} |"
        for name, found in measures.items()
    ]
    return head + "|---|--:|---|--:|--:|---|---|\n" + "\n".join(lines)


def _pairs(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in found.items())
