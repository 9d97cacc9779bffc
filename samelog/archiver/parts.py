"""What archiving takes of a node: views of the replicated state, of the merged logs, of the Raft
group and of the other members. A node gives them once, and archiving knows nothing else of it.

Invariant: nothing here can change what is replicated but `Replication.propose`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from samelog.archiver.command import ArchiveCommand
from samelog.archiver.compaction import Compactions
from samelog.archiver.compaction_progress import CompactionProgress
from samelog.archiver.copies.process import SegmentCopier
from samelog.archiver.policy_file import PolicyFile
from samelog.archiver.shares import LogShares
from samelog.config.tables.node import NodeConfig
from samelog.runtime.at_work import AtWork
from samelog.runtime.clock import Clock
from samelog.runtime.disk.threads import InThread
from samelog.store.disk.files import FileSystem
from samelog.store.merged.log import MergedLog
from samelog.wire.bounds import Health
from samelog.wire.peer_messages import HistoryAsked, HistoryTold


class PartitionView(Protocol):
    """A partition in the replicated state."""

    @property
    def number(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def topic_id(self) -> str: ...
    @property
    def log_start(self) -> int: ...
    @property
    def start_segment(self) -> int: ...
    @property
    def start_checksum(self) -> int: ...
    @property
    def rolls(self) -> Sequence[tuple[int, int]]: ...
    @property
    def compactions(self) -> Compactions: ...
    @property
    def schema_since(self) -> Sequence[tuple[int, int]]: ...


class TopicView(Protocol):
    """A topic in the replicated state."""

    @property
    def name(self) -> str: ...
    @property
    def log_id(self) -> str: ...
    @property
    def former_logs(self) -> Collection[str]: ...
    @property
    def settings(self) -> Mapping[str, str]: ...
    @property
    def partition_numbers(self) -> Sequence[int]: ...


class PartitionsView(Protocol):
    """The partitions of a group."""

    @property
    def by_number(self) -> Mapping[int, PartitionView]: ...


class TopicsView(Protocol):
    """All living topics."""

    @property
    def by_id(self) -> Mapping[str, TopicView]: ...
    @property
    def by_name(self) -> Mapping[str, str]:
        """Name -> id."""


class TransfersView(Protocol):
    """Partitions on their way between two groups."""

    def is_coming(self, partition: int) -> bool: ...


class StateView(Protocol):
    """The replicated state."""

    @property
    def partitions(self) -> PartitionsView: ...
    @property
    def topics(self) -> TopicsView: ...
    @property
    def transfers(self) -> TransfersView: ...
    @property
    def copy_targets(self) -> Sequence[str]:
        """The URLs of all targets of copies there ever were."""

    def schema_texts(self, topic_id: str, newest: int) -> tuple[str, ...]:
        """A topic's schema: the texts of the versions up to `newest`."""


class Machine(Protocol):
    """The replicated state machine; a snapshot replaces its state."""

    @property
    def state(self) -> StateView: ...


class PartitionLog(Protocol):
    """A partition's merged log on this node."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> str:
        """The id of its log."""

    @property
    def index(self) -> int: ...
    @property
    def log(self) -> MergedLog: ...
    @property
    def fault(self) -> object | None:
        """Why it can neither be merged nor read any more."""

    @property
    def compaction(self) -> CompactionProgress | None:
        """How far this node is with the compaction that was ordered last."""

    def changed(self) -> None:
        """Tell readers that the log has changed."""


class MergedLogs(Protocol):
    """All merged logs of this node."""

    @property
    def partitions(self) -> Mapping[int, PartitionLog]:
        """Those that are open; nothing was ever written to the others."""

    def copied(self, number: int) -> None:
        """Note that a partition's log continues at another offset, because it was copied."""


class Replication(Protocol):
    """This node's part in the Raft group."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader(self) -> int | None: ...
    @property
    def voters(self) -> Collection[int]: ...
    def propose(self, command: ArchiveCommand) -> None:
        """Propose a command without waiting for it. Raises NotLeader, Busy."""

    async def sync(self) -> None:
        """Make everything written to the Raft log durable."""


class ClusterView(Protocol):
    """What this node knows of the others."""

    def health(self, number: int) -> Health | None:
        """What a member said last of its disk, clock and policy; None: nothing."""

    def connected(self) -> Iterable[int]:
        """The members that this node knows to be up."""

    def name(self, number: int) -> str: ...
    def majority_merged(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Partition -> the offset below which a majority has merged durably."""

    def committed_offset(self, group: str, partition: int) -> int:
        """The offset that a consumer group has committed; 0: none."""

    def log_bytes(self, number: int) -> int:
        """What a member said last of the bytes of its logs that are part of the limit; 0: nothing,
        or that it has one group only.
        """

    def peers(self) -> Sequence[int]:
        """The peers to ask, the best first."""

    def send(self, number: int, message: HistoryAsked | HistoryTold) -> object:
        """Send a message, if the member is connected."""


@dataclass(frozen=True, slots=True)
class ArchiverParts:
    """All that archiving takes of its node."""

    config: NodeConfig
    fs: FileSystem
    clock: Clock
    in_thread: InThread
    copier: SegmentCopier
    machine: Machine
    merging: MergedLogs
    replication: Replication
    cluster: ClusterView
    at_work: AtWork
    """While one of its tasks works."""
    group: int
    """Which group's logs these are; the policy and the shares are the member's."""
    policy: PolicyFile
    shares: LogShares
