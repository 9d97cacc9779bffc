"""Questions to the other members about the readers of a topic. Pure.

Only the node that serves a subscriber knows of it, so a node that is to delete a topic asks the
others.

Invariant: a question ends when every member that was asked has answered, or when it is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


class ReaderSurveys:
    """The questions of one node."""

    def __init__(self) -> None:
        self._open: dict[str, ReaderSurvey] = {}

    def begin(
        self, question: str, members: Iterable[int], on_done: Callable[[], None]
    ) -> ReaderSurvey:
        """Ask these members; `on_done` is called once all have answered."""
        survey = self._open[question] = ReaderSurvey(set(members), on_done)
        return survey

    def told(self, member: int, question: str, readers: Sequence[str]) -> None:
        """Note a member's answer; answers to closed questions are ignored."""
        survey = self._open.get(question)
        if survey is not None:
            survey.told(member, readers)

    def close(self, question: str) -> None:
        """Wait for no more answers."""
        self._open.pop(question, None)


class ReaderSurvey:
    """One question."""

    def __init__(self, silent: set[int], on_done: Callable[[], None]) -> None:
        self.silent = silent
        """Members that have not answered."""
        self.readers: set[str] = set()
        self._on_done = on_done

    def told(self, member: int, readers: Sequence[str]) -> None:
        """Note a member's answer."""
        if member in self.silent:
            self.silent.discard(member)
            self.readers.update(readers)
            if not self.silent:
                self._on_done()
