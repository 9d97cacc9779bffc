"""Planted bugs: each breaks one rule of Raft, and the simulator must notice every one of them.

A mutant that survives means that a check is missing, or that the worlds are too kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from samelog.consensus import (
    Configuration,
    Effects,
    HardState,
    Membership,
    NotLeader,
    Raft,
    Role,
    election,
    follower,
    membership,
    quorum,
    raft,
    replication,
)
from samelog.consensus.core import Core, Leadership
from samelog.consensus.doubt import Doubt
from samelog.consensus.membership import Memberships
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    HeartbeatReply,
    PreVoteReply,
    RaftMessage,
    Vote,
    VoteReply,
)
from samelog.consensus.readindex import LeaderReads
from samelog.consensus.saves import Saves
from samelog.consensus.wal import WalRecord
from tests.sim import mutants_bytes
from tests.sim.disk import Disk
from tests.sim.run import first_failure

Handler = Callable[[Core, int, Any], None]


@contextmanager
def _handler(kind: type[RaftMessage], handler: Handler) -> Iterator[None]:
    with patch.dict(raft._HANDLERS, {kind: handler}):
        yield


@contextmanager
def reply_before_fsync() -> Iterator[None]:
    """Votes and acknowledgements leave before they are durable."""
    original = Raft.take_effects

    def take_effects(self: Raft) -> Effects:
        effects = original(self)
        if not effects:
            return effects
        replies = (AppendReply, VoteReply)
        early = [item for item in effects.send_after_save if isinstance(item[1], replies)]
        late = [item for item in effects.send_after_save if not isinstance(item[1], replies)]
        return msgspec.structs.replace(effects, send=effects.send + early, send_after_save=late)

    with patch.object(Raft, "take_effects", take_effects):
        yield


@contextmanager
def vote_twice() -> Iterator[None]:
    """A node forgets its vote when another candidate asks."""

    def on_vote(core: Core, sender: int, message: Vote) -> None:
        if core.role is not Role.LEADER:
            core.vote = None
        election.on_vote(core, sender, message)

    with _handler(Vote, on_vote):
        yield


@contextmanager
def forget_vote_on_disk() -> Iterator[None]:
    """The vote is not saved with the term."""
    original = Disk.write

    def write(self: Disk, effects: Effects) -> None:
        state = effects.hard_state
        if state is not None:
            effects = msgspec.structs.replace(
                effects, hard_state=HardState(state.term, None, state.commit)
            )
        original(self, effects)

    with patch.object(Disk, "write", write):
        yield


@contextmanager
def commit_older_terms() -> Iterator[None]:
    """A leader commits entries of older terms by counting them (figure 8 of the paper)."""

    def advance(core: Core, lead: Leadership) -> None:
        index = quorum.reached(lead.counted.values())
        if index > core.commit:
            core.advance_commit(index)
            while lead.proposed and lead.proposed[0][0] <= index:
                lead.uncommitted_bytes -= lead.proposed.pop(0)[1]
            lead.dirty = True

    with patch.object(replication, "_advance_commit", advance):
        yield


@contextmanager
def count_before_save() -> Iterator[None]:
    """A leader counts its own entries as soon as it has made them."""
    original = replication.flush

    def flush(core: Core, lead: Leadership) -> None:
        if core.log.last_index > lead.counted[core.node_id]:
            lead.counted[core.node_id] = core.log.last_index
            replication._advance_commit(core, lead)
        original(core, lead)

    with patch.object(replication, "flush", flush):
        yield


@contextmanager
def vote_for_anyone() -> Iterator[None]:
    """Votes and pre-votes go to candidates whose log is older."""

    def may_elect(core: Core, message: Vote) -> bool:
        return True

    with patch.object(election, "_may_elect", may_elect):
        yield


@contextmanager
def count_the_untrusted() -> Iterator[None]:
    """Acknowledgements of a node that lost its disk count."""

    def reply(core: Core, sender: int, message: AppendReply) -> None:
        trusted = AppendReply(message.term, message.stream, message.match, counts=True)
        replication.on_append_reply(core, sender, trusted)

    with _handler(AppendReply, reply):
        yield


@contextmanager
def votes_of_the_wiped() -> Iterator[None]:
    """What a node that lost its disk grants is part of a majority."""
    with patch.object(election, "_own_doubt", lambda core: set()):
        yield


@contextmanager
def keep_conflicting_suffix() -> Iterator[None]:
    """A follower that replaces entries does not tell the book of saves."""
    with patch.object(Saves, "replaced_from", lambda self, index: None):
        yield


@contextmanager
def match_without_previous_term() -> Iterator[None]:
    """Appends are taken whatever term the entry before them has."""
    original = follower.on_append

    def on_append(core: Core, sender: int, message: Append) -> None:
        term = core.log.term_at(message.prev_index)
        if term is not None and term < message.prev_term and message.prev_index > core.commit:
            message = msgspec.structs.replace(message, prev_term=term)
        original(core, sender, message)

    with _handler(Append, on_append):
        yield


@contextmanager
def read_without_proof() -> Iterator[None]:
    """A leader answers reads without asking whether it still leads."""

    def take_proved(self: LeaderReads) -> list[Any]:
        proved = list(self._pending)
        self._pending.clear()
        return proved

    with patch.object(LeaderReads, "take_proved", take_proved):
        yield


@contextmanager
def read_before_noop() -> Iterator[None]:
    """A new leader answers reads before it knows what is committed."""
    original = Leadership.__init__

    def start(self: Leadership, core: Core) -> None:
        original(self, core)
        self.noop_index = 0

    with patch.object(Leadership, "__init__", start):
        yield


@contextmanager
def stale_rounds() -> Iterator[None]:
    """Any heartbeat's answer proves every read."""

    def reply(core: Core, sender: int, message: HeartbeatReply) -> None:
        lead = core.leadership
        latest = lead.reads.round if lead is not None else 0
        newer = HeartbeatReply(message.term, latest, message.counts)
        replication.on_heartbeat_reply(core, sender, newer)

    with _handler(HeartbeatReply, reply):
        yield


