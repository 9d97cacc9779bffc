"""What a node answers over HTTP: probes, the table of administrative requests, the console.

Invariant: a process that has no node yet, or none any more, is alive and not ready, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from samelog.admin.requests import AdminRequest, ConfirmedRequest
from samelog.admin.table import OPERATIONS, WhoMayAsk
from samelog.config.tables.node import NodeConfig
from samelog.consensus import NotLeader
from samelog.http.console.document import Document
from samelog.http.console.look import look
from samelog.http.console.producer import Producer
from samelog.http.console.routes import console_routes
from samelog.http.metrics.node import node_certificates, node_metrics
from samelog.http.probes import probe_routes
from samelog.http.routes import VALUES_FEW, HttpProblem, Route, problem_of
from samelog.runtime.clock import SystemClock
from samelog.sequencer.admin.handlers import answer
from samelog.sequencer.admin.parts import KeptElsewhere, ServedNode
from samelog.sequencer.admin.status import not_ready
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.wire.errors import FaultCode


class NodeApi:
    """Implements routes.HttpApi for the node of a process."""

    def __init__(self, config: NodeConfig, is_stopping: Callable[[], bool]) -> None:
        self.title = f"samelog node {config.name} of cluster {config.cluster}"
        self.cluster = config.cluster
        self.node: ServedNode | None = None
        """None: it has no place in the cluster yet."""
        self._config, self._is_stopping = config, is_stopping
        self._certificates = node_certificates(config)
        known = config, lambda: self.node, self.not_ready, self._certificates
        self.metrics = node_metrics(*known)
        table = tuple(Route(operation, self._handle) for operation in OPERATIONS)
        console = console_routes(Producer(self._look, SystemClock()))
        self.routes = (*probe_routes(self, self.not_ready, self.metrics), *table, *console)

    @property
    def values_max(self) -> int:
        return VALUES_FEW if self.node is None else self.node.logs.machine.state.elements_max

    def may_read(self, identity: str) -> bool:
        """Administrators may."""
        return self.node is not None and self.node.member.rights.is_admin(identity)

    def may_change(self, identity: str) -> bool:
        """Administrators may."""
        return self.may_read(identity)

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        """By the grants; a process without a node answers everyone that it has none."""
        if self.node is None:
            return True
        rights = self.node.member.rights
        match who_may:
            case WhoMayAsk.GROUP_USER:
                return rights.may_use_group(identity, path["group"])
            case WhoMayAsk.MIRROR:
                return rights.may_mirror(identity, path["topic"])
        return rights.may_write(identity)

    def not_ready(self) -> str:
        """Why nothing can be served; empty if it can."""
        if self._is_stopping():
            return "the node stops"
        if self.node is None:
            own = f"{self._config.name} {self._config.advertise}"
            return f"the node waits for its place in the cluster: samelog node add {own}"
        return not_ready(self.node)

    async def _look(self) -> Document:
        """What the console shows. Raises HttpProblem."""
        if self.node is None:
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, self.not_ready())
        return await look(self.node, self._certificates.expiries)

    async def _handle(self, request: AdminRequest[Any], identity: str) -> object:
        """Raises HttpProblem."""
        if self.node is None:
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, self.not_ready())
        if isinstance(request, ConfirmedRequest):
            try:
                request.check_cluster(self.cluster)
            except ValueError as error:
                raise HttpProblem(HTTPStatus.BAD_REQUEST, str(error)) from error
        try:
            return await answer(self.node, request, identity)
        except ChangeRefused as refused:
            raise problem_of(refused.code, str(refused), refused.remedy) from refused
        except NotLeader as error:
            raise _not_leader(self.node, error) from error
        except TimeoutError as error:
            text = "no leader confirmed it in time"
            raise problem_of(FaultCode.TIMEOUT, text, "ask again") from error


def _not_leader(node: ServedNode, error: NotLeader) -> HttpProblem:
    """The answer of a node that does not lead, or has no copy; it names who does, if it knows."""
    member = None if error.hint is None else node.peers.members.all.get(error.hint)
    if member is None or member.number == node.peers.number:
        text = f"{node.member.config.name} does not lead: ask again, nobody does yet"
        return problem_of(FaultCode.NOT_LEADER, text)
    lacks = "has no copy of it" if isinstance(error, KeptElsewhere) else "does not lead"
    text = f"{node.member.config.name} {lacks}: ask {member.name}"
    known = {"leader": member.name, "leader_address": member.address}
    return problem_of(FaultCode.NOT_LEADER, text, **known)
