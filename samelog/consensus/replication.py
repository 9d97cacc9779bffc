"""Leading: feeding followers, counting what they hold, proving leadership, handing it over (Raft,
section 5.3, 5.4).

Proposals and commits only mark the leadership as dirty; `flush`, called when effects are taken,
turns everything that gathered into as few messages as possible. Entries go to followers before the
leader's own disk has them: the leader is just one of the voters that must save them.

Invariant: only entries of the leader's own term are committed by counting (5.4.2).
"""

from __future__ import annotations

from samelog.consensus import quiet, quorum
from samelog.consensus.core import Core, Leadership
from samelog.consensus.errors import MalformedMessage
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    HeartbeatReply,
    ReadReply,
    ReadRequest,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
)
from samelog.consensus.progress import Progress, ProgressState, SnapshotTransfer
from samelog.consensus.quiet import NEVER
from samelog.format.errors import InvariantError

GATHER_S = 0.05
"""Nobody who publishes waits for those who are far away: what they are sent is gathered for so
long. Else each record would wait until it was sent to them, too."""

# --- driven by time, the disk and the caller ------------------------------------------------------


def tick(core: Core, lead: Leadership) -> None:
    """Heartbeats, and the check that a majority still answers (CheckQuorum)."""
    if lead.transfer_to is not None and core.now >= lead.transfer_deadline:
        lead.transfer_to = None
    if core.now >= lead.quorum_deadline and not _check_quorum(core, lead):
        core.become_follower(core.term, None)
        # Its followers may just be late: who led last asks first, whatever its patience.
        core.election_deadline = core.now + core.config.election_timeout_s
    elif core.now >= lead.heartbeat_deadline and not quiet.begin(core, lead):
        _broadcast_heartbeat(core, lead)
        _answer_reads(core, lead)  # who did not acknowledge them may be no voter any more
    if core.now >= lead.far_due:
        lead.far_due = NEVER
        lead.dirty = True


def woke(core: Core, lead: Leadership, late_s: float) -> None:
    """This node stood still for so long. Others must hear of it at once; that it heard of nobody
    meanwhile says nothing about them.
    """
    lead.quorum_deadline += late_s
    if core.now >= lead.heartbeat_deadline:
        _broadcast_heartbeat(core, lead)


def saved(core: Core, lead: Leadership) -> None:
    """The leader's own entries count toward the quorum from the moment they are durable."""
    durable = core.saves.durable_index
    if durable > lead.counted.get(core.node_id, durable):
        lead.counted[core.node_id] = durable
        if durable > core.commit:
            _advance_commit(core, lead)


def start_transfer(core: Core, lead: Leadership, to: int) -> None:
    """Hand leadership to a voter once it holds our whole log; no proposals meanwhile."""
    lead.transfer_to = to
    lead.transfer_deadline = core.now + core.config.election_timeout_s
    _transfer_if_ready(core, lead, to)


def peer_restarted(lead: Leadership, peer: int) -> None:
    """Take back what a follower is believed to hold, and ask it at once."""
    progress = lead.progress[peer]
    _forget(lead, peer, progress, progress.match)
    lead.dirty = True


def flush(core: Core, lead: Leadership) -> None:
    """Turn what gathered since the last call into messages."""
    if lead.reads.waiting and core.commit >= lead.noop_index:
        lead.reads.start_round(core.commit, core.node_id)
        _broadcast_heartbeat(core, lead)
        _answer_reads(core, lead)
    if lead.dirty:
        lead.dirty = False
        last_index, commit = core.log.last_index, core.commit
        for peer, progress in lead.progress.items():
            if progress.next <= last_index or progress.commit_sent < commit:
                feed = _feed_afar if progress.is_far else _feed
                feed(core, lead, peer, progress)
    if core.node_id not in lead.counted and core.commit >= core.memberships.index:
        _leave(core, lead)


def _leave(core: Core, lead: Leadership) -> None:
    """The entry that removed this node is committed: somebody else must lead (thesis 4.2.2)."""
    best = max(lead.counted, key=lambda voter: lead.counted[voter])
    _transfer_if_ready(core, lead, best)
    core.become_follower(core.term, None)


# --- answers of followers -------------------------------------------------------------------------


def on_append_reply(core: Core, sender: int, message: AppendReply) -> None:
    """A follower holds more of our log."""
    lead = core.leadership
    if lead is None:
        return
    match = message.match
    progress = lead.progress[sender]
    progress.last_active = core.now
    if match > core.log.last_index:
        core.trust.ahead[sender] = match
        return
    if 0 < message.stream < progress.first_stream:
        return  # what it acknowledged before it lost entries, or restarted
    if message.counts != progress.counts:
        _trust(lead, sender, progress, message.counts)
    progress.accepted(match, message.stream)
    if progress.next <= core.log.last_index or progress.commit_sent < core.commit:
        lead.dirty = True
    counted = lead.counted
    if message.counts and match > counted.get(sender, match):
        counted[sender] = match
        if match > core.commit:
            _advance_commit(core, lead)
    if lead.transfer_to == sender:
        _transfer_if_ready(core, lead, sender)


