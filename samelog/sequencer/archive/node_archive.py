"""All of a node that has to do with archiving: the leader's rounds, carrying out what Raft decided,
and the history of it.

Invariant: what is applied is in the history before the next snapshot counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Coroutine
from typing import TYPE_CHECKING, Any

from samelog.sequencer.archive.archiving import Archiving
from samelog.sequencer.archive.copies import Copies
from samelog.sequencer.archive.digests import Digests
from samelog.sequencer.archive.empty_files import EmptyFiles
from samelog.sequencer.archive.history import History
from samelog.sequencer.archive.policy_file import PolicyFile
from samelog.sequencer.archive.rounds import ArchiveRounds
from samelog.sequencer.host import Host
from samelog.sequencer.state.commands import Archive
from samelog.store.disk.files import FileSystem

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


class NodeArchive:
    """One node's archiving."""

    def __init__(
        self, node: Node, fs: FileSystem, host: Host, *, peers: Callable[[], list[int]]
    ) -> None:
        """`peers` names those that can be asked, the best first."""
        config = node.config
        self._node = node
        self.policy = PolicyFile(fs, config.archive.policy)
        self.copies = Copies(node, host)
        self.rounds = ArchiveRounds(node, self.policy, self.copies, fs, host.in_thread)
        self.copies.queue.on_copied = self.rounds.soon
        self.local = Archiving(
            fs,
            node.replica.machine,
            node.merging,
            in_thread=host.in_thread,
            sync_log=node.group.sync_now,
        )
        self.history = History(
            fs,
            os.path.join(config.data, "history"),
            node.replica.machine,
            peers=peers,
            send=node.links.send,
        )
        self.digests = Digests(
            fs, os.path.join(config.data, "digests"), node.merging, in_thread=host.in_thread
        )
        self.empty_files = EmptyFiles(fs, node.merging, self.history, in_thread=host.in_thread)
        node.replica.on_archived = self._archived
        node.replica.on_deleted_known = self._deleted_known
        node.merging.on_opened = self.local.look
        node.merging.more_dirty = self.history.take_dirty

    def start(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Begin to work."""
        spawn(self.local.run())
        spawn(self.rounds.run())
        spawn(self.copies.queue.run())
        spawn(self.digests.run())
        spawn(self.empty_files.run())

    def _deleted_known(self, known: Container[str]) -> None:
        self.history.forget_deleted(known)
        self.digests.forget_deleted(known)

    def disagreements(self) -> list[str]:
        """Nodes whose policy is not the leader's, which counts, as far as is known here."""
        node = self._node
        leader = node.group.raft.leader
        views = {
            number: view.health.policy
            for number, view in node.coordinator.views.items()
            if view.connected and view.health is not None and number in node.members.all
        }
        if leader not in views:
            return []
        counts = views[leader]
        return [
            f"{node.members.name(number)} has {policy or 'no policy'}, not the leader's"
            for number, policy in sorted(views.items())
            if policy != counts
        ]

    def _archived(self, command: Archive) -> None:
        self.history.archived(command)
        self.local.look(command.partition)
        if not command.files:
            self.rounds.soon()  # files may have become deletable
