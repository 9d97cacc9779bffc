"""The Raft core as its driver sees it: messages, time and proposals in; one batch of effects out.

Nothing here reads a clock, draws chance of its own, or touches a file or a socket: the same calls
with the same arguments give the same effects. docs/raft.md shows the loop a driver must run.

Invariant: the effects of calls made between two `take_effects` are one batch, safe to carry out in
any interleaving with other nodes as long as each batch's own order is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from samelog.consensus import election, follower, membership, quiet, replication
from samelog.consensus import messages as wire
from samelog.consensus.core import Core, Leadership
from samelog.consensus.effects import NOTHING, Effects
from samelog.consensus.errors import Busy, ChangePending, NotLeader
from samelog.consensus.log import RaftLog
from samelog.consensus.membership import Configuration, Membership
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

_HANDLERS: dict[type[wire.RaftMessage], Callable[[Core, int, Any], None]] = {
    wire.PreVote: election.on_pre_vote,
    wire.PreVoteReply: election.on_pre_vote_reply,
    wire.Vote: election.on_vote,
    wire.VoteReply: election.on_vote_reply,
    wire.TimeoutNow: election.on_timeout_now,
    wire.Append: follower.on_append,
    wire.Commit: follower.on_commit,
    wire.Heartbeat: follower.on_heartbeat,
    wire.SnapshotChunk: follower.on_snapshot_chunk,
    wire.Quiet: follower.on_quiet,
    wire.AppendReply: replication.on_append_reply,
    wire.AppendReject: replication.on_append_reject,
    wire.HeartbeatReply: replication.on_heartbeat_reply,
    wire.SnapshotReply: replication.on_snapshot_reply,
    wire.ReadRequest: replication.on_read_request,
    wire.ReadReply: replication.on_read_reply,
}
_FROM_LEADER = (wire.Append, wire.Commit, wire.Heartbeat, wire.SnapshotChunk, wire.Quiet)
_FROM_ANYBODY = frozenset((*_FROM_LEADER, wire.PreVote, wire.Vote, wire.TimeoutNow, wire.ReadReply))
"""Taken from nodes that we don't know as members too: they may hold a newer configuration."""


