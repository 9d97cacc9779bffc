"""The Raft core as its driver sees it: messages, time and proposals in; one batch of effects out.

Nothing here reads a clock, draws chance of its own, or touches a file or a socket: the same calls
with the same arguments give the same effects. docs/raft.md shows the loop a driver must run.

Invariant: the effects of calls made between two `take_effects` are one batch, safe to carry out in
any interleaving with other nodes as long as each batch's own order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from samelog.consensus import election, follower, membership, replication
from samelog.consensus import messages as wire
from samelog.consensus.core import Core, Leadership
from samelog.consensus.effects import NOTHING, Effects
from samelog.consensus.errors import Busy, ChangePending, NotLeader
from samelog.consensus.log import RaftLog
from samelog.consensus.membership import Configuration, Membership, Memberships
from samelog.consensus.progress import ProgressStatus
from samelog.consensus.types import (
    ENTRY_OVERHEAD_BYTES,
    Entry,
    HardState,
    RaftConfig,
    Role,
    SaveToken,
    Snapshot,
)
from samelog.format.errors import InvariantError

if TYPE_CHECKING:
    from random import Random

_HANDLERS: dict[type[wire.Message], Callable[[Core, int, Any], None]] = {
    wire.PreVote: election.on_pre_vote,
    wire.PreVoteReply: election.on_pre_vote_reply,
    wire.Vote: election.on_vote,
    wire.VoteReply: election.on_vote_reply,
    wire.TimeoutNow: election.on_timeout_now,
    wire.Append: follower.on_append,
    wire.Commit: follower.on_commit,
    wire.Heartbeat: follower.on_heartbeat,
    wire.SnapshotChunk: follower.on_snapshot_chunk,
    wire.AppendReply: replication.on_append_reply,
    wire.AppendReject: replication.on_append_reject,
    wire.HeartbeatReply: replication.on_heartbeat_reply,
    wire.SnapshotReply: replication.on_snapshot_reply,
    wire.ReadRequest: replication.on_read_request,
    wire.ReadReply: replication.on_read_reply,
}
_FROM_LEADER = (wire.Append, wire.Commit, wire.Heartbeat, wire.SnapshotChunk)
_FROM_ANYBODY = frozenset((*_FROM_LEADER, wire.PreVote, wire.Vote, wire.TimeoutNow, wire.ReadReply))
"""Taken from nodes that we don't know as members too: they may hold a newer configuration."""


