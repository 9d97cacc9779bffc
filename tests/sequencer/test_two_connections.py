"""Two connections to each member: what goes over which, in what order, and which life of the peer
they belong to.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from samelog.config.values import Address
from samelog.consensus import GroupMessages, decode_groups, encode_groups
from samelog.consensus.messages import (
    Append,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
    SnapshotChunk,
    SnapshotReply,
)
from samelog.consensus.types import Entry
from samelog.format.positions import SessionPosition
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import SystemClock
from samelog.runtime.errors import ConnectFault
from samelog.runtime.network.link import PeerPlace
from samelog.sequencer.bulk_server import BulkServer, DiallingMember
from samelog.sequencer.cluster.peers import Callers, PeerLink, PeerServer, make_hello, make_report
from samelog.sequencer.dispatch import Dispatcher
from samelog.sequencer.raft.views import KeptFiles
from samelog.wire.bounds import Health, Life
from samelog.wire.errors import FaultCode, FrameError, ProtocolFault
from samelog.wire.frames import HEADER_BYTES, FrameType, decode_header
from samelog.wire.member_queues import CONTROL_FRAME_BYTES
from samelog.wire.messages import AnyMessage, ConnectionRole, Welcome, decode_message
from samelog.wire.peer_messages import Cursors, Forward, MemberList, PartitionOffset, Report
from tests.consensus.group import Group, led

LIFE = Life(1, "now", (), is_sure=True, cluster_id="c", term=1, last_index=1, last_term=1)
BEAT = Heartbeat(1, 1, 1, 1)
LONG = Append(1, 1, 1, 1, (Entry(2, 1, bytes(300_000)),), 1)
SAID = GroupMessages(0, 0, 0, [LONG])
SHORT = Append(1, 1, 1, 1, (Entry(2, 1, b"short"),), 1)


class Line:
    """A connection that keeps the frames it is given."""

    def __init__(self) -> None:
        self.writable = self.is_open = True
        self.last_received = 1e9
        self.frames: deque[bytes] = deque()

    def limit_waiting(self, high_bytes: int, low_bytes: int) -> None:
        assert high_bytes <= CONTROL_FRAME_BYTES

    def send(self, message: AnyMessage) -> None:
        """Hello."""

    def send_raft(self, payload: bytes) -> None:
        self.frames.append(bytes(HEADER_BYTES) + payload)

    def send_bytes(self, frame: bytes) -> None:
        self.frames.append(frame)

    def close(self) -> None:
        self.is_open = self.writable = False

    def take(self) -> list[Any]:
        """What was sent, decoded."""
        frames, self.frames = self.frames, deque()
        return [message for frame in frames for message in decoded(frame)]


def decoded(frame: bytes) -> list[Any]:
    """The messages of one frame."""
    payload = frame[HEADER_BYTES:]
    if not any(frame[:HEADER_BYTES]) or decode_header(frame)[0] is FrameType.RAFT:
        return [message for part in decode_groups(payload) for message in part.messages]
    return [decode_message(payload)]


class Ends:
    """This member's end of both connections to member 1."""

    def __init__(self, *, incarnation: str = "now") -> None:
        self.welcomed: list[int] = []
        listener = SimpleNamespace(
            on_peer_welcomes=lambda number, life: self.welcomed.append(number)
        )
        self.link = PeerLink(
            1,
            PeerPlace("n1", (Address("n1", 1),)),
            lambda: make_hello(cluster="c", node="n0", number=0, life=LIFE),
            lambda: MemberList(1, ()),
            cast(Any, listener),
            tls=cast(Any, None),
            backoff=Backoff(random.Random(1)),
            clock=SystemClock(),
        )
        self.control, self.bulk = Line(), Line()
        self.link._link.connection = cast(Any, self.control)
        self.link._open(cast(Any, self.control), lambda error: None)
        handles = SimpleNamespace(connection=self.bulk, is_idle=False)
        self.link.bulk._handles = cast(Any, handles)
        self.link.on_message(self.welcome(incarnation))

    @staticmethod
    def welcome(incarnation: str) -> Welcome:
        life = LIFE._replace(incarnation=incarnation)
        return Welcome("c", "n1", 1, 1, number=1, life=life)


