"""Connections between the nodes of a cluster: Raft messages, position reports, cursors and
forwarded proposals.

Each node dials every other one twice, whatever groups they share. What it has to say goes over the
control connection that it dialled, in short frames, heartbeats and votes before anything else; what
it is told comes over those the others dialled. What is long, and the logs that it pulls, go over
the bulk connection, which belongs to the control connection and ends with it.

Invariant: a message is dropped or delivered whole; nothing waits for a dead or stuck peer: what it
misses Raft repeats, and reports are repeated with every connection. Reports and cursors never
pass each other: they are split instead of going over the bulk connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from samelog.consensus import GroupMessages, decode_groups, encode_groups
from samelog.consensus.errors import MalformedMessage
from samelog.consensus.messages import URGENT
from samelog.format.positions import SessionPosition
from samelog.replicator.pull.repair_pull import RepairPull
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.errors import ConnectFault, ConnectProblem
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver, PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection
from samelog.sequencer.cluster.lives import LIVE_S
from samelog.sequencer.raft.views import KeptFiles
from samelog.wire.bounds import METADATA_GROUP, Health, Life, PartitionChecksum
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.frames import HEADER_BYTES, FrameType, encode_frame
from samelog.wire.member_queues import CONTROL_FRAME_BYTES, ControlQueue, check_control
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, Welcome, encode_message
from samelog.wire.peer_messages import (
    Beat,
    BeatAnswer,
    Cursors,
    Forgotten,
    InputPosition,
    MemberList,
    NotQuiet,
    PartitionFiles,
    PartitionOffset,
    PeerMessage,
    Report,
    Superseded,
)

WAITING_BYTES = 64 << 10, 16 << 10
"""Above the first nothing more is handed to the socket of a control connection, until less than the
second waits: what is urgent then waits behind no more than that.
"""
BEATS = (Beat, BeatAnswer, NotQuiet)
"""Waited for: they may pass all others, but none of their own."""
PART_ITEMS = 1000
"""Of each kind, in a part of a report."""


class PeerListener(Protocol):
    """What a node does with what its peers say."""

    def on_raft(self, node: int, parts: Sequence[GroupMessages]) -> None:
        """Raft messages, of some groups."""

    def on_peer_message(self, node: int, message: PeerMessage) -> None:
        """Anything else between peers."""

    def on_peer_dialled(self, server: PeerServer) -> None:
        """A peer has dialled a connection, perhaps before its older one is gone."""

    def on_peer_gone(self, server: PeerServer) -> None:
        """A connection that a peer dialled is gone."""

    def on_peer_welcomes(self, node: int, life: Life) -> None:
        """The connection to the peer stands, in this life of it. Raises ProtocolFault if that is
        none to talk to.
        """

    def on_forgotten(self, node: int, message: Forgotten) -> None:
        """The peer knows something of this node that it has forgotten."""

    def on_superseded(self, message: Superseded) -> None:
        """A site was promoted."""


class PeerSender(Protocol):
    """Sends to the other members; what cannot be sent now is dropped."""

    @property
    def numbers(self) -> list[int]:
        """The other members."""

    @property
    def connected(self) -> list[int]:
        """Those of them that can be sent to."""

    def send_raft(
        self, group: int, to: int, messages: Sequence[Any], replicas: tuple[int, int] = (0, 0)
    ) -> None:
        """Send Raft messages of a group, or drop them. `replicas`: whose they are, and for whom."""

    def send(self, to: int, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""

    def send_all(self, message: PeerMessage) -> None:
        """Send a message to every member that can be sent to."""


class PeerLink:
    """The connections this node dials to one peer. Handles the control connection: implements
    transport.Handler.
    """

    def __init__(
        self,
        number: int,
        peer: PeerPlace,
        hello: Callable[[], Hello],
        told: Callable[[], MemberList],
        listener: PeerListener,
        *,
        tls: ReloadingContext,
        backoff: Backoff,
        clock: Clock,
    ) -> None:
        self.peer = peer
        self.connected = False
        """Whether the peer has accepted us."""
        self._was_accepted = False
        """On the newest connection."""
        self._number = number
        self._hello = hello
        self._told = told
        self._listener = listener
        self._queue = ControlQueue()
        self._incarnation = ""
        """The life that the peer is in, by its word on the control connection."""
        self.bulk = RepairPull(peer, tls, hello=self._bulk_hello, check=self._check_bulk)
        self._on_over: OnOver
        self._link = NodeLink(
            self._open,
            tls=tls,
            backoff=backoff,
            clock=clock,
            says="no connection to a peer",
            level=logging.INFO,
        )

    async def run(self) -> None:
        """Keep the connection up until cancelled; what was sent still goes out then."""
        peer = self.peer
        await self._link.keep_up(lambda: NodeAddress(peer.address, peer.name), self._on_ended)

    def is_there(self) -> None:
        """The peer was seen just now: if there is no connection to it, dial."""
        self._link.is_there()

    def _on_ended(self, error: Exception | None) -> None:
        if not self._was_accepted:
            self.peer.failed()
        self._was_accepted = False

    def _open(self, connection: Connection, on_over: OnOver) -> PeerLink:
        self._on_over = on_over
        connection.limit_waiting(*WAITING_BYTES)
        connection.send(self._hello())
        return self

    # --- sending ------------------------------------------------------------------------------

    def send_raft(
        self, group: int, messages: Sequence[Any], replicas: tuple[int, int] = (0, 0)
    ) -> None:
        """Send Raft messages of a group, or drop them."""
        connection = self._link.connection
        if connection is None or not self.connected:
            return
        payload = encode_groups([GroupMessages(group, *replicas, messages)])
        if len(payload) <= CONTROL_FRAME_BYTES and connection.writable:
            connection.send_raft(payload)
            return
        for message in messages:
            payload = encode_groups([GroupMessages(group, *replicas, [message])])
            frame = encode_frame(FrameType.RAFT, payload)
            self._send_frame(connection, frame, group, urgent=isinstance(message, URGENT))

    def send(self, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""
        connection = self._link.connection
        if connection is None or not self.connected:
            return False
        urgent = isinstance(message, BEATS)
        frames = map(encode_message, parts_of(message))
        return all(self._send_frame(connection, frame, urgent=urgent) for frame in frames)

    def _send_frame(
        self,
        connection: Connection,
        frame: bytes,
        group: int = METADATA_GROUP,
        *,
        urgent: bool = False,
    ) -> bool:
        """One frame, by its length; False if it was dropped."""
        if is_long(frame):
            return self.bulk.push(group, frame)
        if connection.writable:
            connection.send_bytes(frame)
            return True
        return self._queue.put(frame, urgent=urgent)

    def on_writable(self) -> None:
        """Send what waits, the urgent first."""
        connection = self._link.connection
        while self._queue and connection is not None and connection.writable:
            connection.send_bytes(self._queue.take())

    # --- the bulk connection ------------------------------------------------------------------

    def _bulk_hello(self) -> Hello:
        """Raises ConnectFault: there is no control connection, to which bulk belongs."""
        if not self.connected:
            address = str(self.peer.address)
            raise ConnectFault(ConnectProblem.UNREACHABLE, address, "no control connection")
        hello: Hello = msgspec.structs.replace(self._hello(), role=ConnectionRole.BULK)
        return hello

    def _check_bulk(self, welcome: Welcome) -> None:
        """Raises ProtocolFault unless the one who answers is in the life that control talks to."""
        life = welcome.life
        if life is None or life.incarnation != self._incarnation:
            text = "the bulk connection leads to another life than the control connection"
            raise ProtocolFault(FaultCode.STALE_BOOT, text)

    # --- from the control connection ----------------------------------------------------------

    def on_message(self, message: AnyMessage) -> None:
        """The peer's answer to Hello."""
        if isinstance(message, MemberList):
            self._listener.on_peer_message(self._number, message)
            self._show_list()
        elif isinstance(message, Welcome):
            if message.number != self._number:
                reason = f"the peer is number {message.number}, not {self._number}"
                raise ProtocolFault(FaultCode.NOT_A_MEMBER, reason)
            if message.life is None:
                raise ProtocolFault(FaultCode.PROTOCOL, "no life in Welcome")
            self._incarnation = message.life.incarnation
            self._was_accepted = self.connected = True
            self._link.succeeded()
            self._listener.on_peer_welcomes(self._number, message.life)
        elif isinstance(message, Forgotten):
            self._was_accepted = True
            self._listener.on_forgotten(self._number, message)
        elif isinstance(message, Superseded):
            self._was_accepted = True
            self._listener.on_superseded(message)
        else:
            raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}", "")

    def _show_list(self) -> None:
        """To a peer that did not know us: it may have missed that we were added."""
        connection = self._link.connection
        if connection is not None:
            connection.send(self._told())

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on a peer connection", "")

    def on_raft(self, payload: memoryview) -> None:
        """Never sent in this direction."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT from the accepting side", "")

    def on_closed(self, error: Exception | None) -> None:
        """The connection is gone, and the bulk one with it; the link dials again."""
        self.connected = False
        self._queue.clear()
        self.bulk.close()
        self._on_over(error)


class PeerServer:
    """A connection that a peer dialled. Implements transport.Handler."""

    def __init__(
        self, number: int, incarnation: str, connection: Connection, listener: PeerListener
    ) -> None:
        self.number = number
        self.incarnation = incarnation
        self._connection = connection
        self._listener = listener
        self.is_void = False
        """Nothing that it says counts any more."""
        listener.on_peer_dialled(self)

    @property
    def last_received(self) -> float:
        """When it was last heard of, in the event loop's seconds."""
        return self._connection.last_received

    def void(self) -> None:
        """The peer has begun another life: nothing of this one counts any more."""
        self.is_void = True
        self._connection.close()

    def on_message(self, message: AnyMessage) -> None:
        """Reports, cursors and forwarded proposals."""
        if not isinstance(message, PeerMessage):
            raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}", "")
        if not self.is_void:
            self._listener.on_peer_message(self.number, message)

    def on_raft(self, payload: memoryview) -> None:
        """Raft messages."""
        check_control(payload.nbytes)
        if not self.is_void:
            hear_raft(self.number, payload, self._listener)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on a peer connection", "")

    def on_writable(self) -> None:
        """Nothing is ever queued."""

    def on_closed(self, error: Exception | None) -> None:
        """The peer is gone, or replaced this connection."""
        self._listener.on_peer_gone(self)