class Raft:
    """One node of one Raft group."""

    def __init__(
        self,
        node_id: int,
        voters: Sequence[int],
        *,
        learners: Sequence[int] = (),
        config: RaftConfig,
        random: Random,
        now: float,
        snapshot: Snapshot | None,
        entries: Sequence[Entry],
        hard_state: HardState,
        may_vote: bool = True,
        doubtful: bool = False,
    ) -> None:
        """Resume from what is on disk: `entries` follow `snapshot`, or overlap its end.

        A new node has no snapshot, no entries and HardState(0, None, 0). If the entries contradict
        the snapshot, the first effects say that it replaces them. Raises ValueError for a
        membership that cannot be, and InvariantError if snapshot, entries and hard state don't
        belong together.

        `voters` and `learners` hold only until a snapshot or an entry says otherwise; a node that
        joins a group whose members it is yet to learn names no voters.

        `doubtful`: a loss of power may have taken entries that this node had acknowledged. Its
        votes are part of no majority until it holds all that a leader has committed.
        """
        _check_members(voters, learners)
        restored = _restore_log(snapshot, entries)
        log = _log_behind(snapshot, ()) if restored is None else restored
        if hard_state.commit > log.last_index:
            raise InvariantError(
                f"entry {hard_state.commit} was committed but the log ends at {log.last_index}"
            )
        self._core = Core(
            node_id,
            memberships=_memberships(Membership(tuple(voters), tuple(learners)), snapshot, log),
            config=config,
            random=random,
            now=now,
            snapshot=snapshot,
            log=log,
            hard_state=hard_state,
            may_vote=may_vote,
            doubtful=doubtful,
        )
        if restored is None and snapshot is not None:
            self._core.install(snapshot)
        if self._core.voters == (node_id,):
            self._core.election_deadline = now

    # --- input ------------------------------------------------------------------------------------

    def step(self, sender: int, message: wire.Message, now: float) -> None:
        """Take a message; answers of nodes that are no members, and old terms, change nothing.

        Raises MalformedMessage for one that contradicts itself, InvariantError if Raft's promises
        are broken.
        """
        core = self._core
        core.now = now
        core.touched = True
        kind = type(message)
        if sender == core.node_id or not (sender in core.peers or kind in _FROM_ANYBODY):
            return
        if message.term != core.term and not self._meet_other_term(sender, message, kind):
            return
        _HANDLERS[kind](core, sender, message)

    def tick(self, now: float) -> None:
        """Let time pass."""
        core = self._core
        core.now = now
        core.touched = True
        core.reads.extend((context, None) for context in core.forwarded.expired(now))
        if core.leadership is not None:
            replication.tick(core, core.leadership)
        else:
            election.tick(core)

    def next_deadline(self) -> float:
        """When `tick` has something to do, if nothing else happens before."""
        core = self._core
        if core.leadership is not None:
            return min(core.leadership.heartbeat_deadline, core.leadership.quorum_deadline)
        deadline = min(core.election_deadline, core.forwarded.next_deadline())
        return min(deadline, core.retry_deadline) if core.votes else deadline

    def propose(self, data: Sequence[bytes], now: float) -> int:
        """Append one entry for each item; the index of the first.

        Raises NotLeader, Busy when too much waits to be committed, ValueError for nothing or an
        empty item.
        """
        core = self._core
        core.now = now
        core.touched = True
        lead = core.leadership
        if lead is None:
            raise NotLeader(core.leader)
        if lead.transfer_to is not None:
            raise NotLeader(lead.transfer_to)
        if not data or not all(data):
            raise ValueError("a proposal needs at least one item, and none may be empty")
        if any(map(membership.is_configuration, data)):
            raise ValueError("a configuration is proposed by propose_configuration")
        return self._append(lead, data)

    def propose_configuration(self, configuration: Configuration, now: float) -> int:
        """Append a configuration, which holds at once: the index of its entry.

        Raises NotLeader; ChangePending while the leader's no-op or an earlier change is not
        committed; ValueError for more than one voter that comes or goes.
        """
        core = self._core
        core.now = now
        core.touched = True
        lead = core.leadership
        if lead is None:
            raise NotLeader(core.leader)
        if lead.transfer_to is not None:
            raise NotLeader(lead.transfer_to)
        if core.commit < max(lead.noop_index, core.memberships.index):
            raise ChangePending("the last change of the membership is not committed yet")
        membership.check_change(core.memberships.current, configuration.membership)
        return self._append(lead, [membership.encode_configuration(configuration)])

    def _append(self, lead: Leadership, data: Sequence[bytes]) -> int:
        core = self._core
        size = sum(map(len, data)) + ENTRY_OVERHEAD_BYTES * len(data)
        if (
            lead.uncommitted_bytes
            and lead.uncommitted_bytes + size > core.config.max_uncommitted_bytes
        ):
            raise Busy(f"{lead.uncommitted_bytes} bytes wait to be committed")
        first, term = core.log.last_index + 1, core.term
        core.append([Entry(index, term, item) for index, item in enumerate(data, first)])
        lead.uncommitted_bytes += size
        lead.proposed.append((core.log.last_index, size))
        lead.dirty = True
        return first

    def read_index(self, context: int, now: float) -> None:
        """Ask for an index that covers everything committed by now; see Effects.reads."""
        core = self._core
        core.now = now
        core.touched = True
        replication.read_index(core, context)

    def transfer_leadership(self, to: int, now: float) -> None:
        """Hand leadership to another voter; given up after an election timeout.

        Raises NotLeader, or ValueError if `to` is no other voter.
        """
        core = self._core
        core.now = now
        core.touched = True
        if core.leadership is None:
            raise NotLeader(core.leader)
        if to not in core.voters or to == core.node_id:
            raise ValueError(f"node {to} is no other voter")
        replication.start_transfer(core, core.leadership, to)

    def peer_restarted(self, node: int) -> None:
        """A peer began anew, perhaps with an empty disk: it must say again what it holds."""
        core = self._core
        core.touched = True
        if core.leadership is not None and node in core.leadership.progress:
            replication.peer_restarted(core.leadership, node)

    def leader_lost(self, now: float) -> None:
        """The connection to the leader was closed: campaign soon unless it is heard of again."""
        core = self._core
        core.now = now
        core.touched = True
        election.leader_lost(core)

    def saved(self, up_to: SaveToken) -> None:
        """The save of the batch with this token, and of all before it, is done.

        Raises InvariantError for a token that goes backwards or was never given out.
        """
        core = self._core
        core.touched = True
        core.saves.saved(up_to)
        if core.leadership is not None:
            replication.saved(core, core.leadership)
        else:
            election.saved(core)

    def compact(self, index: int, snapshot: Snapshot) -> None:
        """Forget entries up to `index`; followers that need them get `snapshot`, which reaches at
        least as far.

        Raises InvariantError if the snapshot is not of applied entries or would leave a gap behind
        it.
        """
        core = self._core
        if not index <= snapshot.last_index <= core.applied:
            raise InvariantError(
                f"cut at {index}, snapshot at {snapshot.last_index}, applied up to {core.applied}"
            )
        if not core.log.matches(snapshot.last_index, snapshot.last_term):
            raise InvariantError(
                f"({snapshot.last_index}, {snapshot.last_term}) is not in the log, nor its base"
            )
        if index > core.log.base_index:
            core.log.compact(index)
            core.memberships.compact(index)
        core.snapshot = snapshot

    # --- output -----------------------------------------------------------------------------------

    def take_effects(self) -> Effects:
        """What is to be done for everything that happened since the last call."""
        core = self._core
        if not core.touched:
            return NOTHING
        if core.leadership is not None:
            replication.flush(core, core.leadership)
        return core.take_effects()

    # --- state ------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """This node's number."""
        return self._core.node_id

    @property
    def voters(self) -> tuple[int, ...]:
        """The voting nodes."""
        return self._core.voters

    @property
    def learners(self) -> tuple[int, ...]:
        """Nodes that receive everything and vote on nothing."""
        return self._core.learners

    @property
    def membership(self) -> Membership:
        """Voters and learners by the newest configuration in the log, committed or not."""
        return self._core.memberships.current

    @property
    def membership_index(self) -> int:
        """The entry or snapshot that `membership` comes from; 0: what the node was started with."""
        return self._core.memberships.index

    def membership_at(self, index: int) -> Membership:
        """Who belonged to the group up to `index`: what a snapshot of that moment has to say."""
        return self._core.memberships.at(index)

    @property
    def may_vote(self) -> bool:
        """Whether this node's votes and acknowledgements may be trusted.

        Set it once the node has caught up with a leader; allowed only if its hard state survived.
        """
        return self._core.may_vote

    @may_vote.setter
    def may_vote(self, value: bool) -> None:
        self._core.may_vote = value

    @property
    def is_doubtful(self) -> bool:
        """Whether this node may lack entries that it once acknowledged."""
        return self._core.doubtful

    @property
    def is_elected_in_doubt(self) -> bool:
        """Whether this node leads by the votes of all voters, too many of them doubtful: committed
        entries may be lost.
        """
        return self._core.role is Role.LEADER and self._core.elected_in_doubt

    @property
    def role(self) -> Role:
        """What this node is now."""
        return self._core.role

    @property
    def term(self) -> int:
        """The current term."""
        return self._core.term

    @property
    def leader(self) -> int | None:
        """The leader of the term, as far as known and not doubted."""
        return self._core.leader

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return self._core.commit

    @property
    def applied_index(self) -> int:
        """The last entry handed out in Effects.apply, or covered by an installed snapshot."""
        return self._core.applied

    @property
    def durable_index(self) -> int:
        """The last entry that is durable here."""
        return self._core.saves.durable_index

    @property
    def first_index(self) -> int:
        """The first entry that is still held."""
        return self._core.log.base_index + 1

    @property
    def last_index(self) -> int:
        """The last entry, committed or not."""
        return self._core.log.last_index

    def term_at(self, index: int) -> int:
        """The term of an entry that is held, or of the newest compacted one. Raises LookupError."""
        term = self._core.log.term_at(index)
        if term is None:
            raise LookupError(f"entry {index} is not in the log")
        return term

    @property
    def applied_own_noop(self) -> bool:
        """Whether this node leads and handed out its term's no-op, thus all older entries."""
        core = self._core
        return core.leadership is not None and core.applied >= core.leadership.noop_index

    def progress(self, node: int) -> ProgressStatus | None:
        """What the leader knows of a follower; None on other nodes or for the node itself."""
        lead = self._core.leadership
        progress = None if lead is None else lead.progress.get(node)
        return None if progress is None else progress.status()

    # --- terms ------------------------------------------------------------------------------------

    def _meet_other_term(
        self, sender: int, message: wire.Message, kind: type[wire.Message]
    ) -> bool:
        """Adopt a higher term, refuse a lower one; whether the message is still to be handled."""
        core = self._core
        if isinstance(message, wire.PreVote) or (
            isinstance(message, wire.PreVoteReply) and message.granted
        ):
            return True
        if message.term < core.term:
            self._refuse_old_term(sender, message)
            return False
        if isinstance(message, wire.Vote) and core.in_lease and not message.transfer:
            return False
        core.become_follower(message.term, sender if kind in _FROM_LEADER else None)
        return True

    def _refuse_old_term(self, sender: int, message: wire.Message) -> None:
        """Tell whoever still acts in an old term which one it is, so that it stops."""
        core = self._core
        if isinstance(message, wire.Vote):
            core.send_after_save(sender, wire.VoteReply(core.term, granted=False))
        elif isinstance(message, _FROM_LEADER):
            core.send(sender, wire.HeartbeatReply(core.term, 0, core.may_vote))


