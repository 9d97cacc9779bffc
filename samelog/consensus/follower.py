"""Following: taking entries, commits, snapshots and heartbeats from the leader of the term (Raft,
section 5.3).

A reply that promises entries waits for their save; heartbeats are answered at once, so that a slow
disk does not look like a dead node.

Invariant: an entry that is committed here is never replaced; who would, or names another one in its
place, leads another history: HistoryConflict, and this replica takes no part any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from samelog.consensus import quiet
from samelog.consensus.core import Core
from samelog.consensus.errors import HistoryConflict, MalformedMessage
from samelog.consensus.log import with_commit
from samelog.consensus.messages import (
    Append,
    AppendReject,
    AppendReply,
    Commit,
    Heartbeat,
    HeartbeatReply,
    Quiet,
    ReadRequest,
    SnapshotChunk,
    SnapshotReply,
)
from samelog.consensus.types import Entry, Role


def on_append(core: Core, sender: int, message: Append) -> None:
    """Entries behind a place where our log must meet the leader's, or a probe for it."""
    _follow(core, sender)
    if message.entries:
        _check_entries(message)
    backing = core.backing
    joined = backing.joined(message)
    rest = _take(core, sender, joined or message)
    if joined is not None or backing.held is None:
        backing.hold(rest, core.now)


def bytes_came(core: Core) -> None:
    """Take what was held back, as far as its bytes are here now, if its leader still leads."""
    held, leader = core.backing.held, core.leader
    if held is not None:
        follows = leader is not None and held.term == core.term
        rest = _take(core, leader, held) if leader is not None and follows else None
        core.backing.hold(rest, core.now)


def _take(core: Core, sender: int, message: Append) -> Append | None:
    """Take the entries that may be saved, and answer; what has to be held back."""
    log = core.log
    prev_index = message.prev_index
    entries: Sequence[Entry] = message.entries
    if prev_index < core.commit:
        prev_index, entries = _skip_committed(core, prev_index, message.prev_term, entries)
    elif log.term_at(prev_index) != message.prev_term:
        _check_committed(core, prev_index, message.prev_term)
        _reject(core, sender, message)
        return None
    rest = None
    if entries and (count := core.backing.count(log, entries, message.commit)) < len(entries):
        rest = _behind(message, prev_index, entries, count)
        entries = entries[:count]
        if not entries:
            return rest
    if entries:
        _store(core, prev_index, entries)
    match = prev_index + len(entries)
    commit = message.commit if message.commit < match else match
    core.commit = max(core.commit, commit)
    core.regain_certainty()
    core.send_after_save_queue.append(
        (sender, AppendReply(core.term, message.stream, match, core.may_vote))
    )
    return rest


def _behind(message: Append, prev_index: int, entries: Sequence[Entry], count: int) -> Append:
    """The same append without what comes before the first `count` of these entries, and them."""
    before = entries[count - 1].term if count else message.prev_term
    if not count and prev_index != message.prev_index:
        before = message.entries[prev_index - message.prev_index - 1].term
    return Append(
        message.term,
        message.stream,
        prev_index + count,
        before,
        tuple(entries[count:]),
        message.commit,
    )


def on_commit(core: Core, sender: int, message: Commit) -> None:
    """A new commit index, told without waiting for the next entries."""
    _follow(core, sender)
    _let_go(core, message.index)
    _learn_commit(core, message.index, message.entry_term)


def on_heartbeat(core: Core, sender: int, message: Heartbeat) -> None:
    """The leader lives."""
    _follow(core, sender)
    _let_go(core, message.commit)
    _learn_commit(core, message.commit, message.commit_term)
    if core.backing.held is not None and core.now - core.backing.since > core.config.hold_back_s:
        _give_back(core, sender, core.backing.held)
    core.send(sender, HeartbeatReply(core.term, message.round, core.may_vote))
    doubt = core.doubt
    if doubt is not None and doubt.must_ask(core.term, core.now, core.config.heartbeat_s):
        core.send(sender, ReadRequest(core.term, doubt.number))


def on_quiet(core: Core, sender: int, message: Quiet) -> None:
    """The leader lives, and rests."""
    _follow(core, sender)
    _learn_commit(core, message.index, message.entry_term)
    quiet.follow(core, message)


