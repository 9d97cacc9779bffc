"""All of a node's archiving: the leader's rounds, carrying out what Raft decided, and the history
of it.

Invariant: what is applied is in the history before the next snapshot counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine
from typing import Any

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.copies.required import RequiredCopies
from samelog.archiver.digests import Digests
from samelog.archiver.empty_files import EmptyFiles
from samelog.archiver.history import ArchiveHistory
from samelog.archiver.log_history import LogHistoryReader
from samelog.archiver.parts import ArchiverParts
from samelog.archiver.policy_file import PolicyFile
from samelog.archiver.rounds import ArchiveRounds
from samelog.archiver.truncation import Truncation
from samelog.store.disk.files import File


class NodeArchive:
    """One node's archiving."""

    def __init__(self, parts: ArchiverParts) -> None:
        self._replication = parts.replication
        self._cluster = parts.cluster
        due = asyncio.Event()
        self.policy = PolicyFile(parts.fs, parts.config.archive.policy)
        self.copies = RequiredCopies(parts, on_copied=due.set)
        self.rounds = ArchiveRounds(parts, self.policy, self.copies, due)
        self.truncation = Truncation(parts)
        self.history = ArchiveHistory(parts)
        self.digests = Digests(parts)
        self.empty_files = EmptyFiles(parts, self.history)
        self.log_history = LogHistoryReader(parts, self.history, self.digests)

    def start(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Begin to work."""
        spawn(self.truncation.run())
        spawn(self.rounds.run())
        spawn(self.copies.queue.run())
        spawn(self.digests.run())
        spawn(self.empty_files.run())

    def close(self) -> None:
        """Close the files of the history, once everything has ended."""
        self.history.close()

    # --- events -----------------------------------------------------------------------------------

    def applied(self, command: ArchiveCommand) -> None:
        """An entry that archives is applied."""
        self.history.applied(command)
        self.truncation.log_start_changed(command.partition)
        if not command.files:
            self.rounds.start_soon()  # files may have become deletable

    def partition_opened(self, number: int) -> None:
        """The merged log of a partition was opened."""
        self.truncation.log_start_changed(number)

    def forget_deleted(self, known: Container[str]) -> None:
        """Remove what is left of logs that are not among the known ones."""
        self.history.forget_deleted(known)
        self.digests.forget_deleted(known)

    def take_dirty(self) -> list[File]:
        """What has to be synced before a snapshot may count."""
        return self.history.take_dirty()

    # --- what an operator asks --------------------------------------------------------------------

    def disagreements(self) -> list[str]:
        """Nodes whose policy is not the leader's, which counts, as far as is known here."""
        policies = {
            number: health.policy
            for number in self._cluster.connected()
            if (health := self._cluster.health(number)) is not None
        }
        leader = self._replication.leader
        if leader not in policies:
            return []
        counts = policies[leader]
        return [
            f"{self._cluster.name(number)} has {policy or 'no policy'}, not the leader's"
            for number, policy in sorted(policies.items())
            if policy != counts
        ]
