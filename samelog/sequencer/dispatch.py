"""The first message of a connection decides what it is: who asks, whether they may, and who
answers.

Invariant: nothing but Hello is looked at before identity, cluster and rights are checked; deny is
the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from samelog.placement.cluster_ids import ends
from samelog.replicator.interfaces import RowSource, SessionIntake
from samelog.runtime.network.transport import Connection, Handler
from samelog.sequencer.bulk_server import DiallingMember
from samelog.sequencer.cluster.lives import Contradiction
from samelog.sequencer.cluster.peers import PeerListener, PeerServer
from samelog.sequencer.cluster.strangers import Stranger, may_be_newer, not_a_member
from samelog.sequencer.ingest.intake import BATCH_OVERHEAD_BYTES
from samelog.sequencer.parts import LogParts, MemberParts, PeerParts
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.sites.staying import KnownAs, stays
from samelog.sequencer.state.tables.members import Member
from samelog.wire.bounds import Holder, Life
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    PROTOCOL_VERSION,
    AnyMessage,
    ConnectionRole,
    Hello,
    Holders,
    Welcome,
)
from samelog.wire.peer_messages import Forgotten, Superseded
from samelog.wire.push.windows import SESSION_WINDOW_BYTES


class Introduction(PeerListener, Protocol):
    """What a node does with its peers."""

    def peer_introduced(self, node: int, *, is_new: bool) -> None:
        """A peer dials in; `is_new`: in another life of it than before."""

    def forgot(self, found: Contradiction) -> None:
        """This node has forgotten something: it ends, to begin again."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a connection may lead to."""

    member: MemberParts
    group: RaftGroup
    logs: LogParts
    source: RowSource
    """All logs of this member."""
    intake: SessionIntake
    """For all partitions that this member has."""
    peers: PeerParts
    listener: Introduction


