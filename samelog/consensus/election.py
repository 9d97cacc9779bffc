"""Becoming leader: pre-votes, votes, and whom to grant them (Raft, sections 5.2 and 5.4.1; thesis
9.6 for PreVote).

A node asks for pre-votes first and raises its term only when a majority would elect it. A node that
has heard from a leader within the election timeout answers neither pre-votes nor votes, so that a
partitioned or restarted node disturbs nobody; a transfer of leadership, ordered by the leader
itself, passes that barrier.

A node that may have forgotten entries (a loss of power with `fsync=interval`), or votes too (it is
suspect: an old copy, or wiped), votes in doubt: its vote is part of no majority, but a candidate
that all voters elect leads all the same, since nobody has more than it has. It does so in a term
far above all that were forgotten, and who voted for it there is suspect no more.

Invariant: one vote per term, durable before it is told to anybody, the candidate's own included.
"""

from __future__ import annotations

from samelog.consensus.core import Core, Leadership
from samelog.consensus.messages import (
    PreVote,
    PreVoteReply,
    RaftMessage,
    TimeoutNow,
    Vote,
    VoteReply,
)
from samelog.consensus.quorum import Tally, tally
from samelog.consensus.types import Entry, Role

TERM_STEP = 1000
"""Who is elected by all, some of them suspect, leads in a term that none can have forgotten."""
LEADER_LOST_DELAY_S = 0.05
"""Followers that lose their connection to the leader campaign within this time, at random."""


def tick(core: Core) -> None:
    """Campaign when no leader was heard of for too long; repeat questions that got no answer."""
    if core.now >= core.election_deadline:
        if core.promotable:
            campaign(core)
        else:
            core.become_follower(core.term, None)
    elif core.votes and core.now >= core.retry_deadline:
        _ask(core, transfer=False)


def leader_lost(core: Core) -> None:
    """The connection to the leader broke: don't wait for the timeout, but ask the others first
    (PreVote).
    """
    if core.role is not Role.FOLLOWER or core.leader is None:
        return
    core.set_leader(None)
    core.election_deadline = core.now + core.random.random() * LEADER_LOST_DELAY_S


def campaign(core: Core) -> None:
    """Ask for pre-votes; alone in its group, a node needs none."""
    if core.voters == (core.node_id,):
        _become_candidate(core, transfer=False)
        return
    core.role = Role.PRE_CANDIDATE
    core.set_leader(None)
    core.votes, core.trust.doubted = {core.node_id: True}, _own_doubt(core)
    core.trust.needs_all = False
    core.restart_election_timer()
    _ask(core, transfer=False)


def saved(core: Core) -> None:
    """A candidate's vote for itself counts from the moment it is durable."""
    if (
        core.role is Role.CANDIDATE
        and core.saves.durable_term == core.term
        and core.node_id not in core.votes
    ):
        core.votes[core.node_id] = True
        _count(core)


def on_timeout_now(core: Core, sender: int, message: TimeoutNow) -> None:
    """The leader wants us to take over at once."""
    may_lead = core.may_vote and core.promotable
    if core.role is Role.FOLLOWER and may_lead and core.leader == sender:
        core.trust.needs_all = False
        _become_candidate(core, transfer=True)


def on_pre_vote(core: Core, sender: int, message: PreVote) -> None:
    """Would we elect the sender?

    Of two nodes that ask each other, the one with the older log, or else the higher number, gives
    way: when all lose their leader at the same moment, they must not split the vote and wait for
    another timeout.
    """
    if core.in_lease:
        return
    granted = message.term > core.term and _may_elect(core, message)
    if granted and core.role is Role.PRE_CANDIDATE:
        granted = (message.last_term, message.last_index, -sender) > _rank(core)
        if granted:
            core.become_follower(core.term, None)
    term = message.term if granted else core.term
    core.send(sender, PreVoteReply(term, granted, not _own_doubt(core)))


def on_vote(core: Core, sender: int, message: Vote) -> None:
    """A vote in our term: at most one, and only for a node that has all we have."""
    free = core.vote in (None, sender) and core.elected in (None, sender)
    granted = free and _may_elect(core, message)
    if granted:
        core.vote = sender
        core.trust.agreed_term = core.term if message.needs_all and not core.may_vote else -1
        core.become_follower(core.term, core.leader)
    core.send_after_save(sender, VoteReply(core.term, granted, not _own_doubt(core)))


