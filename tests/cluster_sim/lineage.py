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
    from samelog.sequencer.state.tables.topics import Topic
    from samelog.sequencer.state.types import State

Committed = dict[tuple[str, str, Name], tuple[int, int]]
"""(session, run id, partition) -> merged place by committed instructions."""


class Lineage:
    """All logs of one world, by log id and partition, and by name."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.horizon: str | None = None
        """How long keys count, if they count once."""
        self.logs: dict[tuple[str, int], CanonicalLog] = {}
        self._ids: dict[str, list[str]] = {}
        """Topic -> the ids of its logs, the oldest first."""
        self._placed: set[str] = set()
        """Topics whose partitions are in data groups."""
        self._begun: dict[Name, str] = {}
        """The log that the group of such a partition has begun last, if not the first."""
        self._given_up: dict[tuple[str, int], str] = {}
        """(session, number) of what was committed -> the newest log that was gone by then."""

    def told(self, state: State) -> None:
        """Raft knows of these topics."""
        for topic in state.topics.by_id.values():
            ids, known = _ids(topic), self._ids.get(topic.name, [])
            longer, shorter = (ids, known) if len(ids) > len(known) else (known, ids)
            if longer[: len(shorter)] != shorter:
                raise Violation("one log at a time", f"{topic.name} has {ids}, and had {known}")
            self._ids[topic.name] = longer
            if topic.is_placed:
                self._placed.add(topic.name)

    def was_reset(self, state: State, committed: Committed) -> None:
        """A hard reset was applied first: what was committed by now belongs to the old logs, but
        for what is in data groups, which have yet to follow.
        """
        before = {name: len(ids) for name, ids in self._ids.items()}
        self.told(state)
        for name, ids in self._ids.items():
            if before.get(name) == len(ids):
                raise Violation("resets restart logs", f"{name} continues in {ids[-1]}")
        for key, reached in committed.items():
            if not self.is_placed(key[2][0]):
                self._give_up(key, reached, self._ids[key[2][0]][-2])

    def begun_anew(self, name: Name, log_id: str, committed: Committed) -> bool:
        """The group of a partition has restarted its log, as Raft said that it shall: what was
        committed in the group by now belongs to the log before. Whether that is news.
        """
        ids, before = self._ids[name[0]], self._newest(name)
        if ids.index(log_id) <= ids.index(before):
            return False
        self._begun[name] = log_id
        for key, reached in committed.items():
            if key[2] == name:
                self._give_up(key, reached, before)
        return True

    def _give_up(self, key: tuple[str, str, Name], reached: tuple[int, int], old: str) -> None:
        run = self._history.runs.get(key)
        for append in () if run is None else run.appends:
            for number in append.numbers if append.end <= reached else ():
                self._given_up.setdefault((key[0], number), old)

    def is_placed(self, topic: str) -> bool:
        """Whether its partitions are in data groups."""
        return topic in self._placed

    def _newest(self, name: Name) -> str:
        """The log that a partition has now: in a data group, once that has begun it."""
        ids = self._ids[name[0]]
        return self._begun.get(name, ids[0]) if self.is_placed(name[0]) else ids[-1]

    def newest_id(self, name: Name) -> str:
        """The id of the log that a partition has now; empty: Raft has no such topic yet."""
        return self._newest(name) if name[0] in self._ids else ""

    def take_up(self, topic: str, log_id: str, partition: int) -> CanonicalLog:
        """A log that somebody holds."""
        if log_id not in self._ids.get(topic, ()):
            raise Violation("one log at a time", f"{topic} has no log {log_id}")
        known = self.logs.get((log_id, partition))
        if known is None:
            known = CanonicalLog(topic, partition, self._history.is_published)
            name = topic, partition
            known.accepts = lambda session, number: self._accepts(name, log_id, session, number)
            if self.horizon is not None:
                known.first = FirstKeys(self.horizon, self._history.keys)
            self.logs[log_id, partition] = known
        return known

    def _accepts(self, name: Name, log_id: str, session: str, number: int) -> None:
        """A record is merged: not one of an older log, nor one that a newer log should have."""
        ids = self._ids[name[0]]
        old = self._given_up.get((session, number))
        if old is not None and ids.index(log_id) > ids.index(old):
            raise Violation(
                "once and in order", f"{session} {number} of log {old} is merged into {log_id} too"
            )
        if old is None and log_id != self._newest(name):
            raise Violation(
                "once and in order", f"{session} {number} is merged into {log_id}, which was gone"
            )

    def present(self, name: Name) -> CanonicalLog | None:
        """The log that a partition has now, if anything is in it."""
        if name[0] not in self._ids:
            return None
        return self.logs.get((self._newest(name), name[1]))

    def is_present(self, log_id: str, name: Name) -> bool:
        """Whether it is the log that its partition has now."""
        return self._newest(name) == log_id

    def is_given_up(self, session: str, number: int) -> bool:
        """Whether a record was committed before a hard reset."""
        return (session, number) in self._given_up


def _ids(topic: Topic) -> list[str]:
    return [*topic.former_logs, topic.log_id]