@contextmanager
def ignore_lost_appends() -> Iterator[None]:
    """Rejected appends are not sent again: nothing unsafe, but no progress."""
    with _handler(AppendReject, lambda core, sender, message: None):
        yield


@contextmanager
def commit_what_is_missing() -> Iterator[None]:
    """A follower commits up to the leader's index without looking whether it holds the same."""

    def learn(core: Core, index: int, term: int) -> None:
        core.advance_commit(min(index, core.log.last_index))

    with patch.object(follower, "_learn_commit", learn):
        yield


@contextmanager
def save_entries_out_of_order() -> Iterator[None]:
    """The hard state is written before the entries."""
    original = Disk.write

    def write(self: Disk, effects: Effects) -> None:
        records: list[WalRecord] = []
        if effects.hard_state is not None:
            records.append(effects.hard_state)
            self._append(records)
            effects = msgspec.structs.replace(effects, hard_state=None)
        original(self, effects)

    with patch.object(Disk, "write", write):
        yield


@contextmanager
def changes_side_by_side() -> Iterator[None]:
    """A leader changes the membership while the last change is not committed."""

    def propose(self: Raft, configuration: Configuration, now: float) -> int:
        core = self
        core.now, core.touched = now, True
        lead = core.leadership
        if lead is None or lead.transfer_to is not None or core.commit < lead.noop_index:
            raise NotLeader(None)
        membership.check_change(core.memberships.current, configuration.membership)
        return self._append(lead, [membership.encode_configuration(configuration)], self.append)

    with patch.object(Raft, "propose_configuration", propose):
        yield


@contextmanager
def change_many_voters() -> Iterator[None]:
    """Several voters may come and go at once: majorities need not meet."""
    with patch.object(
        membership, "check_change", lambda old, new: membership.check_membership(new)
    ):
        yield


@contextmanager
def keep_replaced_membership() -> Iterator[None]:
    """A node goes on with a configuration whose entry was replaced."""

    def cut_from(self: Memberships, index: int) -> bool:
        self._indexes = [min(known, index - 1) for known in self._indexes]
        self._settle()
        return False

    with patch.object(Memberships, "cut_from", cut_from):
        yield


