"""What pieces of the campaign came to, an object a line in `results.jsonl`, in the order of time.

Invariant: a result is only ever added; one that is broken stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.jsonl")
KEPT, NOTICED, BROKEN, SKIPPED = "kept", "noticed", "broken", "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run, or one batch of seeds."""

    kind: str
    row: str
    seed: int = 0
    """The first one."""
    seeds: int = 1
    count: int
    """How much of what its row wants: runs, seeds, losses of power, minutes."""
    digest: str
    """Of the code that it depends on."""
    commit: str
    at: str
    """When it began: UTC, ISO 8601."""
    took_s: int
    verdict: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    """Of one that is broken, skipped, or did not heal in time: why, and what is left of it."""


def parse(lines: Iterable[str]) -> list[Result]:
    """The results in the lines of a file."""
    return [Result(**json.loads(line)) for line in lines if line.strip()]


def read(path: Path = RESULTS) -> list[Result]:
    """All results so far."""
    return parse(path.read_text(encoding="utf-8").splitlines()) if path.exists() else []


def to_line(result: Result) -> str:
    """A line of the file; what a result does not have is left out."""
    known = {name: value for name, value in asdict(result).items() if value not in ((), [], {})}
    return json.dumps(known, separators=(",", ":")) + "\n"


def add(result: Result, path: Path = RESULTS) -> None:
    """Write a result behind the others, with one call."""
    with path.open("ab", buffering=0) as file:
        file.write(to_line(result).encode())
