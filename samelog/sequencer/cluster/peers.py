"""Connections between the nodes of a cluster: Raft messages, position reports, cursors and
forwarded proposals.

Each node dials every other one; what it has to say goes over the connection it dialled, what it is
told comes over those the others dialled. Bulk data has connections of its own, so these are never
behind it.

Invariant: a message is dropped or delivered whole; nothing waits for a dead or stuck peer: what it
misses Raft repeats, and reports are stated anew with every connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from samelog.consensus import decode_messages, encode_messages
from samelog.consensus.errors import MalformedMessage
from samelog.format.positions import SessionPosition
from samelog.runtime.backoff import Backoff
from samelog.runtime.clock import Clock
from samelog.runtime.network.link import NodeAddress, NodeLink, OnOver, PeerPlace
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.network.transport import Connection
from samelog.sequencer.cluster.lives import LIVE_S
from samelog.sequencer.events import Ends
from samelog.wire.bounds import Health, Life, PartitionChecksum, RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, ConnectionRole, Hello, Welcome
from samelog.wire.peer_messages import (
    Cursors,
    Forgotten,
    Forward,
    Forwarded,
    HistoryAsked,
    HistoryTold,
    InputPosition,
    MemberList,
    MemberState,
    PartitionOffset,
    Report,
    RunEnded,
)

PeerMessage = (
    Report
    | Cursors
    | Forward
    | Forwarded
    | RunEnded
    | MemberList
    | HistoryAsked
    | HistoryTold
    | MemberState
)


class PeerListener(Protocol):
    """What a node does with what its peers say."""

    def on_raft(self, node: int, messages: Sequence[Any]) -> None:
        """Raft messages."""

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


class PeerSender(Protocol):
    """Sends to the other members; what cannot be sent now is dropped."""

    @property
    def numbers(self) -> list[int]:
        """The other members."""

    @property
    def connected(self) -> list[int]:
        """Those of them that can be sent to."""

    def send_raft(self, to: int, messages: Sequence[Any]) -> None:
        """Send Raft messages, or drop them."""

    def send(self, to: int, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""

    def send_all(self, message: PeerMessage) -> None:
        """Send a message to every member that can be sent to."""


class PeerLink:
    """The connection this node dials to one peer. Implements transport.Handler."""

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

    def _on_ended(self, error: Exception | None) -> None:
        if not self._was_accepted:
            self.peer.failed()
        self._was_accepted = False

    def _open(self, connection: Connection, on_over: OnOver) -> PeerLink:
        self._on_over = on_over
        connection.send(self._hello())
        return self

    def send_raft(self, messages: Sequence[Any]) -> None:
        """Send Raft messages, or drop them."""
        connection = self._ready()
        if connection is not None:
            connection.send_raft(encode_messages(messages))

    def send(self, message: PeerMessage) -> bool:
        """Send a message; False if it was dropped."""
        connection = self._ready()
        if connection is not None:
            connection.send(message)
        return connection is not None

    def _ready(self) -> Connection | None:
        connection = self._link.connection
        if connection is None or not self.connected or not connection.writable:
            return None
        return connection

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
            self._was_accepted = self.connected = True
            self._link.succeeded()
            self._listener.on_peer_welcomes(self._number, message.life)
        elif isinstance(message, Forgotten):
            self._was_accepted = True
            self._listener.on_forgotten(self._number, message)
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

    def on_writable(self) -> None:
        """Nothing is ever queued."""

    def on_closed(self, error: Exception | None) -> None:
        """The connection is gone; the link dials again."""
        self.connected = False
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
        self._is_void = False
        listener.on_peer_dialled(self)

    @property
    def last_received(self) -> float:
        """When it was last heard of, in the event loop's seconds."""
        return self._connection.last_received

    def void(self) -> None:
        """The peer has begun another life: nothing of this one counts any more."""
        self._is_void = True
        self._connection.close()

    def on_message(self, message: AnyMessage) -> None:
        """Reports, cursors and forwarded proposals."""
        if not isinstance(message, PeerMessage):
            raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}", "")
        if not self._is_void:
            self._listener.on_peer_message(self.number, message)

    def on_raft(self, payload: memoryview) -> None:
        """Raft messages."""
        try:
            messages = decode_messages(payload)
        except MalformedMessage as error:
            raise ProtocolFault(FaultCode.PROTOCOL, str(error), "") from error
        if not self._is_void:
            self._listener.on_raft(self.number, messages)

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on a peer connection", "")

    def on_writable(self) -> None:
        """Nothing is ever queued."""

    def on_closed(self, error: Exception | None) -> None:
        """The peer is gone, or replaced this connection."""
        self._listener.on_peer_gone(self)


class Callers:
    """The connections that peers dialled, and that are not over."""

    def __init__(self) -> None:
        self._servers: defaultdict[int, list[PeerServer]] = defaultdict(list)

    def add(self, server: PeerServer) -> None:
        """One more. What an older life of the peer says on another one counts no more."""
        known = self._servers[server.number]
        for other in known:
            if other.incarnation != server.incarnation:
                other.void()
        known.append(server)

    def remove(self, server: PeerServer) -> None:
        """It is over."""
        self._servers[server.number].remove(server)

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


def make_report(
    *,
    boot: int,
    places: Mapping[int, SessionPosition],
    merged: Mapping[int, int],
    samples: Mapping[int, Mapping[int, int]],
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
    )


def make_run_ended(session: str, run_id: str, ends: Ends) -> RunEnded:
    """What a node tells its peers of a run that a sender has finished."""
    return RunEnded(session, run_id, tuple(RunEnd(*key, *end) for key, end in ends.items()))