def _check_members(voters: Sequence[int], learners: Sequence[int]) -> None:
    members = [*voters, *learners]
    if len(set(members)) != len(members):
        raise ValueError(f"no node may be named twice: {members}")


def _memberships(given: Membership, snapshot: Snapshot | None, log: RaftLog) -> Memberships:
    """Who belongs to the group by what is on disk, else by what is given."""
    if snapshot is None:
        memberships = Memberships(0, given)
    else:
        memberships = Memberships(
            snapshot.last_index, Membership(snapshot.voters, snapshot.learners)
        )
    start = max(memberships.index, log.base_index) + 1
    memberships.append(membership.configurations_in(log.entries(start, log.last_index + 1)))
    return memberships


def _log_behind(snapshot: Snapshot | None, entries: Sequence[Entry]) -> RaftLog:
    if snapshot is None:
        return RaftLog(0, 0, entries)
    return RaftLog(snapshot.last_index, snapshot.last_term, entries)


def _restore_log(snapshot: Snapshot | None, entries: Sequence[Entry]) -> RaftLog | None:
    """The log of a restarted node; None if the entries don't fit the snapshot, which then wins.

    Entries may begin before the snapshot's end; the first of those is then only the mark where the
    log was cut. Entries that end before it, or contradict it, are older than it: the node failed
    between saving a leader's snapshot and its mark in the log.
    """
    if snapshot is None or not entries:
        return _log_behind(snapshot, entries)
    first, last_index, last_term = entries[0], snapshot.last_index, snapshot.last_term
    if first.index <= last_index:
        log = RaftLog(first.index, first.term, entries[1:])
        return log if log.matches(last_index, last_term) else None
    if first.index > last_index + 1:
        raise InvariantError(f"the log begins at {first.index}, the snapshot ends at {last_index}")
    return _log_behind(snapshot, entries) if first.term >= last_term else None
