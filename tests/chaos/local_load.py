"""The load of a program that only writes local files, which a sidecar ships.

What it has appended counts as acknowledged: its host does not fail, so all of it has to be merged,
whatever happens to the sidecar, the nodes, or the program itself.

Invariant: the program never talks to the cluster.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from samelog import Publisher
from tests.chaos.load import NOT_MERGED_CODE, Values
from tests.chaos.nodes import wait
from tests.chaos.notes import Kind, NoteBook

LOOK_S = 0.1


class LocalLoad:
    """One life of a program."""

    def __init__(self, publisher: Publisher, session: Path, values: Values, notes: NoteBook):
        self._publisher, self._session = publisher, session
        self._values, self._notes = values, notes

    def append(self, count: int) -> None:
        """Append so many records."""
        self._publisher.append_many(self._values.take(count))
        self._notes.write(Kind.APPENDED, self._values.count)
        self._notes.write(Kind.ACKNOWLEDGED, self._values.count)

    def look(self) -> None:
        """There is nothing to hear."""

    def end(self, timeout_s: float) -> int:
        """Wait until everything is released, and therefore merged: the exit code."""
        self._publisher.close()
        deadline = time.monotonic() + timeout_s
        while left := [each.name for each in self._session.glob("*/log.*") if _is_data(each)]:
            if time.monotonic() > deadline:
                sys.stderr.write(f"not merged: {left}\n")
                return NOT_MERGED_CODE
            wait(LOOK_S)
        self._notes.write(Kind.MERGED, self._values.count)
        self._notes.write(Kind.ENDED, self._values.count)
        return 0


def _is_data(path: Path) -> bool:
    return path.name.count(".") == 2