class Ended(Protocol):
    """A bulk connection that a peer dialled, as its control connection sees it."""

    number: int
    incarnation: str

    def void(self) -> None:
        """End it; nothing that still comes on it counts."""


class Callers:
    """The connections that peers dialled, and that are not over."""

    def __init__(self) -> None:
        self._servers: defaultdict[int, list[PeerServer]] = defaultdict(list)
        self._bulk: defaultdict[int, list[Ended]] = defaultdict(list)

    def add(self, server: PeerServer) -> None:
        """One more. What an older life of the peer says on another one counts no more."""
        known = self._servers[server.number]
        for other in known:
            if other.incarnation != server.incarnation:
                other.void()
        known.append(server)
        self._end_orphans(server.number)

    def remove(self, server: PeerServer) -> None:
        """It is over."""
        self._servers[server.number].remove(server)
        self._end_orphans(server.number)

    def add_bulk(self, bulk: Ended) -> None:
        """One more; it ends with the last control connection of its life of the peer."""
        self._bulk[bulk.number].append(bulk)
        self._end_orphans(bulk.number)

    def remove_bulk(self, bulk: Ended) -> None:
        """It is over."""
        self._bulk[bulk.number].remove(bulk)

    def is_connected(self, number: int, incarnation: str) -> bool:
        """Whether there is a control connection that counts of this life of a peer."""
        return any(
            server.incarnation == incarnation and not server.is_void
            for server in self._servers[number]
        )

    def _end_orphans(self, number: int) -> None:
        for bulk in self._bulk[number]:
            if not self.is_connected(number, bulk.incarnation):
                bulk.void()

    def has_other(self, number: int, incarnation: str) -> bool:
        """Whether another life of a peer is connected, and was heard of lately."""
        since = asyncio.get_running_loop().time() - LIVE_S
        return any(
            server.incarnation != incarnation and server.last_received >= since
            for server in self._servers[number]
        )


