"""What nodes say to each other, and its bytes (docs/raft.md, "Messages").

One payload is the MessagePack array `[2, [part, ...]]`, a part being what one group has to say:
`[group, sender, receiver, [message, ...]]` with the numbers of both replicas. A message is an array
whose first item is its type's number, followed by its fields in the order of the class.

Invariant: decoding any bytes gives messages whose numbers are in range, or MalformedMessage;
nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from samelog.consensus.errors import MalformedMessage
from samelog.consensus.types import Entry, NodeNumber, Number
from samelog.format.numbers import Unsigned32


class RaftMessage(
    msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True
):
    """Base of all messages. `term` is the sender's, but for PreVote and a granted PreVoteReply."""

    term: Number


class PreVote(RaftMessage, frozen=True, tag=1):
    """Would you vote for me in `term`? Nobody's term changes by asking."""

    last_index: Number
    last_term: Number


class PreVoteReply(RaftMessage, frozen=True, tag=2):
    """`term` is the asked one when granted, else the voter's own; `counts` as in VoteReply."""

    granted: bool
    counts: bool = True


class Vote(RaftMessage, frozen=True, tag=3):
    """Vote for me in `term`. `transfer`: the leader asked for this election, so leases don't hinder
    it. `needs_all`: the sender leads only if every voter votes for it.
    """

    last_index: Number
    last_term: Number
    transfer: bool
    needs_all: bool = False


class VoteReply(RaftMessage, frozen=True, tag=4):
    """The answer to Vote, sent only once it is durable.

    `counts` is false when the sender may have forgotten what it once acknowledged or voted: what
    it grants is part of no majority, only of the votes of all.
    """

    granted: bool
    counts: bool = True


class Append(RaftMessage, frozen=True, tag=5):
    """Entries that follow (prev_index, prev_term); `commit` is the leader's commit index.

    `stream` numbers the leader's attempts to feed this follower; answers repeat it.
    """

    stream: Number
    prev_index: Number
    prev_term: Number
    entries: tuple[Entry, ...]
    commit: Number


class AppendReply(RaftMessage, frozen=True, tag=6):
    """The sender's log is durably equal to the leader's up to `match`.

    `counts` is false when the sender is no longer trusted to remember what it once acknowledged.
    `stream` is 0 in answer to a snapshot.
    """

    stream: Number
    match: Number
    counts: bool


class AppendReject(RaftMessage, frozen=True, tag=7):
    """The sender has no entry equal to (prev_index, prev_term).

    (hint_index, hint_term): its newest entry that may be in the leader's log too. `last_index`: its
    log's end.
    """

    stream: Number
    prev_index: Number
    hint_index: Number
    hint_term: Number
    last_index: Number


class Commit(RaftMessage, frozen=True, tag=8):
    """Everything up to the entry (index, entry_term) is committed. Needs no answer."""

    index: Number
    entry_term: Number


class Heartbeat(RaftMessage, frozen=True, tag=9):
    """I lead. `round` numbers the leader's proofs of leadership; (commit, commit_term) as in
    Commit.
    """

    commit: Number
    commit_term: Number
    round: Number


class HeartbeatReply(RaftMessage, frozen=True, tag=10):
    """You led when I got the heartbeat of `round`."""

    round: Number
    counts: bool


class SnapshotChunk(RaftMessage, frozen=True, tag=11):
    """Bytes of a snapshot from `offset`; `total_bytes` is the size of the whole."""

    last_index: Number
    last_term: Number
    voters: tuple[NodeNumber, ...]
    learners: tuple[NodeNumber, ...]
    offset: Number
    total_bytes: Number
    data: bytes


class SnapshotReply(RaftMessage, frozen=True, tag=12):
    """The chunk at `offset` of the snapshot `last_index` came; go on at `next_offset`."""

    last_index: Number
    offset: Number
    next_offset: Number


class TimeoutNow(RaftMessage, frozen=True, tag=13):
    """Become leader: campaign at once."""


class ReadRequest(RaftMessage, frozen=True, tag=14):
    """From a follower: which index must I have applied to answer a read? `context` is its unique
    number.
    """

    context: Number


class ReadReply(RaftMessage, frozen=True, tag=15):
    """The answer to ReadRequest."""

    context: Number
    index: Number


class Quiet(RaftMessage, frozen=True, tag=16):
    """The entry (index, entry_term) is the last one, and committed; who has it rests, as the leader
    does: no more heartbeats until something happens. No answer.
    """

    index: Number
    entry_term: Number


URGENT = (
    PreVote,
    PreVoteReply,
    Vote,
    VoteReply,
    Heartbeat,
    HeartbeatReply,
    TimeoutNow,
    ReadRequest,
    ReadReply,
    Quiet,
)
"""Short, and waited for: they may pass all others."""

AnyRaftMessage = (
    PreVote
    | PreVoteReply
    | Vote
    | VoteReply
    | Append
    | AppendReply
    | AppendReject
    | Commit
    | Heartbeat
    | HeartbeatReply
    | SnapshotChunk
    | SnapshotReply
    | TimeoutNow
    | ReadRequest
    | ReadReply
    | Quiet
)


class GroupMessages(NamedTuple):
    """What one replica of a group says to another one, in order."""

    group: Unsigned32
    sender: Unsigned32
    receiver: Unsigned32
    messages: Sequence[AnyRaftMessage]


class _OfGroups(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="v", tag=2
):
    parts: list[GroupMessages]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_OfGroups)


def encode_groups(parts: Sequence[GroupMessages]) -> bytes:
    """The payload that carries what several groups have to say, in order."""
    return _encoder.encode((2, parts))


def decode_groups(payload: bytes | bytearray | memoryview) -> list[GroupMessages]:
    """What a payload carries. Raises MalformedMessage for any other bytes."""
    try:
        return _decoder.decode(payload).parts
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedMessage(f"not a payload of messages: {error}") from error
