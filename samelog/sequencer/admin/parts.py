"""What handlers of administrative requests, views and metrics see of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from samelog.archiver.node_archive import NodeArchive
from samelog.sequencer.cluster.file_guard import FileGuard
from samelog.sequencer.cluster.scrubber import Scrubber
from samelog.sequencer.host import NodeSyncer
from samelog.sequencer.parts import LogParts, MemberParts, PeerParts, RaftParts


class ServedNode(Protocol):
    """Its parts, in records."""

    @property
    def member(self) -> MemberParts:
        """What it has once."""

    @property
    def logs(self) -> LogParts:
        """Its logs, and the replicated state."""

    @property
    def raft(self) -> RaftParts:
        """Its part in the Raft group."""

    @property
    def peers(self) -> PeerParts:
        """The other members."""

    @property
    def archive(self) -> NodeArchive:
        """Archiving."""

    @property
    def file_guard(self) -> FileGuard:
        """What checks that its files are there."""

    @property
    def scrubber(self) -> Scrubber:
        """What checks that its files are whole."""

    @property
    def syncers(self) -> Sequence[NodeSyncer]:
        """What makes merged logs, Raft's files and session logs durable, in this order."""
