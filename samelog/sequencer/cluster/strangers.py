"""A node that this one does not know and that may yet be a member: it came while this one was cut
off. It shows its member list; then this node dials it, and lets it in when it dials again.

Whoever was away while all others were replaced hears of the newcomers from nobody else: it dials
only those that are gone.

Invariant: the list counts only if it names the teller, with the number that it introduced itself
with; and it counts for finding peers, never for who votes (members.py).
"""

from __future__ import annotations

from samelog.runtime.network.transport import Connection
from samelog.sequencer.cluster.members import Members
from samelog.sequencer.cluster.peers import PeerListener
from samelog.wire.bounds import UNDECIDED
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Hello
from samelog.wire.peer_messages import MemberList


def may_be_newer(hello: Hello, *, next_member: int, cluster_id: str) -> bool:
    """Whether a node that is no member here may have been added since: it has a number that was
    given to nobody as far as is known here, and is of this very cluster; or of one that has begun,
    where this node knows of none yet: its directory was bootstrapped, perhaps not for the first
    time.
    """
    if hello.number is None or hello.life is None or hello.life.cluster_id in ("", UNDECIDED):
        return False
    return hello.number >= next_member and cluster_id in ("", hello.life.cluster_id)


def not_a_member(hello: Hello) -> ProtocolFault:
    """The refusal of a node that is none."""
    return ProtocolFault(
        FaultCode.NOT_A_MEMBER,
        f"{hello.node} is no member of this cluster, or not number {hello.number}",
        f"samelog node add {hello.node} HOST:PORT",
    )


class Stranger:
    """A connection that such a node dialled. Implements transport.Handler."""

    def __init__(
        self, hello: Hello, members: Members, connection: Connection, listener: PeerListener
    ) -> None:
        self._hello = hello
        self._listener = listener
        connection.send(members.told())

    def on_message(self, message: AnyMessage) -> None:
        """Its list. Raises ProtocolFault, whatever it is: with the next connection it counts."""
        if not isinstance(message, MemberList):
            raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}", "")
        number, name = self._hello.number, self._hello.node
        if number is None or (number, name) not in {member[:2] for member in message.members}:
            raise not_a_member(self._hello)
        self._listener.on_peer_message(number, message)
        raise ProtocolFault(FaultCode.NOT_READY, f"{name} was not known here until now")

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on a peer connection", "")

    def on_raft(self, payload: memoryview) -> None:
        """Not before it is known."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT before Welcome", "")

    def on_writable(self) -> None:
        """Nothing is ever queued."""

    def on_closed(self, error: Exception | None) -> None:
        """It dials again."""
