"""Control messages: each is a MessagePack array [tag, field, ...] of the fields below, in order.

The tags, the order and the types are the wire format (docs/protocol.md). Numbers have bounds and
names have their grammar, both checked while decoding, so that no handler sees a name that could be
a path. A later version of the protocol takes a new version number in Hello; it never changes one
of these. A new kind of message between members needs a feature level (docs/upgrades.md).

A position in a session log is (roll, byte) of a handle's run, in a merged log (base_offset, byte).
A publisher *releases* session bytes that are merged, the cluster *archives* the oldest records of a
merged log; whoever holds files *truncates* them, which is no matter of this protocol.

Invariant: `decode_message(encode_message(message)[HEADER_BYTES:]) == message`; any other bytes
give a message or ProtocolFault, nothing else.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Annotated, TypeAlias

import msgspec

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name, check_topic_name
from samelog.wire.bounds import (
    ACKS_TOLD,
    ENDS_TOLD,
    MEMBERS_REACHED,
    Ack,
    ChannelNumber,
    Handle,
    Holder,
    Identifier,
    LastStart,
    Life,
    Message,
    OptionalIdentifier,
    Partition,
    Place63,
    RowsAsked,
    RunEnd,
    ShortText,
    Signed64,
    Text,
    Unsigned32,
    check_optional_session_name,
    check_run_ends,
)
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import (
    CONTROL_LIMIT_BYTES,
    FRAME_VERSION,
    HEADER,
    FrameType,
    bad_header,
)
from samelog.wire.holds import HoldMessage
from samelog.wire.peer_messages import Forgotten, PeerMessage, Superseded
from samelog.wire.refusals import RefusalMessage
from samelog.wire.transaction_messages import TransactionMessage

PROTOCOL_VERSION = 1
NO_BATCH = -1
"""`last_start` where a position has no batch before it in its roll or segment; `last_crc` is 0."""


@unique
class ConnectionRole(IntEnum):
    """What a client wants of the connection it opens."""

    PUSH = 1
    PULL = 2
    RAFT = 3
    """Between members, the control connection."""
    BULK = 4
    """Between members, beside their control connection: what is long."""


@unique
class Start(IntEnum):
    """Where a subscriber wants to start in a merged partition."""

    EARLIEST = 0
    LATEST = 1
    OFFSET = 2
    TIMESTAMP = 3
    POSITION = 4


# --- every connection ---------------------------------------------------------------------------


class Hello(Message, frozen=True, tag=1, forbid_unknown_fields=False):
    """The first frame, from the client. `cluster` may be empty: whichever it is.

    RAFT (and a node's PULL) names node and boot. Later versions may
    add fields: those are skipped, so that a newer peer can be told which version is spoken here.
    """

    role: ConnectionRole
    version: Unsigned32 = PROTOCOL_VERSION
    cluster: str = ""
    node: str | None = None
    boot: Place63 = 0
    number: Unsigned32 | None = None
    """RAFT: the sender's number in the cluster; None asks for it, and who else is there."""
    life: Life | None = None
    """RAFT, with a number, and BULK: which life of the node this is."""
    parts: bool = False
    """PULL: the sender takes batches in parts."""
    roams: bool = False
    """PUSH, PULL: the sender goes to nodes that it is told of (Holders)."""
    rack: str = ""
    """PULL: where the sender is; it is told where all nodes are, if any has said so."""
    refusals: bool = False
    """PUSH: the sender keeps what is refused (RecordsRefused)."""

    def __post_init__(self) -> None:
        if self.cluster:
            check_session_name(self.cluster)
        check_optional_session_name(self.node)


class Welcome(Message, frozen=True, tag=2, forbid_unknown_fields=False):
    """The answer to Hello. `window_bytes` bounds the DATA a sender may have unacknowledged. Fields
    that later versions add are skipped, as those of Hello: nodes are upgraded before clients.
    """

    cluster: str
    node: str
    window_bytes: Place63
    max_batch_bytes: Place63
    version: Unsigned32 = PROTOCOL_VERSION
    boot: Place63 = 0
    number: Unsigned32 | None = None
    is_fresh: bool = False
    """To a node that asks for its number: no node has ever started under it."""
    cluster_id: OptionalIdentifier = ""
    """Empty: the cluster has none yet."""
    life: Life | None = None
    """To a RAFT or BULK connection."""

    def __post_init__(self) -> None:
        check_session_name(self.cluster)
        check_session_name(self.node)


class Fault(Message, frozen=True, tag=3, forbid_unknown_fields=False):
    """The last frame of a connection that its sender will not go on with; as open as Hello."""

    code: FaultCode
    message: Text
    remedy: Text = ""


class Ping(Message, frozen=True, tag=4):
    """Nothing to say, but alive: sent by a side that has sent nothing else. Not answered."""


class Refused(Message, frozen=True, tag=5):
    """What `handle` asks for is refused; the rest of the connection goes on, the handle is free.

    `earliest`: with OUT_OF_RANGE of a merged log, the first offset that can be read; else -1.
    """

    handle: Handle
    code: FaultCode
    message: Text
    remedy: Text = ""
    earliest: Signed64 = -1


class Close(Message, frozen=True, tag=6):
    """The client lets go of a handle for good; what is still under way for it is dropped."""

    handle: Handle


# --- push: sessions, runs and inputs ------------------------------------------------------------


class OpenSession(Message, frozen=True, tag=26):
    """Ship a session on a channel of its own, which frames of it name from now on. The first one
    may follow at once; the only answer is SessionRefused.
    """

    channel: ChannelNumber
    session: str
    session_id: Identifier

    def __post_init__(self) -> None:
        check_session_name(self.session)


class SessionRefused(Message, frozen=True, tag=27):
    """The node ends a session on this connection, and no other one."""

    channel: ChannelNumber
    code: FaultCode
    message: Text
    remedy: Text = ""


class CloseSession(Message, frozen=True, tag=50):
    """The client stops shipping a session; frames under way for it are dropped."""

    channel: ChannelNumber


class Holders(Message, frozen=True, tag=7):
    """These nodes have what was asked for and is refused next, with NOT_LEADER: to who `roams`.
    Right behind Welcome: where all nodes are, to who says where it is itself.
    """

    nodes: tuple[Holder, ...]


class OpenRun(Message, frozen=True, tag=10):
    """Claim a number for a run; `run` is the one in its own directory. With a `stage`, held."""

    run: Unsigned32
    run_id: Identifier
    dedup_id: ShortText | None = None
    dedup_base: Signed64 | None = None
    stage: ShortText | None = None


class RunOpened(Message, frozen=True, tag=11):
    """The number the cluster gave; of a closed run, where it ends in each partition."""

    run_id: Identifier
    number: Unsigned32
    closed: bool = False
    ends: tuple[RunEnd, ...] = ()
    parts: tuple[RunEnd, ...] = ()
    """As in RunClosed."""

    def __post_init__(self) -> None:
        check_run_ends((*self.ends, *self.parts))


class OpenInput(Message, frozen=True, tag=12):
    """Open one partition of a run for DATA; answered by SessionStartsAt, TopicGone or Refused.

    `topic_id`: the topic that the sender's bytes belong to; None: whichever has the name.
    """

    handle: Handle
    topic: str
    partition: Partition
    run_id: Identifier
    topic_id: Identifier | None = None

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class EndRun(Message, frozen=True, tag=13):
    """The run is over and ends here; every byte below has been sent, or was released as merged.

    With `more` the next EndRun of the run continues the list of ends.
    """

    run_id: Identifier
    ends: Annotated[tuple[RunEnd, ...], msgspec.Meta(max_length=ENDS_TOLD)] = ()
    more: bool = False

    def __post_init__(self) -> None:
        check_run_ends(self.ends)


class RunClosed(Message, frozen=True, tag=14):
    """The cluster has closed the run at these ends, which may be lower than the sender's; the next
    run may begin. `parts`: the ends of inputs that data groups have yet to take, before anything of
    the next run.
    """

    run_id: Identifier
    ends: tuple[RunEnd, ...] = ()
    parts: tuple[RunEnd, ...] = ()

    def __post_init__(self) -> None:
        check_run_ends((*self.ends, *self.parts))


class Acks(Message, frozen=True, tag=15):
    """Positions of inputs that have moved, of any sessions of the connection."""

    acks: Annotated[tuple[Ack, ...], msgspec.Meta(max_length=ACKS_TOLD)]


class Reaches(Message, frozen=True, tag=51):
    """The members to which the client's process has a connection for the same sessions: where one
    of them leads an input's group, the receiver need not hurry to acknowledge what it learns from
    that one. Before the first one it hurries.
    """

    members: Annotated[tuple[Unsigned32, ...], msgspec.Meta(max_length=MEMBERS_REACHED)]


class OpenTopic(Message, frozen=True, tag=16):
    """How many partitions has a topic? If it is not there, it is created with so many; 0: it is not
    created.
    """

    topic: str
    partitions: Unsigned32

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class TopicOpened(Message, frozen=True, tag=17):
    """So many; 0: nobody can say, and why. Else the reason may be CHECKED (wire.push.effects)."""

    topic: str
    partitions: Unsigned32
    reason: Text = ""

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class SessionStartsAt(Message, frozen=True, tag=20):
    """Where DATA of a session log starts: the first byte the receiver lacks.

    The batch before it starts at `last_start` of the same roll and has the CRC `last_crc` in its
    header (NO_BATCH and 0 at the start of a roll): whoever sends verifies that its own batch there
    is the same one.
    """

    handle: Handle
    topic_id: Identifier
    partitions: Unsigned32
    roll: Place63
    byte: Place63
    last_start: LastStart = NO_BATCH
    last_crc: Unsigned32 = 0


class RollSealed(Message, frozen=True, tag=21):
    """`roll` ends at `length` and never grows again; DATA goes on at (roll + 1, 0)."""

    handle: Handle
    roll: Place63
    length: Place63


class SessionReleased(Message, frozen=True, tag=22):
    """The publisher has released everything below (roll, byte); DATA would go on there."""

    handle: Handle
    roll: Place63
    byte: Place63


class TopicGone(Message, frozen=True, tag=23):
    """The topic of this handle is gone, or was reset: its new log is the `successor`. Let go."""

    handle: Handle
    successor: Identifier | None = None


# --- pull ---------------------------------------------------------------------------------------


class OpenMerged(Message, frozen=True, tag=30):
    """Subscribe to a merged partition; answered by MergedStartsAt, TopicGone or Refused.

    `value` is the offset (Start.OFFSET) or the timestamp in ms (Start.TIMESTAMP). With
    Start.POSITION the client has a copy up to (base_offset, byte), whose last batch starts at
    `last_start` with the CRC `last_crc`; then `value` is the negative of its next offset, or, from
    a node, the number of the compaction that made the segment, and one more (0: not said).
    """

    handle: Handle
    topic: str
    topic_id: Identifier | None
    partition: Partition
    start: Start
    value: Signed64 = 0
    base_offset: Place63 = 0
    byte: Place63 = 0
    last_start: LastStart = NO_BATCH
    last_crc: Unsigned32 = 0

    def __post_init__(self) -> None:
        check_topic_name(self.topic)


class OpenRows(OpenMerged, frozen=True, tag=28, kw_only=True):
    """As OpenMerged, but only what passes comes, at places that the client names."""

    rows: RowsAsked


class OpenSessionLog(Message, frozen=True, tag=31):
    """Nodes only: a peer's bytes of one run; answered by SessionStartsAt, TopicGone or Refused."""

    handle: Handle
    session: str
    topic: str
    topic_id: Identifier
    partition: Partition
    run: Unsigned32
    roll: Place63
    byte: Place63
    last_start: LastStart = NO_BATCH
    last_crc: Unsigned32 = 0

    def __post_init__(self) -> None:
        check_session_name(self.session)
        check_topic_name(self.topic)


class MergedStartsAt(Message, frozen=True, tag=32):
    """Where DATA of a merged log starts; the partition has offsets [start_offset, end_offset).

    (base_offset, byte) is the start of the batch that contains `offset`; with Start.POSITION it is
    the client's own.
    """

    handle: Handle
    topic_id: Identifier
    partitions: Unsigned32
    base_offset: Place63
    byte: Place63
    offset: Place63
    start_offset: Place63
    end_offset: Place63


class Received(Message, frozen=True, tag=33):
    """The receiver of a pull has taken so many bytes of DATA more: frees the sender's window."""

    handle: Handle
    size_bytes: Place63


class CaughtUp(Message, frozen=True, tag=34):
    """All there is was sent, for now; a merged log ends at `end_offset` (0 for a session log)."""

    handle: Handle
    end_offset: Place63


class SegmentSealed(Message, frozen=True, tag=35):
    """The segment `base_offset` ends at `length` and never grows again; DATA goes on at byte 0 of
    the segment `next_offset`.
    """

    handle: Handle
    base_offset: Place63
    length: Place63
    next_offset: Place63


class LogArchived(Message, frozen=True, tag=36):
    """Records below `offset` are archived; DATA goes on in the segment `base_offset`, which holds
    that offset, at the earliest. `checksum` is the running one at the segment's first byte.
    """

    handle: Handle
    base_offset: Place63
    offset: Place63
    checksum: Unsigned32


class ConfirmEnd(Message, frozen=True, tag=37):
    """Where does an open merged log end, as the cluster knows? The node may lag behind it. Answered
    by EndConfirmed, or Refused; DATA goes on meanwhile.
    """

    handle: Handle


class EndConfirmed(Message, frozen=True, tag=38):
    """What was committed before ConfirmEnd came ends at `end_offset`; DATA will reach it."""

    handle: Handle
    end_offset: Place63


AnyMessage: TypeAlias = (
    Hello
    | Welcome
    | Fault
    | Ping
    | Refused
    | Close
    | Holders
    | OpenSession
    | SessionRefused
    | CloseSession
    | OpenRun
    | RunOpened
    | OpenInput
    | EndRun
    | RunClosed
    | Acks
    | Reaches
    | OpenTopic
    | TopicOpened
    | SessionStartsAt
    | RollSealed
    | SessionReleased
    | TopicGone
    | OpenMerged
    | OpenRows
    | OpenSessionLog
    | MergedStartsAt
    | Received
    | CaughtUp
    | SegmentSealed
    | LogArchived
    | ConfirmEnd
    | EndConfirmed
    | Forgotten
    | Superseded
    | PeerMessage
    | TransactionMessage
    | RefusalMessage
    | HoldMessage
)

_CONTROL = (FrameType.CONTROL.value, FRAME_VERSION, 0)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: AnyMessage, channel: int = 0) -> bytes:
    """A whole CONTROL frame. Raises FrameError when it is longer than a control frame may be."""
    payload = _encoder.encode(message)
    if (size := len(payload)) > CONTROL_LIMIT_BYTES:
        raise bad_header(size, *_CONTROL)
    return HEADER.pack(size, *_CONTROL, channel) + payload


def decode_message(payload: bytes | bytearray | memoryview) -> AnyMessage:
    """The message in a CONTROL payload. Raises ProtocolFault (INVALID_NAME or PROTOCOL)."""
    try:
        message: AnyMessage = _decoder.decode(payload)
        return message
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidName):
            remedy = "use a name of the grammar"
            raise ProtocolFault(FaultCode.INVALID_NAME, str(error), remedy) from error
        raise ProtocolFault(FaultCode.PROTOCOL, f"invalid message: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolFault(FaultCode.PROTOCOL, f"unreadable message: {error}") from error
