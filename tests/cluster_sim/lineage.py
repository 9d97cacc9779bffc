"""The logs that each partition has had: a hard reset puts another one in the place of the last.

Invariant: what Raft says decides which logs there may be, and in which order; all of them together
hold every record once, each session's in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster_sim.canonical import CanonicalLog
from tests.cluster_sim.first_keys import FirstKeys
from tests.cluster_sim.history import History, Name
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State, Topic


class Lineage:
    """All logs of one world, by log id and partition, and by name."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.horizon: str | None = None
        """How long keys count, if they count once."""
        self.logs: dict[tuple[str, int], CanonicalLog] = {}
        self._ids: dict[str, list[str]] = {}
        """Topic -> the ids of its logs, the oldest first."""
        self._given_up: dict[tuple[str, int], str] = {}
        """(session, number) of what was committed -> the newest log that was gone by then."""

    def told(self, state: State) -> None:
        """Raft knows of these topics."""
        for topic in state.topics.values():
            ids, known = _ids(topic), self._ids.get(topic.name, [])
            longer, shorter = (ids, known) if len(ids) > len(known) else (known, ids)
            if longer[: len(shorter)] != shorter:
                raise Violation("one log at a time", f"{topic.name} has {ids}, and had {known}")
            self._ids[topic.name] = longer

    def was_reset(
        self, state: State, committed: dict[tuple[str, str, Name], tuple[int, int]]
    ) -> None:
        """A hard reset was applied first: what was committed by now belongs to the old logs."""
        before = {name: len(ids) for name, ids in self._ids.items()}
        self.told(state)
        for name, ids in self._ids.items():
            if before.get(name) == len(ids):
                raise Violation("resets begin anew", f"{name} goes on in {ids[-1]}")
        for (session, run_id, place), reached in committed.items():
            run = self._history.runs.get((session, run_id, place))
            for append in () if run is None else run.appends:
                if append.end <= reached:
                    old = self._ids[place[0]][-2]
                    self._given_up.update(
                        ((session, n), old)
                        for n in append.numbers
                        if (session, n) not in self._given_up
                    )

    def take_up(self, topic: str, log_id: str, partition: int) -> CanonicalLog:
        """A log that somebody holds."""
        if log_id not in self._ids.get(topic, ()):
            raise Violation("one log at a time", f"{topic} has no log {log_id}")
        known = self.logs.get((log_id, partition))
        if known is None:
            known = CanonicalLog(topic, partition, self._history.is_published)
            known.accepts = lambda session, number: self._accepts(topic, log_id, session, number)
            if self.horizon is not None:
                known.first = FirstKeys(self.horizon, self._history.keys)
            self.logs[log_id, partition] = known
        return known

    def _accepts(self, topic: str, log_id: str, session: str, number: int) -> None:
        """A record is merged: not one of an older log, nor one that a newer log should have."""
        ids = self._ids[topic]
        old = self._given_up.get((session, number))
        if old is not None and ids.index(log_id) > ids.index(old):
            raise Violation(
                "once and in order", f"{session} {number} of log {old} is merged into {log_id} too"
            )
        if old is None and log_id != ids[-1]:
            raise Violation(
                "once and in order", f"{session} {number} is merged into {log_id}, which was gone"
            )

    def present(self, name: Name) -> CanonicalLog | None:
        """The log that a partition has now, if anything is in it."""
        ids = self._ids.get(name[0])
        return None if ids is None else self.logs.get((ids[-1], name[1]))

    def is_present(self, log_id: str) -> bool:
        """Whether it is the log that its topic has now."""
        return any(ids[-1] == log_id for ids in self._ids.values())

    def is_given_up(self, session: str, number: int) -> bool:
        """Whether a record was committed before a hard reset."""
        return (session, number) in self._given_up


def _ids(topic: Topic) -> list[str]:
    return [*topic.former_logs, topic.log_id]
