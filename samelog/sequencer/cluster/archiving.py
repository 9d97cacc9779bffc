"""What archiving sees of a node: its part in the Raft group, and the other members.

Invariant: nothing here decides; it is the node's side of `archiver.parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from samelog.archiver.command import ArchiveCommand
from samelog.sequencer.cluster.peers import PeerSender
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.types import State
from samelog.wire.bounds import Health
from samelog.wire.peer_messages import HistoryAsked, HistoryTold


class GroupReplication:
    """The Raft group, as archiving sees it. Implements archiver.parts.Replication."""

    def __init__(self, group: RaftGroup) -> None:
        self._group = group

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self._group.is_leader

    @property
    def leader(self) -> int | None:
        """Who leads, as far as is known here."""
        return self._group.raft.leader

    @property
    def voters(self) -> Collection[int]:
        """Who votes."""
        return self._group.raft.voters

    def propose(self, command: ArchiveCommand) -> None:
        """Have a command replicated. Raises NotLeader, Busy."""
        self._group.propose([command])

    async def sync(self) -> None:
        """Make everything written to the Raft log durable."""
        await self._group.sync_now()


class MemberViews:
    """The other members, as archiving sees them. Implements archiver.parts.ClusterView."""

    def __init__(
        self,
        machine: StateMachine,
        names: Callable[[], Mapping[int, str]],
        coordinator: Coordinator,
        presence: Presence,
        sender: PeerSender,
        *,
        cluster: Callable[[], State],
        peers: Callable[[], Sequence[int]],
        indexed: Callable[[int], int | None],
    ) -> None:
        """`names`: of the members, by number; `cluster`: the state of group 0, as it is here;
        `peers` can be asked, the best first; `indexed`: how far a partition's index of keys is on
        the disk, None: it has none.
        """
        self._indexed = indexed
        self.machine = machine
        self._names = names
        self._coordinator = coordinator
        self._presence = presence
        self._sender = sender
        self._cluster = cluster
        self.peers = peers

    def health(self, number: int) -> Health | None:
        """What a member said last of its disk, clock and policy."""
        return self._presence.health.get(number)

    def connected(self) -> Iterator[int]:
        """The members that are up, as far as is known here."""
        names = self._names()
        return (number for number in self._presence.up if number in names)

    def name(self, number: int) -> str:
        """A member's name."""
        return self._names().get(number, f"node {number}")

    def majority_merged(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Partition -> the offset below which a majority has merged durably, and this node and a
        majority have the keys in their indexes.
        """
        merged = self._coordinator.majority_merged(partitions)
        for number, offset in merged.items():
            if (indexed := self._indexed(number)) is not None:
                merged[number] = min(offset, indexed, self._coordinator.majority_indexed(number))
        return merged

    def committed_offset(self, group: str, partition: int) -> int:
        """The offset that a consumer group has committed; 0: none."""
        return self._cluster().groups.committed(group, partition)

    def log_bytes(self, number: int) -> int:
        """What a member said last of its logs; 0: nothing."""
        return self._presence.log_bytes.get(number, 0)

    def send(self, number: int, message: HistoryAsked | HistoryTold) -> bool:
        """Send a message; False: the member is not connected."""
        return self._sender.send(number, message)