def on_snapshot_chunk(core: Core, sender: int, message: SnapshotChunk) -> None:
    """Part of a snapshot, because the leader no longer has the entries we lack."""
    _follow(core, sender)
    if message.last_index > core.commit and not core.log.matches(
        message.last_index, message.last_term
    ):
        snapshot = core.receiver.receive(sender, message)
        if snapshot is None:
            offset = core.receiver.next_offset
            core.send(sender, SnapshotReply(core.term, message.last_index, message.offset, offset))
            return
        core.install(snapshot)
    _check_committed(core, message.last_index, message.last_term)
    core.receiver.discard()
    core.advance_commit(message.last_index)
    core.send_after_save(sender, AppendReply(core.term, 0, core.commit, core.may_vote))


def _follow(core: Core, sender: int) -> None:
    """The sender leads our term, whether we know it as a voter or not: it may hold a configuration
    that we don't (thesis 4.1). Raises HistoryConflict if another node leads.
    """
    if core.leader == sender:
        core.leader_seen = core.now
        core.election_deadline = core.now + core.patience.wait_s
        return
    if core.elected not in (None, sender) or core.role is Role.LEADER:
        raise HistoryConflict(f"nodes {core.elected} and {sender} both lead term {core.term}")
    core.elected = sender
    core.become_follower(core.term, sender)
    if core.trust.agreed_term == core.term and core.vote == sender:
        core.may_vote = True  # all voted for it, so nobody has more than it has


def _check_entries(message: Append) -> None:
    """Raises MalformedMessage unless indexes are dense and terms grow from prev_term to the
    leader's.
    """
    index, term = message.prev_index, message.prev_term
    for entry in message.entries:
        index += 1
        if entry.index != index or entry.term < term:
            raise MalformedMessage(
                f"entry ({entry.index}, {entry.term}) cannot be number {index} in term {term}"
            )
        term = entry.term
    if term > message.term:
        raise MalformedMessage(f"an entry of term {term} from a leader of term {message.term}")


def _skip_committed(
    core: Core, prev_index: int, prev_term: int, entries: Sequence[Entry]
) -> tuple[int, Sequence[Entry]]:
    """The part of an append that lies above our commit index; below it, it must agree with what we
    have.
    """
    _check_committed(core, prev_index, prev_term)
    for entry in entries:
        if entry.index > core.commit:
            break
        _check_committed(core, entry.index, entry.term)
    return core.commit, entries[core.commit - prev_index :]


def _store(core: Core, prev_index: int, entries: Sequence[Entry]) -> None:
    """Append what we lack; from the first conflict on, the leader's entries replace ours."""
    log = core.log
    if prev_index != log.last_index:
        conflict = log.first_conflict(entries)
        if conflict is None:
            return
        if conflict <= log.last_index:
            core.cut_from(conflict)
        entries = entries[conflict - prev_index - 1 :]
    core.append(entries)


def _reject(core: Core, sender: int, message: Append) -> None:
    log = core.log
    hint_index, hint_term = log.newest_up_to_term(message.prev_index, message.prev_term)
    reject = AppendReject(
        core.term, message.stream, message.prev_index, hint_index, hint_term, log.last_index
    )
    core.send_after_save(sender, reject)


def _let_go(core: Core, commit: int) -> None:
    """The leader has committed so far: what is held back up to there need not wait for bytes."""
    held = core.backing.held
    if held is not None and held.commit < commit:
        core.backing.held = with_commit(held, commit)
        if held.prev_index < commit:
            bytes_came(core)


def _give_back(core: Core, sender: int, held: Append) -> None:
    """The bytes did not come for long: keep nothing for them; the leader sends it again."""
    core.backing.hold(None, core.now)
    index, last = held.prev_index, core.log.last_index
    reject = AppendReject(core.term, held.stream, index + 1, index, held.prev_term, last)
    core.send_after_save(sender, reject)


def _learn_commit(core: Core, index: int, term: int) -> None:
    """The leader's entry (index, term) is committed; if we have it, so is all we hold up to it."""
    if index > core.commit:
        if core.log.term_at(index) == term:
            core.commit = index
    else:
        _check_committed(core, index, term)
    core.regain_certainty()


def _check_committed(core: Core, index: int, term: int) -> None:
    """Raises HistoryConflict if the leader's entry (index, term) is not the one committed here."""
    known = core.log.term_at(index) if index <= core.commit else None
    if known not in (None, term):
        raise HistoryConflict(
            f"entry {index} is committed here with term {known}; the leader of term {core.term} "
            f"has it with term {term}"
        )
