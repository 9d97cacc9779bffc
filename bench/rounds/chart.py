"""Charts as SVG: a bar for each system, its median as a number, its range as a line. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 760, 250, 110, 20, 10, 44
OURS, THEIRS, RANGE, TEXT = "#2563a8", "#9aa5b1", "#1f2933", "#1f2933"
STYLE = f'font-family="sans-serif" font-size="13" fill="{TEXT}"'


@dataclass(frozen=True, slots=True)
class Bar:
    """A system and what was measured of it."""

    label: str
    figures: Sequence[float]
    is_ours: bool


def chart(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """A whole file."""
    drawn = [bar for bar in bars if bar.figures]
    height = TOP + len(drawn) * (BAR + GAP) + GAP
    most = max((max(bar.figures) for bar in drawn), default=1.0) or 1.0
    body = [_bar(bar, number, (WIDTH - LEFT - RIGHT) / most) for number, bar in enumerate(drawn)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {STYLE}>'
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    name = f'<text x="{GAP}" y="24" font-size="15">{escape(title)}, {escape(unit)}</text>'
    return "\n".join([head, ground, name, *body, "</svg>"]) + "\n"


def _bar(bar: Bar, number: int, scale: float) -> str:
    y = TOP + number * (BAR + GAP)
    middle, text_y = y + BAR / 2, y + BAR - 5
    low, mid, high = (LEFT + scale * f(bar.figures) for f in (min, median, max))
    colour = OURS if bar.is_ours else THEIRS
    return "".join(
        [
            f'<text x="{LEFT - GAP}" y="{text_y}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{mid - LEFT:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{RANGE}" stroke-width="2"/>',
            f'<text x="{high + GAP:.1f}" y="{text_y}">{number_text(median(bar.figures))}</text>',
        ]
    )


def number_text(value: float | None) -> str:
    """Three digits that count; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