class Dispatcher:
    """Handles a new connection until its Hello. Implements transport.Handler."""

    def __init__(self, gate: Gate, connection: Connection) -> None:
        self._gate = gate
        self._connection = connection

    def on_message(self, message: AnyMessage) -> None:
        """The Hello decides on the handler; everything later is the handler's."""
        if not isinstance(message, Hello):
            raise _not_hello()
        self._check(message)
        self._connection.hand_over(self._handler(message))

    def _check(self, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            raise ProtocolFault(
                FaultCode.UNSUPPORTED_VERSION,
                f"protocol version {hello.version}, this node speaks {PROTOCOL_VERSION}",
            )
        cluster = self._gate.member.config.cluster
        if hello.cluster and hello.cluster != cluster:
            raise ProtocolFault(
                FaultCode.WRONG_CLUSTER, f"this is cluster {cluster!r}, not {hello.cluster!r}"
            )

    def _handler(self, hello: Hello) -> Handler:
        member = self._gate.member
        if self._gate.group.halted and hello.role is not ConnectionRole.RAFT:
            text = f"the replica of {member.config.name} is halted: {self._gate.group.halted}"
            raise ProtocolFault(
                FaultCode.NOT_READY, text, "docs/operations.md, SamelogReplicaHalted"
            )
        match hello.role:
            case ConnectionRole.RAFT:
                return self._peer(hello)
            case ConnectionRole.PUSH:
                self._welcome()
                return self._push(hello)
            case ConnectionRole.PULL:
                self._welcome()
                if hello.rack:
                    self._tell_places()
                return self._pull(hello)
            case ConnectionRole.BULK:
                return self._bulk(hello)

    def _tell_places(self) -> None:
        """To a reader that says where it is: where the members are, if any has said so."""
        state = self._gate.logs.machine.state
        places = tuple(
            Holder(each.name, each.address, state.rack_of(each.number))
            for each in state.members.by_number.values()
        )
        if any(each.rack for each in places):
            self._connection.send(Holders(places))

    def _push(self, hello: Hello) -> Handler:
        member, intake = self._gate.member, self._gate.intake
        return member.connections.push(self._connection, hello, intake, member.rights)

    def _pull(self, hello: Hello) -> Handler:
        member, source = self._gate.member, self._gate.source
        return member.connections.pull(self._connection, hello, source, member.rights)

    def _peer(self, hello: Hello) -> Handler:
        """A member's control connection, or the question of one for its number."""
        member = self._member(hello)
        self._compare_promotions(hello, member)
        if member is None:
            return self._stranger(hello)
        if hello.number is None:
            return self._introduce(member)
        life = self._compared(member, hello)
        peers, listener = self._gate.peers, self._gate.listener
        is_new = peers.lives.meet(member.number, life)
        self._welcome(life=peers.lives.own_to(member.number))
        listener.peer_introduced(member.number, is_new=is_new)
        return PeerServer(member.number, life.incarnation, self._connection, listener)

    def _bulk(self, hello: Hello) -> Handler:
        """A member's bulk connection: its control connection must be there, in the same life."""
        member, peers = self._member(hello), self._gate.peers
        if member is None:
            raise not_a_member(hello)
        life = self._compared(member, hello)
        if not peers.callers.is_connected(member.number, life.incarnation):
            text = f"no control connection of this life of {member.name}"
            raise ProtocolFault(FaultCode.NOT_READY, text, "it is dialled first")
        self._welcome(life=peers.lives.own())
        return self._gate.member.connections.bulk(
            self._connection,
            DiallingMember(member.number, life.incarnation),
            self._gate.source,
            self._gate.member.rights,
            listener=self._gate.listener,
            callers=peers.callers,
        )

    def _member(self, hello: Hello) -> Member | None:
        """Which member speaks; None: none that is known here. Raises ProtocolFault."""
        name = hello.node or ""
        if str(self._connection.identity) != f"samelog://node/{name}":
            self._deny(f"speak for node {name}")
        member = self._gate.peers.members.named(name)
        if member is None or hello.number not in (None, member.number):
            return None
        return member

    def _compare_promotions(self, hello: Hello, member: Member | None) -> None:
        """Before anything else: is one of the two of before a promotion? Raises ProtocolFault."""
        own, theirs = self._cluster_id(), hello.life.cluster_id if hello.life else ""
        if ends(own, theirs):
            self._connection.send(Superseded(own, self._stays(hello, member, own)))
            text = f"{hello.node} is of before a site was promoted"
            raise ProtocolFault(FaultCode.WRONG_CLUSTER, text, "see its own log")
        if ends(theirs, own):
            text = "a site was promoted, and this node has not followed yet"
            raise ProtocolFault(FaultCode.NOT_READY, text)

    def _stays(self, hello: Hello, member: Member | None, own: str) -> bool:
        """Whether a member of before the promotion goes on. Raises ProtocolFault if this node does
        not know yet.
        """
        life, state = hello.life, self._gate.logs.machine.state
        if member is None or hello.number is None or life is None:
            return False
        known_as = KnownAs(life.cluster_id, life.last_term, life.last_index)
        known = stays(state, own, self._gate.peers.number, member.number, known_as)
        if known is None:
            text = "a site was promoted, and this node has yet to hear who stays"
            raise ProtocolFault(FaultCode.NOT_READY, text)
        return known

    def _compared(self, member: Member, hello: Hello) -> Life:
        """The life that a member says it is in. Raises ProtocolFault."""
        if hello.life is None:
            raise ProtocolFault(FaultCode.PROTOCOL, "no life in Hello")
        self._compare(member, hello.life)
        return hello.life

    def _stranger(self, hello: Hello) -> Handler:
        peers, state = self._gate.peers, self._gate.logs.machine.state
        cluster_id = self._gate.member.directory.record.cluster_id
        if may_be_newer(hello, next_member=state.members.next_number, cluster_id=cluster_id):
            return Stranger(hello, peers.members, self._connection, self._gate.listener)
        self._connection.send(peers.members.told())
        raise not_a_member(hello)

    def _compare(self, member: Member, life: Life) -> None:
        """Raises ProtocolFault unless nothing that is known speaks against this life of a peer."""
        peers = self._gate.peers
        if peers.callers.has_other(member.number, life.incarnation):
            raise ProtocolFault(
                FaultCode.NOT_READY,
                f"another life of {member.name} is connected: two copies of one directory?",
                "stop one of them; after a restart this passes by itself",
            )
        found = peers.lives.contradiction(member.number, life)
        if found is None:
            return
        if found.is_own:
            self._gate.listener.forgot(found)
            raise ProtocolFault(FaultCode.NOT_READY, "this node has to begin again")
        self._connection.send(Forgotten(found.reason, *found.known))
        text = f"{member.name} has forgotten something: {found.reason}"
        raise ProtocolFault(FaultCode.STALE_BOOT, text, "it begins again, and is let in then")

    def _introduce(self, member: Member) -> Handler:
        """A node with an empty directory asks for its number: tell it, and who else is there."""
        self._connection.send(self._gate.peers.members.told())
        started = self._gate.logs.machine.state.members.started
        self._welcome(is_fresh=member.number not in started)
        return Dispatcher(self._gate, self._connection)

    def _deny(self, what: str) -> None:
        raise ProtocolFault(
            FaultCode.NOT_AUTHORISED,
            f"{self._connection.identity} may not {what}",
            "grant it in the node's configuration",
        )

    def _cluster_id(self) -> str:
        """Of an entry that is committed: whoever hears it keeps it."""
        member = self._gate.member
        return (
            member.directory.record.cluster_id or self._gate.logs.machine.state.members.cluster_id
        )

    def _welcome(self, *, is_fresh: bool = False, life: Life | None = None) -> None:
        config = self._gate.member.config
        self._connection.send(
            Welcome(
                cluster=config.cluster,
                node=config.name,
                window_bytes=SESSION_WINDOW_BYTES,
                max_batch_bytes=config.max_record_bytes + BATCH_OVERHEAD_BYTES,
                boot=self._gate.member.directory.record.boot,
                number=self._gate.peers.number,
                is_fresh=is_fresh,
                cluster_id=self._cluster_id(),
                life=life,
            )
        )

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Raises ProtocolFault: the first message must be Hello."""
        raise _not_hello()

    def on_raft(self, payload: memoryview) -> None:
        """Raises ProtocolFault: the first message must be Hello."""
        raise _not_hello()

    def on_writable(self) -> None:
        """Nothing waits to be sent."""

    def on_closed(self, error: Exception | None) -> None:
        """Do nothing: the connection ended before Hello."""


def _not_hello() -> ProtocolFault:
    return ProtocolFault(FaultCode.PROTOCOL, "the first message must be Hello")
