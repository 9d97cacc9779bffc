"""What publishers did and were told, kept outside of the system.

Invariant: a record is noted before its first byte is written, and its place once it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Name = tuple[str, int]
"""(topic, partition)."""


@dataclass(slots=True)
class Written:
    """One append: where it ended, and the numbers of its records that may be merged."""

    end: tuple[int, int]
    numbers: Sequence[int]
    size: int
    """In bytes."""


@dataclass(slots=True)
class RunHistory:
    """One run's appends to one partition, and how far the publisher was told."""

    appends: list[Written] = field(default_factory=list)
    acknowledged: int = 0
    merged: int = 0
    """How many of the appends."""


class History:
    """All sessions."""

    def __init__(self) -> None:
        self.published: dict[tuple[str, int], Name] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.runs: dict[tuple[str, str, Name], RunHistory] = {}
        """(session, run id, partition) -> what was written."""
        self.by_session: dict[str, int] = {}
        self.keys: dict[tuple[str, int], bytes] = {}
        """Of records in topics whose keys count once."""

    def next_numbers(self, session: str, name: Name, count: int) -> range:
        """Numbers for new records that are about to be written."""
        first = self.by_session.get(session, 0)
        self.by_session[session] = first + count
        numbers = range(first, first + count)
        for number in numbers:
            self.published[session, number] = name
        return numbers

    def is_published(self, session: str, number: int, topic: str, partition: int) -> bool:
        """Whether that was ever written there."""
        return self.published.get((session, number)) == (topic, partition)

    def written(self, session: str, run_id: str, name: Name, append: Written) -> RunHistory:
        """An append is in the file."""
        run = self.runs.setdefault((session, run_id, name), RunHistory())
        run.appends.append(append)
        return run

    def told_acknowledged(
        self, session: str, run_id: str, name: Name, place: tuple[int, int]
    ) -> Iterator[tuple[Written, int]]:
        """Everything up to a place is acknowledged: what that adds."""
        run = self.runs.get((session, run_id, name))
        while run is not None and run.acknowledged < len(run.appends):
            append = run.appends[run.acknowledged]
            if append.end > place:
                return
            run.acknowledged += 1
            self.acknowledged.update((session, number) for number in append.numbers)
            yield append, run.acknowledged

    def told_merged(self, session: str, run_id: str, name: Name, place: tuple[int, int]) -> None:
        """Everything up to a place is merged."""
        run = self.runs.get((session, run_id, name))
        while run is not None and run.merged < len(run.appends):
            if run.appends[run.merged].end > place:
                return
            run.merged += 1

    def of_run(self, session: str, run_id: str) -> Iterator[tuple[Name, RunHistory]]:
        """What a run wrote, by partition."""
        for (owner, known, name), run in self.runs.items():
            if (owner, known) == (session, run_id):
                yield name, run