def make_hello(*, cluster: str, node: str, number: int | None, life: Life | None = None) -> Hello:
    """The first message to a peer; without a number it asks for it."""
    role = ConnectionRole.RAFT
    return Hello(role=role, cluster=cluster, node=node, number=number, life=life)


def hear_raft(number: int, payload: memoryview, listener: PeerListener) -> None:
    """A frame of Raft messages has come from a peer. Raises ProtocolFault."""
    try:
        parts = decode_groups(payload)
    except MalformedMessage as error:
        raise ProtocolFault(FaultCode.PROTOCOL, str(error), "") from error
    listener.on_raft(number, parts)


def is_long(frame: bytes) -> bool:
    """Whether a whole frame has no place on a control connection."""
    return len(frame) - HEADER_BYTES > CONTROL_FRAME_BYTES


def parts_of(message: PeerMessage) -> Sequence[PeerMessage]:
    """What says the same in short frames, in order: of two reports, or cursors, the later one
    counts, so none may take another way. What else is long stays whole.
    """
    if isinstance(message, Cursors) and len(message.merged) > PART_ITEMS:
        return [Cursors(part) for part in _slices(message.merged)]
    if not isinstance(message, Report) or _items(message) <= PART_ITEMS:
        return [message]
    parts = [Report(message.boot, positions=part) for part in _slices(message.positions)]
    parts += [Report(message.boot, merged=part) for part in _slices(message.merged)]
    parts += [Report(message.boot, samples=part) for part in _slices(message.samples)]
    parts += [Report(message.boot, files=part) for part in _slices(message.files)]
    return [*parts, Report(message.boot, health=message.health)]


def _items(report: Report) -> int:
    told = report.positions, report.merged, report.samples, report.files
    return sum(map(len, told))


def _slices(items: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [items[start : start + PART_ITEMS] for start in range(0, len(items), PART_ITEMS)]


def make_report(
    *,
    boot: int,
    places: Mapping[int, SessionPosition],
    merged: Mapping[int, int],
    samples: Mapping[int, Mapping[int, int]],
    files: Mapping[int, KeptFiles],
    health: Health | None = None,
) -> Report:
    """What a node tells its peers of itself."""
    return Report(
        boot=boot,
        positions=tuple(InputPosition(number, *place) for number, place in places.items()),
        merged=tuple(PartitionOffset(*item) for item in merged.items()),
        samples=tuple(
            PartitionChecksum(number, offset, checksum)
            for number, known in samples.items()
            for offset, checksum in known.items()
        ),
        health=health,
        files=tuple(PartitionFiles(number, *kept) for number, kept in files.items()),
    )