def on_pre_vote_reply(core: Core, sender: int, message: PreVoteReply) -> None:
    """One answer; the first one of each voter counts."""
    asked_term = core.term + 1 if message.granted else core.term
    if core.role is Role.PRE_CANDIDATE and message.term == asked_term:
        _take(core, sender, message)


def on_vote_reply(core: Core, sender: int, message: VoteReply) -> None:
    """One vote; the first answer of each voter counts."""
    if core.role is Role.CANDIDATE:
        _take(core, sender, message)


def _take(core: Core, sender: int, message: PreVoteReply | VoteReply) -> None:
    if sender not in core.votes and not message.counts:
        core.trust.doubted.add(sender)
    core.votes.setdefault(sender, message.granted)
    _count(core)


def _own_doubt(core: Core) -> set[int]:
    return {core.node_id} if core.doubtful or not core.may_vote else set()


def _may_elect(core: Core, message: PreVote | Vote) -> bool:
    """Whether the sender's log is at least as new as ours (section 5.4.1).

    Whoever asks, and whether we are a voter, is the candidate's business: it may hold a
    configuration that we don't, and counts the votes of its own voters only (thesis 4.1).
    """
    return (message.last_term, message.last_index) >= (core.log.last_term, core.log.last_index)


def _rank(core: Core) -> tuple[int, int, int]:
    return core.log.last_term, core.log.last_index, -core.node_id


def _become_candidate(core: Core, *, transfer: bool) -> None:
    core.term += TERM_STEP if core.trust.needs_all else 1
    core.vote = core.node_id
    core.elected = None
    core.role = Role.CANDIDATE
    core.set_leader(None)
    core.votes, core.trust.doubted = {}, _own_doubt(core)
    core.restart_election_timer()
    _ask(core, transfer=transfer)


def _ask(core: Core, *, transfer: bool) -> None:
    """Ask every voter that has not answered.

    Votes wait for the save: a candidate that forgot its term, or its newest entries, could
    otherwise win with votes that were given to what it was before.
    """
    core.retry_deadline = core.now + core.config.heartbeat_s
    last_index, last_term = core.log.last_index, core.log.last_term
    open_voters = [
        voter for voter in core.voters if voter != core.node_id and voter not in core.votes
    ]
    message: RaftMessage
    if core.role is Role.PRE_CANDIDATE:
        message = PreVote(core.term + 1, last_index, last_term)
        core.send_queue.extend((voter, message) for voter in open_voters)
    else:
        message = Vote(core.term, last_index, last_term, transfer, core.trust.needs_all)
        core.send_after_save_queue.extend((voter, message) for voter in open_voters)


def _count(core: Core) -> None:
    doubted = core.voters if core.trust.needs_all or core.is_beginning else core.trust.doubted
    outcome = tally(core.votes, core.voters, doubted)
    if outcome is Tally.LOST:
        core.become_follower(core.term, None)
    elif outcome is Tally.WON and core.role is Role.PRE_CANDIDATE:
        _won_pre_votes(core)
    elif outcome is Tally.WON:
        _become_leader(core)


def _won_pre_votes(core: Core) -> None:
    """Campaign, unless this node is suspect and the others can do without it."""
    core.trust.needs_all = not _is_sure_majority(core)
    if core.may_vote or core.trust.needs_all:
        _become_candidate(core, transfer=False)
    else:
        core.become_follower(core.term, None)


def _is_sure_majority(core: Core) -> bool:
    """Whether a majority that has forgotten nothing grants what it was asked for."""
    sure = {
        voter: voter not in core.trust.doubted for voter, granted in core.votes.items() if granted
    }
    return tally(sure, core.voters) is Tally.WON


def _become_leader(core: Core) -> None:
    """Lead, beginning with a no-op: only entries of the own term commit, and older ones with them
    (5.4.2).
    """
    core.role = Role.LEADER
    core.trust.elected_in_doubt = core.trust.needs_all or not _is_sure_majority(core)
    core.may_vote = True  # suspect nodes lead by the votes of all only
    core.trust.ahead = {}
    core.votes = {}
    core.set_leader(core.node_id)
    core.elected = core.node_id
    core.leadership = Leadership(core)
    core.append([Entry(core.log.last_index + 1, core.term, b"")])