class Raft(Core):
    """One node of one Raft group. What it reads of the fields of `Core` a driver may read, too."""

    __slots__ = ()

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
        membership.check_members(voters, learners)
        restored = _restore_log(snapshot, entries)
        log = _log_behind(snapshot, ()) if restored is None else restored
        if hard_state.commit > log.last_index:
            raise InvariantError(
                f"entry {hard_state.commit} was committed but the log ends at {log.last_index}"
            )
        super().__init__(
            node_id,
            memberships=membership.of_files(
                Membership(tuple(voters), tuple(learners)), snapshot, log
            ),
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
            self.install(snapshot)
        if self.voters == (node_id,):
            self.election_deadline = now

    # --- input ------------------------------------------------------------------------------------

    def step(self, sender: int, message: wire.RaftMessage, now: float) -> None:
        """Take a message; answers of nodes that are no members, and old terms, change nothing.

        Raises MalformedMessage for one that contradicts itself, HistoryConflict for one that
        contradicts what is committed here: nothing may be called any more then.
        """
        self.now = now
        self.touched = True
        kind = type(message)
        if sender == self.node_id or not (sender in self.peers or kind in _FROM_ANYBODY):
            return
        if self.patience.rests:
            quiet.wake(self)
        if message.term != self.term and not self._meet_other_term(sender, message, kind):
            return
        _HANDLERS[kind](self, sender, message)

    def tick(self, now: float, late_s: float = 0.0) -> None:
        """Let time pass. `late_s`: so long after its time the driver's loop came to call this.

        Much may then have come that is not read yet. So a late tick judges nobody by their silence;
        the driver reads, and the next tick judges.
        """
        self.now = now
        self.touched = True
        self.reads.extend((context, None) for context in self.forwarded.expired(now))
        self.delayed(late_s)
        if self.patience.excuses(late_s > self.config.heartbeat_s):
            if self.leadership is not None:
                replication.woke(self, self.leadership, late_s)
        elif self.leadership is not None:
            replication.tick(self, self.leadership)
        else:
            election.tick(self)

    def next_deadline(self) -> float:
        """When `tick` has something to do, if nothing else happens before."""
        if (lead := self.leadership) is not None:
            return min(lead.heartbeat_deadline, lead.quorum_deadline, lead.far_due)
        deadline = min(self.election_deadline, self.forwarded.next_deadline())
        return min(deadline, self.retry_deadline) if self.votes else deadline

    def propose(self, data: Sequence[bytes], now: float) -> int:
        """Append one entry for each item; the index of the first.

        Raises NotLeader, Busy when too much waits to be committed, ValueError for nothing or an
        empty item.
        """
        self.now = now
        self.touched = True
        if self.patience.rests:
            quiet.wake(self)
        lead = self.leadership
        if lead is None:
            raise NotLeader(self.leader)
        if lead.transfer_to is not None:
            raise NotLeader(lead.transfer_to)
        if not data or not all(data):
            raise ValueError("a proposal needs at least one item, and none may be empty")
        if any(map(membership.is_configuration, data)):
            raise ValueError("a configuration is proposed by propose_configuration")
        return self._append(lead, data, self.log.append)

    def propose_configuration(self, configuration: Configuration, now: float) -> int:
        """Append a configuration, which holds at once: the index of its entry.

        Raises NotLeader; ChangePending while the leader's no-op or an earlier change is not
        committed; ValueError for more than one voter that comes or goes.
        """
        self.now = now
        self.touched = True
        if self.patience.rests:
            quiet.wake(self)
        lead = self.leadership
        if lead is None:
            raise NotLeader(self.leader)
        if lead.transfer_to is not None:
            raise NotLeader(lead.transfer_to)
        if self.commit < max(lead.noop_index, self.memberships.index):
            raise ChangePending("the last change of the membership is not committed yet")
        membership.check_change(self.memberships.current, configuration.membership)
        return self._append(lead, [membership.encode_configuration(configuration)], self.append)

    def _append(
        self, lead: Leadership, data: Sequence[bytes], append: Callable[[list[Entry]], None]
    ) -> int:
        """`append`: of the log; of the core if the entries may be configurations."""
        size = sum(map(len, data)) + ENTRY_OVERHEAD_BYTES * len(data)
        if (
            lead.uncommitted_bytes
            and lead.uncommitted_bytes + size > self.config.max_uncommitted_bytes
        ):
            raise Busy(f"{lead.uncommitted_bytes} bytes wait to be committed")
        first, term = self.log.last_index + 1, self.term
        append(list(map(Entry, count(first), repeat(term), data)))
        lead.uncommitted_bytes += size
        lead.proposed.append((self.log.last_index, size))
        lead.dirty = True
        return first

    def read_index(self, context: int, now: float) -> None:
        """Ask for an index that covers everything committed by now; see Effects.reads."""
        self.now = now
        self.touched = True
        if self.patience.rests:
            quiet.wake(self)
        replication.read_index(self, context)

    def transfer_leadership(self, to: int, now: float) -> None:
        """Hand leadership to another voter; given up after an election timeout.

        Raises NotLeader, or ValueError if `to` is no other voter that counts.
        """
        self.now = now
        self.touched = True
        if self.leadership is None:
            raise NotLeader(self.leader)
        quiet.wake(self)
        if to not in self.voters or not self.counts(to):
            raise ValueError(f"node {to} is no other voter that counts")
        replication.start_transfer(self, self.leadership, to)

    def peer_restarted(self, node: int) -> None:
        """A peer restarted, perhaps with an empty disk: it must say again what it holds."""
        self.touched = True
        if self.leadership is not None and node in self.leadership.progress:
            replication.peer_restarted(self.leadership, node)

    def gather_for(self, peers: Collection[int]) -> None:
        """What this leader sends these followers is gathered, as long as they keep up."""
        for peer, progress in self.leadership.progress.items() if self.leadership else ():
            progress.is_far = peer in peers

    def loop_delayed(self, by_s: float, now: float) -> None:
        """The driver's event loop ran so late: this node is to be as patient with its leader."""
        self.now = now
        self.delayed(by_s)

    def begin_group(self) -> None:
        """This node was made for a new group, which all voters elect the first leader of."""
        self.trust.begins = True

    def stand_first(self, now: float) -> None:
        """This node shall lead a group that begins: it asks for votes at once, the others wait."""
        self.now = self.election_deadline = now

    def require_bytes(self, is_backed: Callable[[Entry], bool]) -> None:
        """Entries name bytes outside of the log. `is_backed`: whether those of an entry are here,
        durable or not; with a call of `bytes_came` it may say so of one that was not. A batch is
        saved when the bytes that its entries name are durable, too.
        """
        self.backing.is_backed = is_backed

    def read_snapshots(self, read: Callable[[], Snapshot | None]) -> None:
        """Keep no snapshot in memory: `read` gives the newest, when one is to be sent, or None."""
        self.snapshots.read_with(read)

    def cut_unbacked(self, is_kept: Callable[[Entry], bool]) -> None:
        """To be called on a restarted node that has applied what it knows to be committed: forget
        the entries from the first one on that is not to be kept, because its bytes are not here. It
        has acknowledged none of them.
        """
        for entry in self.log.entries(self.commit + 1, self.log.last_index + 1):
            if entry.data and not is_kept(entry):
                self.cut_from(entry.index)
                return

    def save_kept(self) -> Effects:
        """To be called behind `cut_unbacked`, on a node that may have been killed between writing
        bytes and the end of their sync. Returns a batch with all entries behind the commit index,
        which are written already: they count as durable only once it is `saved`.
        """
        kept = self.log.entries(self.commit + 1, self.log.last_index + 1)
        if not kept:
            return NOTHING
        self.saves.keep(self.commit, self.log.last_index, self.term)
        return replace(NOTHING, entries=kept, must_sync=True, token=self.saves.last_token)

    def bytes_came(self, now: float) -> None:
        """More entries may be backed than before."""
        if self.backing.held is not None:
            self.now = now
            self.touched = True
            follower.bytes_came(self)

    def become_suspect(self) -> None:
        """A peer knows of something that this node has forgotten: it counts for nothing more."""
        self.touched = True
        self.may_vote = False
        if self.role is not Role.FOLLOWER:
            self.become_follower(self.term, None)

    def regain_trust(self) -> None:
        """An entry that lets this node in again, committed without it, is durable here."""
        self.touched = True
        self.may_vote = True

    def leader_lost(self, now: float) -> None:
        """The connection to the leader was closed: campaign soon unless it is heard of again."""
        self.now = now
        self.touched = True
        quiet.wake(self)
        election.leader_lost(self)

    def leader_silent_s(self, now: float) -> float:
        """For how long no leader was heard of; 0 on the leader itself."""
        return 0.0 if self.role is Role.LEADER else max(0.0, now - self.leader_seen)

    def allow_quiet(self, heard: Callable[[], float]) -> None:
        """This replica may rest when nothing happens: the driver tells from then on whether the
        others live. `heard`: when the member that this one follows was last heard of.
        """
        self.patience.heard = heard

    def wake(self, now: float) -> None:
        """Wake because another replica of the group does not rest, is silent, or has restarted.
        Call it before stepping any message of that replica.
        """
        self.now = now
        self.touched = True
        quiet.stay_awake(self)

    def saved(self, up_to: SaveToken) -> None:
        """The save of the batch with this token, and of all before it, is done.

        Raises InvariantError for a token that goes backwards or was never given out.
        """
        self.touched = True
        self.saves.saved(up_to)
        if self.leadership is not None:
            replication.saved(self, self.leadership)
        else:
            election.saved(self)

    def compact(self, index: int, snapshot: Snapshot) -> None:
        """Forget entries up to `index`; followers that need them get `snapshot`, which reaches at
        least as far.

        Raises InvariantError if the snapshot is not of applied entries or would leave a gap.
        """
        if not index <= snapshot.last_index <= self.applied:
            raise InvariantError(
                f"cut at {index}, snapshot at {snapshot.last_index}, applied up to {self.applied}"
            )
        if not self.log.matches(snapshot.last_index, snapshot.last_term):
            raise InvariantError(
                f"({snapshot.last_index}, {snapshot.last_term}) is not in the log, nor its base"
            )
        if index > self.log.base_index:
            self.log.compact(index)
            self.memberships.compact(index)
        self.snapshots.keep(snapshot)

    # --- output -----------------------------------------------------------------------------------

    def take_effects(self) -> Effects:
        """What is to be done for everything that happened since the last call."""
        if not self.touched:
            return NOTHING
        if self.leadership is not None:
            replication.flush(self, self.leadership)
        return self.drain()

    # --- state ------------------------------------------------------------------------------------

    @property
    def membership(self) -> Membership:
        """Voters and learners by the newest configuration in the log, committed or not."""
        return self.memberships.current

    @property
    def membership_index(self) -> int:
        """The entry or snapshot that `membership` comes from; 0: what the node was started with."""
        return self.memberships.index

    def membership_at(self, index: int) -> Membership:
        """Who belonged to the group up to `index`: what a snapshot of that moment has to say."""
        return self.memberships.at(index)

    @property
    def rests(self) -> bool:
        """Whether it has no timer, as nothing happens in its group."""
        return self.patience.rests

    @property
    def rests_with(self) -> tuple[int, ...]:
        """The followers that a leader that rests has told so; the others are away."""
        return () if self.leadership is None else self.leadership.rests_with

    @property
    def is_doubtful(self) -> bool:
        """Whether this node may lack entries that it once acknowledged."""
        return self.doubtful

    @property
    def is_elected_in_doubt(self) -> bool:
        """Whether it leads by all votes, too many doubtful: committed entries may be lost."""
        return self.role is Role.LEADER and self.trust.elected_in_doubt

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return self.commit

    @property
    def applied_index(self) -> int:
        """The last entry handed out in Effects.apply, or covered by an installed snapshot."""
        return self.applied

    @property
    def held_back(self) -> Entry | None:
        """The first entry of the leader that waits for its bytes."""
        return None if self.backing.held is None else self.backing.held.entries[0]

    @property
    def durable_index(self) -> int:
        """The last entry that is durable here."""
        return self.saves.durable_index

    @property
    def first_index(self) -> int:
        """The first entry that is still held."""
        return self.log.base_index + 1

    @property
    def last_index(self) -> int:
        """The last entry, committed or not."""
        return self.log.last_index

    def term_at(self, index: int) -> int:
        """The term of an entry that is held, or of the newest compacted one. Raises LookupError."""
        term = self.log.term_at(index)
        if term is None:
            raise LookupError(f"entry {index} is not in the log")
        return term

    def progress(self, node: int) -> ProgressStatus | None:
        """What the leader knows of a follower; None on other nodes or for the node itself."""
        lead = self.leadership
        progress = None if lead is None else lead.progress.get(node)
        return None if progress is None else progress.status()

    def counts(self, node: int) -> bool:
        """Whether a follower says to this leader that what it promises counts."""
        lead = self.leadership
        return lead is not None and node in lead.progress and lead.progress[node].counts

    # --- terms ------------------------------------------------------------------------------------

    def _meet_other_term(
        self, sender: int, message: wire.RaftMessage, kind: type[wire.RaftMessage]
    ) -> bool:
        """Adopt a higher term, refuse a lower one; whether the message is still to be handled."""
        if isinstance(message, wire.PreVote) or (
            isinstance(message, wire.PreVoteReply) and message.granted
        ):
            return True
        if message.term < self.term:
            self._refuse_old_term(sender, message)
            return False
        if isinstance(message, wire.Vote) and self.in_lease and not message.transfer:
            return False
        self.become_follower(message.term, sender if kind in _FROM_LEADER else None)
        return True

    def _refuse_old_term(self, sender: int, message: wire.RaftMessage) -> None:
        """Tell whoever still acts in an old term which one it is, so that it stops."""
        if isinstance(message, wire.Vote):
            self.send_after_save(sender, wire.VoteReply(self.term, granted=False))
        elif isinstance(message, _FROM_LEADER):
            self.send(sender, wire.HeartbeatReply(self.term, 0, self.may_vote))


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