def on_append_reject(core: Core, sender: int, message: AppendReject) -> None:
    """The logs part before the append: step back over whole terms. Old news are ignored."""
    lead = core.leadership
    if lead is None:
        return
    progress = lead.progress[sender]
    progress.last_active = core.now
    if progress.state is ProgressState.SNAPSHOT or message.stream != progress.stream:
        return
    retry_from = core.log.newest_up_to_term(message.hint_index, message.hint_term)[0] + 1
    if message.prev_index > progress.match:
        progress.rejected(min(retry_from, message.prev_index))
    elif message.last_index < progress.match:
        _forget(lead, sender, progress, retry_from)
    lead.dirty = True


def on_heartbeat_reply(core: Core, sender: int, message: HeartbeatReply) -> None:
    """A follower lives and follows; whatever it seems to lack is probed for. So is where it stands,
    if that is not sure: nothing else may ever be sent to it that says so.
    """
    lead = core.leadership
    if lead is None:
        return
    progress = lead.progress[sender]
    progress.last_active = core.now
    if message.counts != progress.counts:
        _trust(lead, sender, progress, message.counts)
    if message.counts:
        lead.reads.acknowledge(sender, min(message.round, lead.reads.round))
        _answer_reads(core, lead)
    if progress.match < core.log.last_index or progress.state is ProgressState.PROBE:
        _ask_where(core, lead, sender, progress)


def on_snapshot_reply(core: Core, sender: int, message: SnapshotReply) -> None:
    """A chunk arrived: send the one that is wanted next. Older answers are ignored."""
    lead = core.leadership
    if lead is None:
        return
    progress = lead.progress[sender]
    progress.last_active = core.now
    transfer = progress.transfer
    if (
        transfer is None
        or message.last_index != transfer.snapshot.last_index
        or message.offset != transfer.offset
    ):
        return
    if message.next_offset > len(transfer.snapshot.data):
        raise MalformedMessage(
            f"node {sender} wants byte {message.next_offset} of {len(transfer.snapshot.data)}"
        )
    transfer.offset = message.next_offset
    _send_chunk(core, lead, sender, progress, transfer)


# --- reads ----------------------------------------------------------------------------------------


def on_read_request(core: Core, sender: int, message: ReadRequest) -> None:
    """A follower's read."""
    if core.leadership is not None:
        core.leadership.reads.waiting.append((sender, message.context))


def on_read_reply(core: Core, sender: int, message: ReadReply) -> None:
    """The leader's answer to a read that we forwarded, or to our doubt."""
    if core.doubt is not None and message.context == core.doubt.number:
        core.doubt.answered(message.index)
        core.regain_certainty()
        return
    context = core.forwarded.answered(message.context)
    if context is not None:
        core.reads.append((context, message.index))


def read_index(core: Core, context: int) -> None:
    """A read asked for at this node: prove it here, or ask the leader."""
    if core.leadership is not None:
        core.leadership.reads.waiting.append((core.node_id, context))
    elif core.leader is None:
        core.reads.append((context, None))
    else:
        number = core.forwarded.add(context, core.now + core.config.election_timeout_s)
        core.send(core.leader, ReadRequest(core.term, number))


def _answer_reads(core: Core, lead: Leadership) -> None:
    for read in lead.reads.take_proved():
        if read.origin == core.node_id:
            core.reads.append((read.context, read.read_index))
        else:
            core.send(read.origin, ReadReply(core.term, read.context, read.read_index))


# --- counting -------------------------------------------------------------------------------------


def _trust(lead: Leadership, sender: int, progress: Progress, counts: bool) -> None:
    """A follower lost its memory, or is trusted again: ask it again what it holds."""
    progress.counts = counts
    _forget(lead, sender, progress, progress.match)


def _forget(lead: Leadership, sender: int, progress: Progress, next_index: int) -> None:
    """Take back what a follower is believed to hold, and ask it, from `next_index` on."""
    progress.lost_entries(next_index)
    if sender in lead.counted:
        lead.counted[sender] = 0


def _advance_commit(core: Core, lead: Leadership) -> None:
    """Commit what a majority has saved, if it is of our own term (section 5.4.2)."""
    index = quorum.reached(lead.counted.values())
    if index <= core.commit or core.log.term_at(index) != core.term:
        return
    core.advance_commit(index)
    done = 0
    for last, size in lead.proposed:
        if last > index:
            break
        lead.uncommitted_bytes -= size
        done += 1
    del lead.proposed[:done]
    lead.dirty = True


def _check_quorum(core: Core, lead: Leadership) -> bool:
    """Whether a majority was heard of since the last check, whenever that was."""
    active = int(core.node_id in lead.counted)
    for voter, progress in lead.progress.items():
        active += (
            voter in lead.counted and progress.counts and progress.last_active > lead.quorum_since
        )
    lead.quorum_since = core.now
    lead.quorum_deadline = core.now + core.config.election_timeout_s
    return active >= quorum.majority(len(core.voters))


