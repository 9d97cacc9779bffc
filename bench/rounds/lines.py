"""What rounds of a comparison came to: an object a line, in the order of time.

Invariant: a line is only ever added, with one write; one that is cut off at the end, as a run that
is killed leaves it, is left out and counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Figures = Mapping[str, Mapping[str, float | list[float]]]
"""Of each system, by name: one figure, or several of a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One round of one measure: all systems, one after another."""

    measure: str
    code: str
    """Digest of what was measured and of what measured it."""
    settings: Mapping[str, Any]
    machine: str
    """Its processor and how many cores."""
    commit: str
    at: str
    """When it began: UTC, ISO 8601."""
    took_s: float
    load: tuple[float, float]
    """The machine's, before and after."""
    fdatasync_ms: Mapping[str, float]
    """p50 and p99 of 4 KiB, before."""
    figures: Figures
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Systems that could not be had, and why."""


def parse(lines: Iterable[str]) -> list[Line]:
    """The lines of a file."""
    found = []
    for text in lines:
        try:
            found.append(Line(**json.loads(text)))
        except json.JSONDecodeError:
            continue
    return found


def read(path: Path) -> list[Line]:
    """All so far."""
    return parse(path.read_text(encoding="utf-8").splitlines()) if path.exists() else []


def add(line: Line, path: Path) -> None:
    """Write one behind the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        file.write(_break_before(path) + json.dumps(asdict(line)).encode() + b"\n")


def _break_before(path: Path) -> bytes:
    """Behind a line that was cut off a new one begins."""
    data = path.read_bytes()
    return b"\n" if data and not data.endswith(b"\n") else b""
