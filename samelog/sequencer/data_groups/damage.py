"""What is wrong with replicas of data groups here, for whoever asks.

Invariant: what is damaged of one replica keeps no other one from working, and is said until it is
not so any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from samelog.runtime.log import log_event
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.raft.raft_errors import RaftStoreError

log = logging.getLogger(__name__)


class Damage:
    """One member's."""

    def __init__(self, replicas: Mapping[int, DataReplica]) -> None:
        self._replicas = replicas
        self.damaged: dict[int, str] = {}
        """Groups whose replica cannot begin here, and why."""
        self._noted: dict[int, list[str]] = {}
        """What is wrong with a replica, as it was when it last was at work."""

    def guard(self, number: int, work: Callable[[], None]) -> None:
        """Begin a replica, or remove what is left of one; note if that cannot be."""
        try:
            work()
        except RaftStoreError as error:
            self.damaged[number] = str(error)
            log_event(log, logging.CRITICAL, "replica cannot begin", group=number, error=error)

    def note(self, replica: DataReplica) -> None:
        """Look at a replica that is at work."""
        if found := replica.troubles:
            self._noted[replica.number] = found
        else:
            self._noted.pop(replica.number, None)

    def forget(self, number: int) -> None:
        """The replica is gone."""
        self._noted.pop(number, None)

    def try_again(self, groups: Iterable[int]) -> None:
        """Replicas of these may begin now: what was in the way may be gone."""
        for number in groups:
            self.damaged.pop(number, None)

    @property
    def troubles(self) -> Iterator[str]:
        """What is wrong, in words."""
        for number, why in self.damaged.items():
            yield f"the replica of group {number} cannot begin: {why}"
        for number, found in self._noted.items():
            yield from (f"group {number}: {text}" for text in found)

    @property
    def count(self) -> int:
        """How many replicas cannot begin here, or are halted."""
        return len(self.damaged) + sum(bool(each.raft.halted) for each in self._replicas.values())
