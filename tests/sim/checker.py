"""What must hold in every world at every moment. Any breach raises Violation.

Watched are: one leader in each term, one vote of a node in each term, equal entries for equal
(index, term) with equal histories, committed entries never different, on a majority's disks when
committed, not to be outvoted, and in every later leader's log; entries applied in order and each
once; reads that see every earlier commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shiplog.consensus import Effects, Entry, Membership, Role
from shiplog.consensus.messages import Message, VoteReply
from shiplog.consensus.quorum import majority

if TYPE_CHECKING:
    from tests.sim.node import SimNode


class Violation(Exception):
    """A promise of Raft, or of this implementation, was broken."""


class Checker:
    """Sees everything; no node does."""

    def __init__(self, nodes: list[SimNode]) -> None:
        self._nodes = nodes
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

    def sent(self, node: SimNode, to: int, message: Message) -> None:
        """A message leaves a node."""
        if isinstance(message, VoteReply) and message.granted:
            known = self._votes.setdefault((node.number, message.term), to)
            self._require(known == to, f"{node} votes for {known} and {to} in {message.term}")

    def state(self, node: SimNode) -> None:
        """A node has changed."""
        raft = node.raft
        if raft.role is Role.LEADER and node.led_term != raft.term:
            node.led_term = raft.term
            self._elected(node)
        for index in range(max(node.seen_commit + 1, raft.first_index), raft.commit_index + 1):
            self._commit(node, index, raft.term_at(index))
        self._require(raft.commit_index >= node.seen_commit, f"{node} un-commits")
        self._require(raft.term >= node.seen_term, f"{node} goes back in terms")
        node.seen_commit, node.seen_term = raft.commit_index, raft.term

    def applied(self, node: SimNode, entry: Entry, chain: int) -> None:
        """A node's state machine has taken an entry; `chain` stands for its whole state."""
        self._require(
            entry.index == node.applied + 1, f"{node} applies {entry.index} after {node.applied}"
        )
        known_term, _ = self._committed.get(entry.index, (None, 0))
        self._require(known_term == entry.term, f"{node} applies ({entry.index}, {entry.term})")
        known = self._chains.setdefault(entry.index, chain)
        self._require(known == chain, f"{node} reaches another state at {entry.index}")

    def installed(self, node: SimNode, index: int, chain: int) -> None:
        """A node's state machine was replaced by a snapshot."""
        self._require(index >= node.applied, f"{node} goes back to the snapshot {index}")
        self._require(self._chains.get(index) == chain, f"{node} installs a false snapshot {index}")

    def read_answered(self, node: SimNode, floor: int, index: int) -> None:
        """A read that was asked for when `floor` was committed was answered with `index`."""
        self.reads += 1
        self._require(index >= floor, f"{node} reads at {index}, but {floor} was committed")

    def chain_at(self, index: int) -> int:
        """The state that everybody has after applying this entry."""
        return self._chains[index]

    # --- rules ------------------------------------------------------------------------------------

    def _entry(self, node: SimNode, entry: Entry) -> None:
        before = (
            node.raft.term_at(entry.index - 1) if entry.index > node.raft.first_index - 1 else 0
        )
        known = self._entries.setdefault((entry.index, entry.term), (entry.data, before))
        self._require(
            known == (entry.data, before), f"{node} holds another {entry.index, entry.term}"
        )

    def _elected(self, node: SimNode) -> None:
        raft = node.raft
        self.elections += 1
        known = self._leaders.setdefault(raft.term, node.number)
        self._require(known == node.number, f"{known} and {node} lead term {raft.term}")
        for index in range(raft.first_index, self.committed_index + 1):
            term, commit_term = self._committed[index]
            if commit_term < raft.term:
                self._require(
                    index <= raft.last_index and raft.term_at(index) == term,
                    f"{node} leads {raft.term} without committed entry {index, term}",
                )

    def _commit(self, node: SimNode, index: int, term: int) -> None:
        known = self._committed.get(index)
        own = node.raft.membership_at(index)
        members = self._members.setdefault(index, own)
        self._require(
            own == members or not own.voters,  # one that joins may not have read so far
            f"{node} goes by {own} at {index}, others by {members}",
        )
        if known is not None:
            self._require(known[0] == term, f"{node} commits {index, term}, not {known[0]}")
            return
        self._require(index == self.committed_index + 1, f"{node} commits {index} too early")
        self._committed[index] = (term, node.raft.term)
        self.committed_index = index
        self.membership = members
        voters = node.raft.membership.voters
        holders = [
            number for number in voters if self._nodes[number].trusted_disk.holds(index, term)
        ]
        self._require(
            len(holders) >= majority(len(voters)),
            f"{node} commits {index, term}, durable on {holders} of {voters} only",
        )
        self._check_final(node, index, term)

    def _check_final(self, node: SimNode, index: int, term: int) -> None:
        """No node that lacks a committed entry could win an election with what the disks hold."""
        for candidate in self._nodes:
            voters = candidate.disk.membership(candidate.first).voters
            if candidate.wiped or candidate.number not in voters:
                continue
            if not candidate.disk.holds(index, term):
                last = candidate.disk.last()
                asked = [self._nodes[number] for number in voters]
                grants = sum(voter.disk.last() <= last for voter in asked if not voter.wiped)
                self._require(
                    grants < majority(len(voters)),
                    f"{node} commits {index, term}, but {candidate} could lead without it",
                )

    def _require(self, holds: bool, breach: str) -> None:
        if not holds:
            raise Violation(breach)