# --- what goes over which -----------------------------------------------------------------------


def test_what_is_long_goes_over_the_bulk_connection_and_never_over_control() -> None:
    ends = Ends()
    ends.link.send_raft(0, [SHORT, LONG, BEAT])
    forward = Forward(1, bytes(100_000))
    assert ends.link.send(forward)
    assert ends.bulk.take() == [LONG, forward]
    assert all(len(f) - HEADER_BYTES <= CONTROL_FRAME_BYTES for f in ends.control.frames)
    assert ends.control.take() == [SHORT, BEAT]


def test_many_short_messages_are_no_long_one() -> None:
    ends = Ends()
    some = [SHORT] * 3000
    ends.link.send_raft(0, some)
    assert all(len(f) - HEADER_BYTES <= CONTROL_FRAME_BYTES for f in ends.control.frames)
    assert ends.control.take() == some
    assert not ends.bulk.frames


def test_what_is_urgent_leaves_a_crowded_connection_first() -> None:
    ends = Ends()
    ends.control.writable = False
    cursors = Cursors((PartitionOffset(1, 5),))
    ends.link.send_raft(0, [SHORT])
    assert ends.link.send(cursors)
    ends.link.send_raft(0, [BEAT])
    assert not ends.control.frames
    ends.control.writable = True
    ends.link.on_writable()
    assert ends.control.take() == [BEAT, SHORT, cursors]


def test_a_long_report_stays_on_control_in_parts_that_say_the_same() -> None:
    ends = Ends()
    places = {n: SessionPosition(1 << 30, n, 1 << 60) for n in range(7000)}
    merged, samples = dict.fromkeys(range(2500), 1 << 60), {1: dict.fromkeys(range(3), 9)}
    health = Health(1, 2, 3, "")
    report = make_report(
        boot=4,
        places=places,
        merged=merged,
        samples=samples,
        files=dict.fromkeys(range(1500), KeptFiles(1 << 60, 7)),
        health=health,
    )
    assert ends.link.send(report)
    assert not ends.bulk.frames
    assert all(len(f) - HEADER_BYTES <= CONTROL_FRAME_BYTES for f in ends.control.frames)
    parts = cast(list[Report], ends.control.take())
    assert {part.boot for part in parts} == {4}
    assert sum((part.positions for part in parts), ()) == report.positions
    assert sum((part.merged for part in parts), ()) == report.merged
    assert sum((part.samples for part in parts), ()) == report.samples
    assert sum((part.files for part in parts), ()) == report.files
    assert [part.health for part in parts if part.health] == [health]
    cursors = Cursors(tuple(PartitionOffset(n, 1 << 60) for n in range(9000)))
    assert ends.link.send(cursors)
    told = cast(list[Cursors], ends.control.take())
    assert sum((part.merged for part in told), ()) == cursors.merged


# --- which life they belong to --------------------------------------------------------------------


def test_the_bulk_connection_ends_with_the_control_connection() -> None:
    ends = Ends()
    ends.bulk.writable = False
    ends.link.send_raft(0, [LONG])
    ends.link.on_closed(None)
    assert not ends.bulk.is_open
    assert not ends.link.bulk._queues
    with pytest.raises(ConnectFault, match="no control connection"):
        ends.link._bulk_hello()
    assert not ends.link.send(Cursors())


def test_the_bulk_connection_leads_to_the_life_that_control_talks_to() -> None:
    ends = Ends(incarnation="now")
    ends.link._check_bulk(ends.welcome("now"))
    for other in (ends.welcome("before"), Welcome("c", "n1", 1, 1)):
        with pytest.raises(ProtocolFault, match="another life") as caught:
            ends.link._check_bulk(other)
        assert caught.value.code is FaultCode.STALE_BOOT