def _transfer_if_ready(core: Core, lead: Leadership, to: int) -> None:
    if lead.progress[to].match == core.log.last_index:
        core.send(to, TimeoutNow(core.term))


# --- sending --------------------------------------------------------------------------------------


def _broadcast_heartbeat(core: Core, lead: Leadership) -> None:
    lead.heartbeat_deadline = core.now + core.config.heartbeat_s
    commit_term = core.log.term_at(core.commit)
    if commit_term is None:
        raise InvariantError(f"committed entry {core.commit} is not in the log")
    message = Heartbeat(core.term, core.commit, commit_term, lead.reads.round)
    core.send_queue.extend((peer, message) for peer in core.peers)


def _feed_afar(core: Core, lead: Leadership, peer: int, progress: Progress) -> None:
    """As `_feed`, for one that is far away: what it lacks is gathered as long as it keeps up."""
    if core.now >= progress.due_at or progress.state is not ProgressState.REPLICATE:
        progress.due_at = NEVER
        _feed(core, lead, peer, progress)
        return
    progress.due_at = min(progress.due_at, core.now + GATHER_S)
    lead.far_due = min(lead.far_due, progress.due_at)


def _feed(core: Core, lead: Leadership, peer: int, progress: Progress) -> None:
    """Send a follower whatever it lacks, as far as its window allows."""
    log, config = core.log, core.config
    while progress.next <= log.last_index and progress.may_append(config.max_inflight):
        if progress.next > log.base_index:
            if log.is_long(progress.next, config.max_append_bytes):
                if progress.inflight:
                    break  # it might come before them
                progress.long_until = core.now + config.election_timeout_s
            _send_append(core, lead, peer, progress, config.max_append_bytes)
        elif not _begin_snapshot(core, lead, peer, progress):
            return
    if progress.commit_sent < core.commit and progress.state is ProgressState.REPLICATE:
        progress.commit_sent = core.commit
        core.send_queue.append((peer, _commit_message(core, lead)))


def _send_append(
    core: Core, lead: Leadership, peer: int, progress: Progress, limit_bytes: int
) -> None:
    """Append from `next` on; with no bytes allowed, an empty one that asks for a position.

    Followers that stand at the same place share one message.
    """
    prev_index, commit = progress.next - 1, core.commit
    key = (prev_index, progress.stream, commit, core.log.last_index, limit_bytes)
    if key == lead.append_key:
        message = lead.append
    else:
        entries = core.log.entries_up_to_bytes(progress.next, limit_bytes) if limit_bytes else ()
        prev_term = core.log.term_at(prev_index) or 0
        message = Append(core.term, progress.stream, prev_index, prev_term, entries, commit)
        lead.append_key, lead.append = key, message
    progress.append_sent(prev_index + len(message.entries))
    progress.commit_sent = commit
    core.send_queue.append((peer, message))


def _commit_message(core: Core, lead: Leadership) -> Commit:
    """The message that tells the commit index, made once for all followers."""
    if lead.commit_message.index != core.commit:
        lead.commit_message = Commit(core.term, core.commit, core.log.term_at(core.commit) or 0)
    return lead.commit_message


def _ask_where(core: Core, lead: Leadership, peer: int, progress: Progress) -> None:
    """Something sent to a live follower may be lost: let it say what it has."""
    if progress.transfer is not None:
        answer_deadline = progress.transfer.sent_at + core.config.election_timeout_s
        if core.now >= answer_deadline:
            _send_chunk(core, lead, peer, progress, progress.transfer)
    elif core.now < progress.long_until:
        return
    elif progress.state is ProgressState.PROBE and progress.next <= core.log.last_index:
        progress.probe_sent = False
        lead.dirty = True
    elif progress.next <= core.log.base_index:
        progress.rejected(progress.next)
        lead.dirty = True
    else:
        _send_append(core, lead, peer, progress, 0)


def _begin_snapshot(core: Core, lead: Leadership, peer: int, progress: Progress) -> bool:
    """Whether there is a snapshot to send; its first chunk is then under way."""
    snapshot = core.snapshots.whole(core.log.base_index)
    if snapshot is None:
        return False
    transfer = progress.send_snapshot(snapshot, core.now)
    _send_chunk(core, lead, peer, progress, transfer)
    return True


def _send_chunk(
    core: Core, lead: Leadership, peer: int, progress: Progress, transfer: SnapshotTransfer
) -> None:
    """Send the chunk at the offset, unless the log was cut behind that snapshot meanwhile."""
    snapshot, offset = transfer.snapshot, transfer.offset
    if snapshot.last_index < core.log.base_index:
        progress.rejected(progress.next)
        lead.dirty = True
        return
    transfer.sent_at = core.now
    data = snapshot.data[offset : offset + core.config.snapshot_chunk_bytes]
    chunk = SnapshotChunk(
        core.term,
        snapshot.last_index,
        snapshot.last_term,
        snapshot.voters,
        snapshot.learners,
        offset,
        len(snapshot.data),
        data,
    )
    core.send(peer, chunk)