@contextmanager
def count_learners() -> Iterator[None]:
    """Learners' acknowledgements count toward the majority of the voters."""

    def advance(core: Core, lead: Leadership) -> None:
        held = [progress.match for progress in lead.progress.values()]
        own = [core.saves.durable_index] if core.node_id in core.voters else []
        index = sorted([*held, *own], reverse=True)[len(core.voters) // 2]
        if index > core.commit and core.log.term_at(index) == core.term:
            core.advance_commit(index)
            lead.dirty = True

    with patch.object(replication, "_advance_commit", advance):
        yield


@contextmanager
def count_the_removed_leader() -> Iterator[None]:
    """A leader that removes itself still counts itself."""
    original = Leadership.follow

    def follow(self: Leadership, core: Core) -> None:
        original(self, core)
        self.counted[core.node_id] = core.saves.durable_index

    with patch.object(Leadership, "follow", follow):
        yield


@contextmanager
def silence_the_removed() -> Iterator[None]:
    """A leader that appended its own removal and lost leadership never campaigns again."""
    voter = property(lambda core: core.may_vote and core.node_id in core.voters)
    with patch.object(Core, "promotable", voter):
        yield


@contextmanager
def forget_members_of_snapshots() -> Iterator[None]:
    """An installed snapshot does not say who belongs to the group."""
    original = Memberships.reset

    def reset(self: Memberships, index: int, members: Membership) -> None:
        original(self, index, getattr(self, "current", members))

    with patch.object(Memberships, "reset", reset):
        yield


@contextmanager
def ignore_unknown_leaders() -> Iterator[None]:
    """Only known members are listened to: a new node never hears of its group."""
    with patch.object(raft, "_FROM_ANYBODY", frozenset()):
        yield


@contextmanager
def certain_after_power_loss() -> Iterator[None]:
    """What a node grants counts, though it may have lost what it had acknowledged."""
    with patch.object(election, "_own_doubt", lambda core: set()), _all_votes_count():
        yield


@contextmanager
def _all_votes_count() -> Iterator[None]:
    def reply(core: Core, sender: int, message: VoteReply) -> None:
        sure = msgspec.structs.replace(message, counts=True)
        election.on_vote_reply(core, sender, sure)

    def pre_reply(core: Core, sender: int, message: PreVoteReply) -> None:
        sure = msgspec.structs.replace(message, counts=True)
        election.on_pre_vote_reply(core, sender, sure)

    with _handler(VoteReply, reply), _handler(PreVoteReply, pre_reply):
        yield


@contextmanager
def doubt_ends_unasked() -> Iterator[None]:
    """A leader of before need not know of a loss of power for the doubt to end."""
    with patch.object(Doubt, "is_over", lambda self, term, commit: True):
        yield


@contextmanager
def judge_unread() -> Iterator[None]:
    """A node that stood still judges who was silent before it reads what came meanwhile."""
    original = Raft.tick

    def tick(self: Raft, now: float, late_s: float = 0.0) -> None:
        self.delayed(late_s)
        original(self, now)

    with patch.object(Raft, "tick", tick):
        yield


MUTANTS = (
    reply_before_fsync,
    vote_twice,
    forget_vote_on_disk,
    commit_older_terms,
    count_before_save,
    vote_for_anyone,
    count_the_untrusted,
    votes_of_the_wiped,
    keep_conflicting_suffix,
    match_without_previous_term,
    read_without_proof,
    read_before_noop,
    stale_rounds,
    ignore_lost_appends,
    commit_what_is_missing,
    save_entries_out_of_order,
    changes_side_by_side,
    change_many_voters,
    keep_replaced_membership,
    count_learners,
    count_the_removed_leader,
    silence_the_removed,
    forget_members_of_snapshots,
    ignore_unknown_leaders,
    certain_after_power_loss,
    doubt_ends_unasked,
    judge_unread,
    *mutants_bytes.MUTANTS,
)


def hunted(name: str, *, seeds: range) -> tuple[int, str]:
    """How many worlds it took to see a mutant, and what was seen; empty: nothing."""
    mutant = next(mutant for mutant in MUTANTS if mutant.__name__ == name)
    failure = first_failure(mutant, seeds)
    if failure is None:
        return len(seeds), ""
    return failure.options.seed - seeds.start + 1, failure.summary[:110]
