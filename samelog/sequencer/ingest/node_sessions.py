"""Sessions that nodes write themselves: what Kafka clients produce at a node goes into the node's
own session, `kafka-<number of the node>`; what happens to the cluster goes into `events-<number>`.

Such a session's run is closed once its node has been away for a while: what it took and could not
have merged was never acknowledged, its clients have sent it elsewhere, and it must not appear when
the node comes back (rule sessions.6).

Invariant: nobody but nodes may claim such a session; the leader alone closes its runs.
"""

from __future__ import annotations

from collections.abc import Callable

from samelog.config.authorisation import NODE_PREFIX
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.events import Ends
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.session_index import node_of
from samelog.wire.errors import FaultCode

GONE_S = 10.0
"""Far below the time after which producers are forgotten, and above a restart's."""


def session_of(node: int) -> str:
    """The session that a node writes for its Kafka clients."""
    return f"kafka-{node}"


def events_session_of(node: int) -> str:
    """The session in which a node writes the cluster's events."""
    return f"events-{node}"


def check_owner(identity: str, session: str) -> None:
    """Raises RequestRefused if a publisher claims a node's session."""
    if node_of(session) is not None and not identity.startswith(NODE_PREFIX):
        text = f"session names like {session!r} are for what nodes write themselves"
        raise RequestRefused(FaultCode.NOT_AUTHORISED, text, "choose another name")


class RunKeeper:
    """Ends the runs of nodes that are away; acts on the leader."""

    def __init__(
        self,
        machine: StateMachine,
        is_there: Callable[[int], bool],
        end_run: Callable[[str, str, Ends], None],
    ) -> None:
        self._machine = machine
        self._is_there = is_there
        self._end_run = end_run
        self._gone_since: dict[str, float] = {}

    def tick(self, now: float, *, is_leader: bool) -> None:
        """Look at every node's session; to be called about once a second."""
        for name in self._gone_since.keys() - self._machine.index.of_nodes.keys():
            del self._gone_since[name]
        for name in tuple(self._machine.index.of_nodes):
            node = node_of(name)
            run = None if node is None else self._machine.state.sessions.open_run_of(name)
            if node is None or run is None or not is_leader or self._is_there(node):
                self._gone_since.pop(name, None)
            elif now - self._gone_since.setdefault(name, now) > GONE_S:
                self._end_run(name, run.run_id, {})
