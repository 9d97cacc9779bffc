"""The state of one node, and the few transitions that every role shares.

`Core` decides nothing by itself: election.py, follower.py and replication.py do, each for its part
of the algorithm, and raft.py hands messages and time to them. What only a leader has lives in
`Leadership` and dies with it.

Invariant: term and commit never decrease; `leadership` exists exactly while the role is LEADER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.consensus.doubt import Doubt, Trust
from samelog.consensus.effects import NOTHING, Addressed, Effects
from samelog.consensus.log import Backing, RaftLog
from samelog.consensus.membership import Membership, Memberships, configurations_in
from samelog.consensus.messages import Append, Commit, RaftMessage
from samelog.consensus.patience import Patience
from samelog.consensus.progress import Progress
from samelog.consensus.readindex import ForwardedReads, LeaderReads
from samelog.consensus.saves import Saves
from samelog.consensus.snapshots import KeptSnapshot, SnapshotReceiver
from samelog.consensus.types import Entry, HardState, RaftConfig, Role, Snapshot
from samelog.format.errors import InvariantError

if TYPE_CHECKING:
    from random import Random


SUSPECT_PATIENCE = 3
"""Times an election timeout: how long a suspect node waits before it campaigns."""


class Leadership:
    """What a leader keeps: its followers, its deadlines, its reads.

    `counted` holds for each voter the index that counts toward the quorum; the leader's own is what
    it has saved.
    """

    __slots__ = (
        "append",
        "append_key",
        "awake_since",
        "beat_index",
        "commit_message",
        "counted",
        "dirty",
        "far_due",
        "heartbeat_deadline",
        "noop_index",
        "progress",
        "proposed",
        "quorum_deadline",
        "quorum_since",
        "reads",
        "rests_with",
        "transfer_deadline",
        "transfer_to",
        "uncommitted_bytes",
    )

    def __init__(self, core: Core) -> None:
        now, config = core.now, core.config
        next_index = core.log.last_index + 1
        self.progress: dict[int, Progress] = {}
        self.counted: dict[int, int] = {}
        self.noop_index = next_index
        self.reads = LeaderReads()
        self.heartbeat_deadline = now + config.heartbeat_s
        self.quorum_since = now
        self.quorum_deadline = now + config.election_timeout_s
        self.transfer_to: int | None = None
        self.transfer_deadline = 0.0
        self.uncommitted_bytes = 0
        self.proposed: list[tuple[int, int]] = []
        """(last index, bytes) of each proposal that is not committed; sums to uncommitted_bytes."""
        self.dirty = True
        """Something may have to be sent to followers when effects are taken."""
        self.append = Append(core.term, 0, 0, 0, (), 0)
        self.append_key = (0, 0, 0, 0, 0)
        """The newest append, and what it depends on: the next follower can usually share it."""
        self.commit_message = Commit(core.term, 0, 0)
        self.far_due = float("inf")
        """When somebody far away is to be sent what was gathered."""
        self.beat_index = 0
        """Where the log ended at the last heartbeat."""
        self.awake_since = now
        self.rests_with: tuple[int, ...] = ()
        """Whom it has told that it rests; others were away."""
        self.follow(core)

    def follow(self, core: Core) -> None:
        """Feed and count those who belong to the group now; a voter that comes brings what it has
        acknowledged as a learner.
        """
        next_index = max(self.noop_index, core.memberships.index)
        known = self.progress
        self.progress = {
            peer: known.get(peer) or Progress(next_index, core.now) for peer in core.peers
        }
        self.counted = {voter: self._counted(core, voter) for voter in core.voters}
        self.reads.follow(core.voters)
        self.dirty = True

    def _counted(self, core: Core, voter: int) -> int:
        if voter == core.node_id:
            return core.saves.durable_index
        progress = self.progress[voter]
        return progress.match if progress.counts else 0


class Core:
    """The whole state of a node. Fields are changed by the modules of this package only."""

    __slots__ = (
        "_handed",
        "applied",
        "backing",
        "changed",
        "commit",
        "config",
        "doubt",
        "elected",
        "election_deadline",
        "forwarded",
        "installing",
        "leader",
        "leader_seen",
        "leadership",
        "learners",
        "log",
        "may_vote",
        "memberships",
        "node_id",
        "now",
        "patience",
        "peers",
        "random",
        "reads",
        "receiver",
        "retry_deadline",
        "role",
        "saves",
        "send_after_save_queue",
        "send_queue",
        "snapshots",
        "term",
        "touched",
        "trust",
        "vote",
        "voters",
        "votes",
    )

    def __init__(
        self,
        node_id: int,
        *,
        memberships: Memberships,
        config: RaftConfig,
        random: Random,
        now: float,
        snapshot: Snapshot | None,
        log: RaftLog,
        hard_state: HardState,
        may_vote: bool,
        doubtful: bool,
    ) -> None:
        self.node_id = node_id
        self.memberships = memberships
        self.leadership: Leadership | None = None
        self._follow_memberships()
        self.config = config
        self.random = random
        self.may_vote = may_vote
        """Its votes and acknowledgements count; False: it is suspect, may have forgotten some."""
        self.trust = Trust()
        number = random.getrandbits(60) if doubtful else 0
        self.doubt = Doubt(hard_state.term, number) if doubtful else None
        """Entries may be gone that this node had acknowledged, until it holds all of a leader's."""
        self.now = now
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: int | None = None
        """Whom we follow (ourselves as leader); None as soon as we doubt that it lives."""
        self.elected: int | None = None
        """Who is known to have been elected in this term; doubt does not change that."""
        self.leader_seen = now
        self.votes: dict[int, bool] = {}

        self.log = log
        self.snapshots = KeptSnapshot(snapshot)
        self.commit = max(hard_state.commit, snapshot.last_index if snapshot else 0)
        self.applied = snapshot.last_index if snapshot else 0
        self.saves = Saves(log.last_index, self.term)
        self.backing = Backing()
        self.receiver = SnapshotReceiver()
        self.installing: Snapshot | None = None
        self.forwarded = ForwardedReads(random.getrandbits(60))

        self.send_queue: list[Addressed] = []
        self.send_after_save_queue: list[Addressed] = []
        self.reads: list[tuple[int, int | None]] = []
        self.changed = False
        self.touched = True
        """Something was called that may have caused effects since they were taken."""
        self._handed = hard_state
        self.retry_deadline = now
        self.patience = Patience(config.election_timeout_s, now)
        self.restart_election_timer()

    # --- time -------------------------------------------------------------------------------------

    def restart_election_timer(self) -> None:
        """Draw a new random wait before campaigning; a suspect node lets others begin."""
        self.patience.draw(self.random.random())
        times = 1 if self.may_vote else SUSPECT_PATIENCE
        self.election_deadline = self.now + times * self.patience.wait_s

    def delayed(self, by_s: float) -> None:
        """This node's loop ran so late: be as patient as that asks for, at once or from the
        leader's next word on.
        """
        self.election_deadline += self.patience.delayed(by_s, self.now)

    # --- what is known of the group ---------------------------------------------------------------

    @property
    def promotable(self) -> bool:
        """Whether this node may become leader.

        One that an uncommitted entry removes may: it can be the only one that holds the entry
        (thesis 4.2.2). Its own vote does not count then.
        """
        if self.node_id in self.voters:
            return self.may_vote or len(self.voters) > 1
        known = self.memberships
        removed = known.index > self.commit and self.node_id in known.at(known.index - 1).voters
        return self.may_vote and removed

    @property
    def is_beginning(self) -> bool:
        """Whether no first configuration is known to be committed: the group begins with the votes
        of all, so that whoever comes later with nothing finds somebody who knows.
        """
        return self.trust.begins and not 0 < self.memberships.index <= self.commit

    @property
    def doubtful(self) -> bool:
        """Whether this node may lack entries that it once acknowledged."""
        return self.doubt is not None

    @property
    def in_lease(self) -> bool:
        """Whether a leader is known to live, so that nobody need campaign."""
        if self.role is Role.LEADER:
            return True
        return (
            self.leader is not None and self.now < self.leader_seen + self.config.election_timeout_s
        )

    # --- the log and the membership in it ---------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries behind the log's end; a configuration among them holds from now on.

        Raises MalformedMessage, with nothing appended, if one is unreadable.
        """
        found = configurations_in(entries)
        self.log.append(entries)
        if found:
            self.memberships.append(found)
            self._follow_memberships()

    def cut_from(self, index: int) -> None:
        """Forget the entries at and above `index`, and the configurations among them."""
        self.log.cut_from(index)
        self.saves.replaced_from(index)
        if self.memberships.cut_from(index):
            self._follow_memberships()

    def install(self, snapshot: Snapshot) -> None:
        """The snapshot replaces the log and, once the driver has it, the state machine."""
        self.log.reset(snapshot.last_index, snapshot.last_term)
        self.saves.snapshot_installed(snapshot.last_index)
        self.installing = snapshot
        self.snapshots.keep(snapshot)
        self.commit = self.applied = snapshot.last_index
        self.memberships.reset(snapshot.last_index, Membership(snapshot.voters, snapshot.learners))
        self._follow_memberships()

    def _follow_memberships(self) -> None:
        current = self.memberships.current
        self.voters, self.learners = current.voters, current.learners
        members = (*current.voters, *current.learners)
        self.peers = tuple(node for node in members if node != self.node_id)
        if self.leadership is not None:
            self.leadership.follow(self)

    # --- outgoing ---------------------------------------------------------------------------------

    def send(self, to: int, message: RaftMessage) -> None:
        """A message that is true whatever the disk does."""
        self.send_queue.append((to, message))

    def send_after_save(self, to: int, message: RaftMessage) -> None:
        """A message that promises something which must be durable first."""
        self.send_after_save_queue.append((to, message))

    # --- shared transitions -----------------------------------------------------------------------

    def become_follower(self, term: int, leader: int | None) -> None:
        """Follow in `term`, which is not below ours, with or without a known leader."""
        if term > self.term:
            self.term = term
            self.vote = None
            self.elected = leader
        self.role = Role.FOLLOWER
        self.patience.rests = False
        self.votes = {}
        self.end_leadership()
        self.set_leader(leader)
        self.receiver.discard()
        self.restart_election_timer()

    def end_leadership(self) -> None:
        """Whatever a leader had under way ends without an answer."""
        if self.leadership is not None:
            own = [
                context
                for origin, context in self.leadership.reads.abandon()
                if origin == self.node_id
            ]
            self.reads.extend((context, None) for context in own)
            self.leadership = None

    def set_leader(self, leader: int | None) -> None:
        """Note whom we follow; reads that were sent to another leader are lost."""
        self.leader = leader
        if leader is not None:
            self.leader_seen = self.now
        self.reads.extend((context, None) for context in self.forwarded.abandon())
        self.changed = True

    def advance_commit(self, index: int) -> None:
        """Everything up to `index`, which is in the log, is committed."""
        if index > self.commit:
            if index > self.log.last_index:
                raise InvariantError(
                    f"commit of {index} behind the log's end {self.log.last_index}"
                )
            self.commit = index
        if self.doubt is not None:
            self.regain_certainty()

    def regain_certainty(self) -> None:
        """End the doubt where everything that was ever committed is here."""
        doubt = self.doubt
        if doubt is not None and self.log.term_at(self.commit) == self.term:
            self.doubt = None if doubt.is_over(self.term, self.commit) else doubt

    # --- effects ----------------------------------------------------------------------------------

    def drain(self) -> Effects:
        """Everything queued since the last call.

        A new commit index alone is not worth a save; it goes along with the next one.
        """
        self.touched = False
        saves, log, known = self.saves, self.log, self._handed
        last_index = log.last_index
        first_index = saves.handed_index + 1
        entries = log.entries(first_index, last_index + 1) if last_index >= first_index else []
        snapshot, hard_state = self.installing, None
        vote_changed = known.term != self.term or known.vote != self.vote
        saving = vote_changed or bool(entries) or snapshot is not None
        if vote_changed or (saving and known.commit != self.commit):
            hard_state = self._handed = HardState(self.term, self.vote, self.commit)
        apply = self._take_applicable() if self.commit > self.applied else []
        send, send_after_save = self.send_queue, self.send_after_save_queue
        reads, changed = self.reads, self.changed
        if not (saving or send or send_after_save or apply or reads or changed):
            return NOTHING
        if saving or send_after_save:
            saves.hand_out(last_index, self.term)
        self.send_queue, self.send_after_save_queue, self.reads = [], [], []
        self.changed, self.installing = False, None
        return Effects(
            send,
            snapshot,
            entries,
            hard_state,
            saving,
            saves.last_token,
            send_after_save,
            apply,
            reads,
            changed,
        )

    def _take_applicable(self) -> list[Entry]:
        """Committed entries that are also durable here.

        So a snapshot of their effects never runs ahead of the log on the same disk.
        """
        stop = min(self.commit, self.saves.durable_index)
        if stop <= self.applied:
            return []
        entries = self.log.entries(self.applied + 1, stop + 1)
        self.applied = stop
        return entries
