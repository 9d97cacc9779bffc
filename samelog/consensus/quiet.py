"""Groups in which nothing happens: leaders send no heartbeats, followers have no timers.

A leader that has nothing to say, and whose followers have all that it has, says so once (`Quiet`).
Followers that have not answered for long are away, and need not: a majority that knows all rests
without them. They have timers, and wake the others when they can be heard of again.

From then on somebody else must tell whether the members of the group live
(samelog.wire.pair_liveness). Any message, proposal or read wakes a replica; a leader that wakes
speaks at once, and proves again that a majority answers.

Invariant: only who holds nothing but committed entries rests. A follower that rests follows the
leader of its term; a leader rests with a majority. Nothing is proved by rest.
"""

from __future__ import annotations

from samelog.consensus.core import Core, Leadership
from samelog.consensus.messages import Quiet
from samelog.consensus.progress import Progress, ProgressState
from samelog.consensus.quorum import majority

NEVER = float("inf")
LATE_ANSWERS = 2
"""Heartbeats' times: who has not answered for so long may be away."""
AWAY = 4
"""Election timeouts: who has not answered the heartbeats of so long is away."""
SPREAD_S = 0.05
"""Replicas that wake because their leader is silent campaign within this time, at random."""


def begin(core: Core, lead: Leadership) -> bool:
    """Rest from now on, if nothing happened since the last heartbeat, and all followers but those
    that are away know all.
    """
    was_idle = lead.beat_index == core.log.last_index
    lead.beat_index = core.log.last_index
    if core.patience.heard is None or not was_idle or not _has_nothing_to_say(core, lead):
        return False
    core.patience.rests = True
    lead.heartbeat_deadline = lead.quorum_deadline = NEVER
    lead.rests_with = tuple(peer for peer in core.peers if _knows_all(core, lead.progress[peer]))
    message = Quiet(core.term, core.commit, core.log.term_at(core.commit) or 0)
    core.send_queue.extend((peer, message) for peer in lead.rests_with)
    return True


def _has_nothing_to_say(core: Core, lead: Leadership) -> bool:
    is_settled = core.commit == core.log.last_index == core.saves.durable_index == core.applied
    if not is_settled or lead.transfer_to is not None or lead.reads.is_open:
        return False
    there = {peer for peer, progress in lead.progress.items() if _knows_all(core, progress)}
    voters = sum(voter in there or voter == core.node_id for voter in core.voters)
    others = lead.progress.keys() - there
    return voters >= majority(len(core.voters)) and all(_is_away(core, lead, n) for n in others)


def _is_away(core: Core, lead: Leadership, peer: int) -> bool:
    heard = max(lead.awake_since, lead.progress[peer].last_active)
    return core.now - heard >= AWAY * core.config.election_timeout_s


def _knows_all(core: Core, progress: Progress) -> bool:
    since = core.now - LATE_ANSWERS * core.config.heartbeat_s
    return (
        progress.state is ProgressState.REPLICATE
        and progress.match == core.log.last_index
        and progress.counts
        and progress.last_active >= since
    )


def follow(core: Core, message: Quiet) -> None:
    """Rest as well, with exactly what the leader has. Else its next beat shows who does not."""
    log = core.log
    is_same = log.last_index == message.index and log.term_at(message.index) == message.entry_term
    is_settled = core.commit == log.last_index == core.saves.durable_index
    if core.patience.heard is None or not (is_same and is_settled and core.may_vote):
        return
    if core.backing.held is None and core.doubt is None:
        core.patience.rests = True
        core.election_deadline = NEVER


def stay_awake(core: Core) -> None:
    """Wake, or stay awake although a follower has not answered for long. A replica that begins
    late, as a learner, has received nothing yet; its leader would count it as away, and rest.
    """
    if core.leadership is not None:
        core.leadership.awake_since = core.now
    wake(core)


def wake(core: Core) -> None:
    """Speak, or listen for the leader, as ever."""
    if not core.patience.rests:
        return
    core.patience.rests = False
    lead = core.leadership
    if lead is not None:
        lead.heartbeat_deadline = lead.quorum_since = lead.awake_since = core.now
        lead.rests_with = ()
        lead.quorum_deadline = core.now + core.config.election_timeout_s
        return
    if core.patience.heard is not None:
        core.leader_seen = max(core.leader_seen, core.patience.heard())
    core.patience.draw(core.random.random())
    spread = core.now + core.random.random() * SPREAD_S
    core.election_deadline = max(core.leader_seen + core.patience.wait_s, spread)
