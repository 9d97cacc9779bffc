"""What must hold in every world at every moment. Any breach raises Violation.

Watched are: one leader in each term, one vote of a node in each term, equal entries for equal
(index, term) with equal histories, committed entries never different, on a majority's disks when
committed, not to be outvoted, and in every later leader's log; entries applied in order and each
once; reads that see every earlier commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.consensus import Effects, Entry, Membership, Role
from samelog.consensus.messages import RaftMessage, VoteReply
from samelog.consensus.quorum import majority

if TYPE_CHECKING:
    from tests.sim.node import SimNode
    from tests.simulation.trace import Trace


class Violation(Exception):
    """A promise of Raft, or of this implementation, was broken."""


class Checker:
    """Sees everything; no node does."""

    def __init__(self, nodes: list[SimNode], trace: Trace) -> None:
        self._nodes = nodes
        self._trace = trace
        self.membership = Membership((), ())
        """Who belongs to the group by what is committed."""
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._entries: dict[tuple[int, int], tuple[bytes, int]] = {(0, 0): (b"", 0)}
        self._committed: dict[int, tuple[int, int]] = {}
        self._members: dict[int, Membership] = {}
        self._chains: dict[int, int] = {0: 0}
        self.committed_index = 0
        self.reads = 0
        self.elections = 0

    # --- what a node does -------------------------------------------------------------------------

    def effects(self, node: SimNode, effects: Effects) -> None:
        """A batch of effects is about to be carried out."""
        for entry in effects.entries:
            self._entry(node, entry)

    def sent(self, node: SimNode, to: int, message: RaftMessage) -> None:
        """A message leaves a node. A vote that does not count is no promise."""
        if isinstance(message, VoteReply) and message.granted and message.counts:
            known = self._votes.setdefault((node.number, message.term), to)
            if known != to:
                raise Violation(f"{node} votes for {known} and {to} in {message.term}")

    def state(self, node: SimNode) -> None:
        """A node has changed."""
        raft = node.raft
        term, commit = raft.term, raft.commit_index
        if node.led_term != term and raft.role is Role.LEADER:
            node.led_term = term
            self._elected(node)
        if commit == node.seen_commit and term == node.seen_term:
            return
        for index in range(max(node.seen_commit + 1, raft.first_index), commit + 1):
            self._commit(node, index, raft.term_at(index))
        if commit < node.seen_commit:
            raise Violation(f"{node} un-commits")
        if term < node.seen_term:
            raise Violation(f"{node} goes back in terms")
        node.seen_commit, node.seen_term = commit, term

    def applied(self, node: SimNode, entry: Entry, chain: int) -> None:
        """A node's state machine has taken an entry; `chain` stands for its whole state."""
        index = entry.index
        if index != node.applied + 1:
            raise Violation(f"{node} applies {index} after {node.applied}")
        known_term, _ = self._committed.get(index, (None, 0))
        if known_term != entry.term:
            raise Violation(f"{node} applies ({index}, {entry.term})")
        if self._chains.setdefault(index, chain) != chain:
            raise Violation(f"{node} reaches another state at {index}")

    def installed(self, node: SimNode, index: int, chain: int) -> None:
        """A node's state machine was replaced by a snapshot."""
        self._trace.event(str(node), f"installs snapshot {index}")
        if index < node.applied:
            raise Violation(f"{node} goes back to the snapshot {index}")
        if self._chains.get(index) != chain:
            raise Violation(f"{node} installs a false snapshot {index}")

    def read_answered(self, node: SimNode, floor: int, index: int) -> None:
        """A read that was asked for when `floor` was committed was answered with `index`."""
        self.reads += 1
        if index < floor:
            raise Violation(f"{node} reads at {index}, but {floor} was committed")

    def chain_at(self, index: int) -> int:
        """The state that everybody has after applying this entry."""
        return self._chains[index]

    # --- rules ------------------------------------------------------------------------------------

    def _entry(self, node: SimNode, entry: Entry) -> None:
        before = (
            node.raft.term_at(entry.index - 1) if entry.index > node.raft.first_index - 1 else 0
        )
        known = self._entries.setdefault((entry.index, entry.term), (entry.data, before))
        if known != (entry.data, before):
            raise Violation(f"{node} holds another {entry.index, entry.term}")

    def _elected(self, node: SimNode) -> None:
        raft = node.raft
        self.elections += 1
        self._trace.event(str(node), f"leads term {raft.term}")
        known = self._leaders.setdefault(raft.term, node.number)
        if known != node.number:
            raise Violation(f"{known} and {node} lead term {raft.term}")
        for index in range(raft.first_index, self.committed_index + 1):
            term, commit_term = self._committed[index]
            if commit_term >= raft.term:
                continue
            if index > raft.last_index or raft.term_at(index) != term:
                raise Violation(f"{node} leads {raft.term} without committed entry {index, term}")

    def _commit(self, node: SimNode, index: int, term: int) -> None:
        known = self._committed.get(index)
        own = node.raft.membership_at(index)
        members = self._members.setdefault(index, own)
        if own != members and own.voters:  # one that joins may not have read so far
            raise Violation(f"{node} goes by {own} at {index}, others by {members}")
        if known is not None:
            if known[0] != term:
                raise Violation(f"{node} commits {index, term}, not {known[0]}")
            return
        self._newly_committed(node, index, term)

    def _newly_committed(self, node: SimNode, index: int, term: int) -> None:
        if index != self.committed_index + 1:
            raise Violation(f"{node} commits {index} too early")
        self._committed[index] = (term, node.raft.term)
        self._trace.event(str(node), f"commits {index, term} in term {node.raft.term}")
        self.committed_index = index
        self.membership = self._members[index]
        voters = node.raft.membership.voters
        holders = [n for n in voters if self._vouches(self._nodes[n], index, term)]
        if len(holders) < majority(len(voters)):
            raise Violation(f"{node} commits {index, term}, durable on {holders} of {voters} only")
        self._check_final(node, index, term)

    def _vouches(self, node: SimNode, index: int, term: int) -> bool:
        """For the entry and for the bytes that it names."""
        if not node.vouched_for(index, term):
            return False
        data, _ = self._entries[index, term]
        options = node.world.options
        is_checked = options.reach_chance and not options.lazy_sync
        return not is_checked or node.has_bytes(Entry(index, term, data))

    def _check_final(self, node: SimNode, index: int, term: int) -> None:
        """No node that lacks a committed entry could win an election with what the disks hold."""
        for candidate in self._nodes:
            voters = candidate.disk.membership(candidate.first).voters
            if candidate.wiped or candidate.number not in voters:
                continue
            if not candidate.disk.holds(index, term):
                last = candidate.disk.last()
                asked = [self._nodes[number] for number in voters]
                sure = [voter for voter in asked if not (voter.wiped or voter.doubtful)]
                grants = sum(voter.disk.last() <= last for voter in sure)
                if grants >= majority(len(voters)):
                    breach = f"{node} commits {index, term}, but {candidate} could lead without it"
                    raise Violation(breach)