class Listening:
    """A node that peers dial."""

    def __init__(self) -> None:
        self.callers = Callers()
        self.heard: list[object] = []

    def on_peer_dialled(self, server: PeerServer) -> None:
        self.callers.add(server)

    def on_peer_gone(self, server: PeerServer) -> None:
        self.callers.remove(server)

    def on_raft(self, number: int, messages: object) -> None:
        self.heard.append(messages)

    def on_peer_message(self, number: int, message: object) -> None:
        self.heard.append(message)

    def dialled(self, incarnation: str) -> PeerServer:
        """Member 1 dials its control connection."""
        line = cast(Any, Line())
        return PeerServer(1, incarnation, line, cast(Any, self))


class Bulk:
    """A bulk connection that member 1 dialled."""

    number = 1

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.is_void = False

    def void(self) -> None:
        self.is_void = True


def test_a_bulk_connection_counts_as_long_as_control_of_the_same_life() -> None:
    node = Listening()
    assert not node.callers.is_connected(1, "first")
    control = node.dialled("first")
    assert node.callers.is_connected(1, "first")
    bulk = Bulk("first")
    node.callers.add_bulk(bulk)
    again = node.dialled("first")
    control.on_closed(None)
    assert not bulk.is_void
    again.on_closed(None)
    assert bulk.is_void
    node.callers.remove_bulk(bulk)


def test_a_newer_life_ends_the_bulk_connection_of_an_older_one() -> None:
    node = Listening()
    node.dialled("first")
    old, new = Bulk("first"), Bulk("second")
    node.callers.add_bulk(old)
    node.dialled("second")
    assert old.is_void
    node.callers.add_bulk(new)
    assert not new.is_void
    late = Bulk("first")
    node.callers.add_bulk(late)
    assert late.is_void


def test_a_bulk_connection_of_another_life_is_not_taken() -> None:
    async def body() -> None:
        node, took = Listening(), list[DiallingMember]()
        hello = make_hello(cluster="c", node="n1", number=1, life=LIFE)
        hello = msgspec.structs.replace(hello, role=ConnectionRole.BULK)
        with pytest.raises(ProtocolFault, match="no control connection of this life"):
            dispatcher(node, took).on_message(hello)
        cast(Any, node.dialled("before"))._connection.last_received = -1e9
        with pytest.raises(ProtocolFault, match="no control connection of this life") as caught:
            dispatcher(node, took).on_message(hello)
        assert caught.value.code is FaultCode.NOT_READY
        assert took == []
        node.dialled("now")
        dispatcher(node, took).on_message(hello)
        assert took == [DiallingMember(1, "now")]

    asyncio.run(body())


def dispatcher(node: Listening, took: list[DiallingMember]) -> Dispatcher:
    """What a connection of member 1 to a node meets; `took` gets who dialled a bulk one."""
    line = SimpleNamespace(
        identity="samelog://node/n1", send=lambda message: None, hand_over=lambda handler: None
    )
    gate = SimpleNamespace(
        group=SimpleNamespace(halted=""),
        listener=node,
        source=None,
        logs=SimpleNamespace(
            intake=SimpleNamespace(batch_bytes=1),
        ),
        member=SimpleNamespace(
            config=SimpleNamespace(cluster="c", name="n0", max_record_bytes=1),
            directory=SimpleNamespace(record=SimpleNamespace(boot=1, cluster_id="c")),
            rights=None,
            connections=SimpleNamespace(
                bulk=lambda line, caller, *rest, **named: took.append(caller)
            ),
        ),
        peers=SimpleNamespace(
            number=0,
            callers=node.callers,
            members=SimpleNamespace(named=lambda name: SimpleNamespace(number=1, name=name)),
            lives=SimpleNamespace(contradiction=lambda number, life: None, own=lambda: LIFE),
        ),
    )
    return Dispatcher(cast(Any, gate), cast(Any, line))


