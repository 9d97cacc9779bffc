"""The names in an input directory. Some facts about a file are names of empty files beside it.

    log.<run>.<roll>                   record batches; position in the file = position in the log
    log.<run>.<roll>.sealed-<length>   the file ends at this length and will never grow
    log.<run>.<roll>.from-<byte>       the run is held from this position on only
    <name>.quarantined-<n>             set aside as damaged; never read

A name is written at once and becomes durable with its directory, in the order of creation; a fact
inside a file would need an order between the syncs of two files. Numbers are decimal without
leading zeros.

Invariant: every name has one meaning; names of any other form are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NUMBER = r"(0|[1-9][0-9]{0,18})"
_DATA = re.compile(rf"log\.{_NUMBER}\.{_NUMBER}")
_MARKER = re.compile(rf"log\.{_NUMBER}\.{_NUMBER}\.(sealed|from)-{_NUMBER}")


@dataclass(slots=True)
class RunNames:
    """What the names say about one run."""

    data: set[int] = field(default_factory=set)
    """Rolls of the data files."""
    sealed: dict[int, int] = field(default_factory=dict)
    """Roll -> length."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """Positions of the `from` markers; the highest counts."""

    @property
    def start(self) -> tuple[int, int]:
        """Where the run's bytes begin, as far as markers say."""
        return max(self.starts, default=(0, 0))


def data_name(run: int, roll: int) -> str:
    """The name of a data file."""
    return f"log.{run}.{roll}"


def sealed_name(run: int, roll: int, length: int) -> str:
    """The name that says that a file is sealed."""
    return f"log.{run}.{roll}.sealed-{length}"


def from_name(run: int, roll: int, byte: int) -> str:
    """The name that says where a run starts."""
    return f"log.{run}.{roll}.from-{byte}"


def parse_names(names: Iterable[str]) -> dict[int, RunNames]:
    """What the names of a directory say, by run."""
    runs: dict[int, RunNames] = {}
    for name in names:
        if match := _DATA.fullmatch(name):
            runs.setdefault(int(match[1]), RunNames()).data.add(int(match[2]))
        elif match := _MARKER.fullmatch(name):
            names_of_run = runs.setdefault(int(match[1]), RunNames())
            if match[3] == "sealed":
                names_of_run.sealed[int(match[2])] = int(match[4])
            else:
                names_of_run.starts.append((int(match[2]), int(match[4])))
    return runs
