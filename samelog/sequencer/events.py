"""What the parts of one group's replica tell it, so that no part knows the others.

Every part that has something to tell takes the Protocol with its own events when it is made; one
that is forgotten is a type error. `NodeEvents` is all of them together.

Invariant: events are told in the event loop, in the order in which things happen; a handler neither
raises, but for broken invariants, nor blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Protocol

from samelog.archiver.command import ArchiveCommand
from samelog.format.positions import SessionPosition
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.tables.placement import BeginAnew
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.store.disk.files import File

Ends = dict[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> (roll, byte): where a sender says that a run ends."""


class SessionEvents(Protocol):
    """Of the session store."""

    def session_log_unsynced(self, number: int) -> None:
        """An input was opened, and its files hold more than is known to be durable, or was vouched
        for.
        """


class Recording(Protocol):
    """Of whoever finds damage."""

    def record_event(self, kind: str, text: str) -> None:
        """Leave an event in the replicated state, if there is a leader: it remains when the trouble
        is over.
        """


class MergingEvents(Recording, Protocol):
    """Of the merged logs."""

    def partition_opened(self, number: int) -> None:
        """The merged log of a partition is open, perhaps restarted."""

    def partition_stalled(self, number: int) -> None:
        """A partition may need merged bytes from a peer to go on."""

    def reader_complained(self) -> None:
        """A reader got something of a merged log that is not valid."""

    async def sync_raft_log(self) -> None:
        """Make the Raft log durable: merged logs must never be durable further than it. Raises
        DiskFault.
        """

    def files_synced_with_merged_logs(self) -> list[File]:
        """Other files that have to be durable whenever the merged logs are."""

    def merged_logs_synced(self, numbers: Collection[int]) -> None:
        """What was merged of these partitions is durable here."""


class IntakeEvents(Protocol):
    """Of the intake."""

    def bytes_received(self, number: int) -> bool:
        """This node has received more bytes of an input; they need not be durable yet. Whether an
        entry is about to name them, and to be synced with them.
        """

    def positions_durable(self, positions: Mapping[int, SessionPosition]) -> None:
        """This node holds these inputs durably up to their positions."""

    def session_sync_failed(self) -> None:
        """A sync of session logs failed."""

    def run_finished(self, session: str, run_id: str, ends: Ends) -> None:
        """A sender that is connected to this node has finished a run."""


class ApplyEvents(Protocol):
    """Of the replicated state: what committed commands changed."""

    def entry_applied(self, index: int, commands: Sequence[AnyCommand], *, rejected: bool) -> None:
        """An entry is applied; `rejected`: one of its merge instructions was not accepted."""

    def run_changed(self, session: str) -> None:
        """A run of the session was opened or closed."""

    def session_retired(self, session: str) -> None:
        """The directory of a session was fenced."""

    def merge_committed(self, merge: Merge) -> None:
        """A merge instruction is committed, and queued for execution."""

    def inputs_released(self, inputs: Sequence[int]) -> None:
        """A majority has more of these inputs merged durably."""

    def inputs_deleted(self, inputs: Sequence[int]) -> None:
        """The topic of these inputs was deleted."""

    def inputs_moved(self, inputs: Sequence[int]) -> None:
        """The partition of these inputs goes to another group, which takes the rest of them."""

    def files_go(self) -> None:
        """The entry that is applied next may remove files. Raises CommitNotKept: it must not."""

    def inputs_removed(self, inputs: Sequence[int]) -> None:
        """The files of these inputs are about to be removed."""

    def logs_known(self, logs: Container[str]) -> None:
        """These are the ids of all merged logs, those of former lives included; nothing that
        belongs to another one is needed any more.
        """

    def records_archived(self, command: ArchiveCommand) -> None:
        """Some of a partition was archived."""

    def history_came(self, number: int, records: bytes, targets: Sequence[str]) -> None:
        """A partition came from another group, with the history of what was archived of it."""

    def reset_applied(self, command: SoftReset | HardReset | BeginAnew) -> None:
        """The cluster was reset."""

    def members_changed(self) -> None:
        """The replicated member list is another one."""

    def placement_changed(self) -> None:
        """The table of data groups, or a data group's configuration, is another one."""

    def units_moved(self) -> None:
        """What spans several groups has moved: begun, decided, or done in this group."""

    def topic_changed(self, topic_id: str) -> None:
        """A topic has other settings or partitions, a new schema, or is gone."""

    def views_dropped(self, base_ids: Collection[str]) -> None:
        """Views of these topics are gone."""

    def leadership_changed(self) -> None:
        """This node became leader, ceased to be, or learnt of another one."""

    def snapshot_installed(self) -> None:
        """The replicated state was replaced: what was derived from the old one is stale."""


class EntryBytesEvents(Protocol):
    """Of who knows which bytes entries name."""

    def bytes_named(self, parts: Sequence[Range]) -> None:
        """An entry of the leader names these ranges, all of which are here."""


class CoordinatorEvents(Protocol):
    """Of the coordinator."""

    def ends_wanted(self, session: str, run_id: str, ends: Ends, nodes: Sequence[int]) -> None:
        """This node leads, and has to know how much of a run each of these others holds."""

    def cursors_moved(self, cursors: Mapping[int, int]) -> None:
        """This node leads, and a majority has merged durably up to these offsets, by partition."""

    def checksums_differ(self, number: int, offset: int) -> None:
        """No majority can agree on a partition's checksum at this offset."""


class NodeEvents(
    SessionEvents,
    MergingEvents,
    IntakeEvents,
    ApplyEvents,
    EntryBytesEvents,
    CoordinatorEvents,
    Protocol,
):
    """Everything that the parts of one replica tell it."""