def test_what_still_comes_on_a_void_connection_counts_for_nothing() -> None:
    async def body() -> None:
        node = Listening()
        server = BulkServer(
            cast(Any, SimpleNamespace(identity="", close=lambda: None)),
            DiallingMember(1, "first"),
            cast(Any, None),
            cast(Any, None),
            cast(Any, node),
            on_over=lambda server: None,
        )
        payload = memoryview(encode_groups([GroupMessages(0, 0, 0, [LONG])]))
        server.on_raft(payload)
        server.on_message(Forward(1, b"x"))
        assert node.heard == [[SAID], Forward(1, b"x")]
        server.void()
        server.on_raft(payload)
        server.on_message(Forward(2, b"y"))
        assert len(node.heard) == 2

    asyncio.run(body())


def test_a_long_frame_ends_a_control_connection() -> None:
    node = Listening()
    long = memoryview(encode_groups([GroupMessages(0, 0, 0, [LONG])]))
    with pytest.raises(FrameError, match="on a control connection"):
        node.dialled("now").on_raft(long)
    assert not node.heard


# --- a long snapshot ------------------------------------------------------------------------------


class Zeros:
    """A state of so many bytes that nobody keeps."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, piece: slice) -> bytes:
        return bytes(min(piece.stop, self._size) - piece.start)


SNAPSHOT_BYTES = 1 << 30
STEP_S = 0.01
CHUNKS_IN_STEP = 8
"""What the bulk connection carries in a step: 200 MB a second."""


class Empty:
    """Member 1, which lacks everything: it answers, and keeps no byte."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.beats: list[float] = []
        self.received = 0

    def answer(self, message: Any) -> None:
        """What a follower without a log says."""
        term = self._group[0].term
        match message:
            case Heartbeat():
                self.beats.append(self._group.now)
                self._tell(HeartbeatReply(term, message.round, counts=True))
            case Append():
                self._tell(AppendReject(term, message.stream, message.prev_index, 0, 0, 0))
            case SnapshotChunk():
                assert message.offset == self.received
                self.received += len(message.data)
                at = message.last_index, message.offset, self.received
                self._tell(SnapshotReply(term, *at))

    def _tell(self, message: Any) -> None:
        self._group[0].step(1, message, self._group.now)


def exchange(group: Group, link: PeerLink) -> None:
    """Give the link what the leader sends to member 1; all others hear everything."""
    while True:
        group.drain()
        if not group.queue:
            return
        to_empty = [message for _, to, message in group.queue if to == 1]
        group.queue = deque(item for item in group.queue if item[1] != 1)
        if to_empty:
            link.send_raft(0, to_empty)
        group.deliver()


def test_heartbeats_do_not_wait_for_a_snapshot_of_a_gigabyte() -> None:
    group, ends = led(), Ends()
    group.crash(1)
    group.propose(0, b"a", b"b")
    group.compact(0, group[0].last_index, data=cast(Any, Zeros(SNAPSHOT_BYTES)))
    begin, empty = group.now, Empty(group)
    while empty.received < SNAPSHOT_BYTES:
        group.now += STEP_S
        for number in (0, 2):
            group[number].tick(group.now)
        exchange(group, ends.link)
        for _ in range(CHUNKS_IN_STEP):
            assert len(ends.bulk.frames) <= 1
            for message in ends.bulk.take():
                empty.answer(message)
            assert all(len(f) - HEADER_BYTES <= CONTROL_FRAME_BYTES for f in ends.control.frames)
            for message in ends.control.take():
                empty.answer(message)
            exchange(group, ends.link)
        assert group.now - begin < 60
    gaps = [later - at for at, later in zip(empty.beats, empty.beats[1:], strict=False)]
    assert len(gaps) > 20
    assert max(gaps) <= group.config.heartbeat_s + 2 * STEP_S
    assert group[0].leadership is not None
