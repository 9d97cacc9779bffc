"""What a node answers over HTTP: its table of routes.

What administrators also ask over samelog's own protocol is answered by the same code. Invariant: a
process that has no node yet, or none any more, is alive and not ready, and says why.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, UnsetType

from samelog.http import asked as ask
from samelog.http import node_views as views
from samelog.http.metrics.node import node_metrics
from samelog.http.probes import probe_routes
from samelog.http.problem import Problem, problem_of
from samelog.http.routes import Access, Asked, Route
from samelog.sequencer.admin.desk import AdminDesk
from samelog.wire import admin, admin_archive, admin_groups
from samelog.wire.admin import NodeState

if TYPE_CHECKING:
    from samelog.config.tables.node import NodeConfig
    from samelog.sequencer.node import Node

ValueT = TypeVar("ValueT")
Ask = Callable[[Any], admin.AdminRequest]
View = Callable[["Node", Any], object]
FOUND, BUSY = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
RANGE, LEADER = HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.MISDIRECTED_REQUEST
STATES = {
    NodeState.OFFLINE: "the node has stopped",
    NodeState.INITIALIZING: "the node is starting",
    NodeState.SYNCING: "the node catches up with the cluster",
}


class NodeApi:
    """Implements routes.Api for the node of a process."""

    def __init__(self, config: NodeConfig, is_stopping: Callable[[], bool]) -> None:
        self.title = f"samelog node {config.name} of cluster {config.cluster}"
        self.node: Node | None = None
        """None: it has no place in the cluster yet."""
        self._config, self._is_stopping = config, is_stopping
        self.metrics = node_metrics(config, lambda: self.node, self.not_ready)
        self.routes = (
            *probe_routes(self, self.not_ready, self.metrics),
            *self._looks(),
            *self._changes(),
        )

    def may_look(self, identity: str) -> bool:
        """Administrators may."""
        return self._is_admin(identity)

    def may_change(self, identity: str) -> bool:
        """Administrators may."""
        return self._is_admin(identity)

    def _is_admin(self, identity: str) -> bool:
        return self.node is not None and self.node.rights.is_admin(identity)

    def not_ready(self) -> str:
        """Why nothing can be served; empty if it can."""
        if self._is_stopping():
            return "the node stops"
        if self.node is None:
            own = f"{self._config.name} {self._config.advertise}"
            return f"the node waits for its place in the cluster: samelog node add {own}"
        if self.node.status.state in STATES:
            return STATES[self.node.status.state]
        return "" if self.node.group.raft.leader is not None else "no leader is known"

    def _here(self) -> Node:
        """Raises Problem."""
        if self.node is None:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, self.not_ready())
        return self.node

    # --- looking ----------------------------------------------------------------------------------

    def _looks(self) -> tuple[Route, ...]:
        nothing = ask.Nothing
        return (
            self._same("/status", "The cluster as this node sees it.", nothing, admin.Status),
            self._same("/topics", "All topics.", nothing, admin.Topics),
            self._same("/topics/{topic}", "One topic.", ask.OneTopic, admin.TopicDescription),
            self._view("/sessions", "Publishers.", nothing, views.Sessions, views.sessions),
            self._view("/dedup", "Dedup ids and their users.", nothing, views.Dedup, views.dedup),
            self._view(
                "/subscribers", "Who reads here.", nothing, views.Subscribers, views.subscribers
            ),
            self._same(
                "/log-history",
                "Every file of merged logs there ever was, a page at a time.",
                ask.HistoryFrom,
                admin_archive.LogHistoryPage,
            ),
            self._latest(),
            self._view("/groups", "Groups, and their lag.", nothing, views.GroupRows, views.groups),
            self._same(
                "/groups/{group}",
                "One group: members, offsets, lag.",
                ask.OneGroup,
                admin_groups.GroupDescription,
            ),
            self._view("/raft", "The Raft group.", nothing, views.RaftStatus, views.raft),
            self._same(
                "/archive/plan",
                "What the next round of archiving would do; the leader answers.",
                nothing,
                admin_archive.ArchivePlan,
            ),
        )

    def _view(
        self, path: str, summary: str, asked: type[Asked], answer: type, look: Callable[[Node], Any]
    ) -> Route:
        """Answered from the node's state as it is."""

        async def handle(said: Asked) -> object:
            return look(self._here())

        return Route("GET", path, summary, Access.LOOK, asked, answer, handle)

    def _latest(self) -> Route:
        async def handle(said: ask.OfTopic) -> object:
            node = self._here()
            topic = _given(said.topic, None)
            if topic is not None and node.replica.machine.topic_named(topic) is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no topic {topic!r}")
            return views.latest_positions(node, topic)

        text, answer = "Where merged logs end.", views.LatestPositions
        path = "/latest-position"
        return Route("GET", path, text, Access.LOOK, ask.OfTopic, answer, handle, (FOUND,))

    def _same(self, path: str, summary: str, asked: type[Asked], answer: type) -> Route:
        """As an administrator asks it."""
        make = REQUESTS["GET", path]
        problems = (BUSY, FOUND, RANGE, LEADER)
        handle = self._desk(make)
        return Route("GET", path, summary, Access.LOOK, asked, answer, handle, problems)

    # --- changing ---------------------------------------------------------------------------------

    def _changes(self) -> tuple[Route, ...]:
        return (
            self._change("/reset", "Begin anew.", ask.Reset, admin.ClusterReset),
            self._change(
                "/groups/{group}/reset",
                "Set a group without members to another place.",
                ask.GroupReset,
                admin_groups.GroupDescription,
            ),
            self._change("/maintenance", "Work on a node.", ask.Maintenance, admin.MaintenanceSet),
            self._change("/leadership", "Move leadership.", ask.Leadership, admin.LeadershipMoved),
            self._change(
                "/sessions/{session}/retire",
                "Fence a session's directory, so that another may take the name.",
                ask.OneSession,
                admin.SessionRetired,
            ),
        )

    def _change(self, path: str, summary: str, asked: type[Asked], answer: type) -> Route:
        handle = self._desk(REQUESTS["POST", path])
        problems = (BUSY, FOUND, RANGE, LEADER)
        return Route("POST", path, summary, Access.CHANGE, asked, answer, handle, problems)

    def _desk(self, make: Ask) -> Callable[[Any], Awaitable[object]]:
        async def handle(said: Asked) -> object:
            node = self._here()
            answer = await AdminDesk(node).answer_allowed(make(said))
            return _answered(node, answer)

        return handle


def _answered(node: Node, answer: admin.AdminResponse) -> object:
    """Raises Problem."""
    if isinstance(answer, admin.Failed):
        raise problem_of(answer.code, answer.message, answer.remedy)
    if isinstance(answer, admin.NotLeader):
        text = f"{node.config.name} does not lead: ask {answer.node or 'again, nobody does yet'}"
        raise Problem(LEADER, text, code="not_leader", leader=answer.node or "")
    return answer


def _given(value: ValueT | UnsetType, otherwise: Any) -> Any:
    return otherwise if value is UNSET else value


def _history(said: ask.HistoryFrom) -> admin_archive.LogHistory:
    topic = _given(said.topic, "")
    begin = _given(said.from_topic, topic)
    return admin_archive.LogHistory(
        topic, _given(said.partition, -1), begin, said.from_partition, said.from_offset
    )


def _group_reset(said: ask.GroupReset) -> admin_groups.ResetGroup:
    """Raises Problem."""
    partition, to = _given(said.partition, None), admin_groups.ResetTo[said.to.upper()]
    is_end = said.to in {"earliest", "latest"}
    if is_end != (said.offset is UNSET):
        text = f'"to": "{said.to}" {"takes no" if is_end else "needs an"} "offset"'
        raise Problem(HTTPStatus.BAD_REQUEST, text)
    return admin_groups.ResetGroup(said.group, said.topic, partition, to, _given(said.offset, 0))


REQUESTS: dict[tuple[str, str], Ask] = {
    ("GET", "/status"): lambda said: admin.GetStatus(),
    ("GET", "/topics"): lambda said: admin.ListTopics(),
    ("GET", "/topics/{topic}"): lambda said: admin.DescribeTopic(said.topic),
    ("GET", "/log-history"): _history,
    ("GET", "/groups/{group}"): lambda said: admin_groups.DescribeGroup(said.group),
    ("GET", "/archive/plan"): lambda said: admin_archive.PlanArchive(),
    ("POST", "/reset"): lambda said: admin.ResetCluster(
        said.hard, _given(said.reset_id, uuid.uuid4().hex)
    ),
    ("POST", "/groups/{group}/reset"): _group_reset,
    ("POST", "/maintenance"): lambda said: admin.SetMaintenance(said.node, said.seconds),
    ("POST", "/leadership"): lambda said: admin.MoveLeadership(_given(said.to, None)),
    ("POST", "/sessions/{session}/retire"): lambda said: admin.RetireSession(said.session),
}
"""What an administrator asks over samelog's own protocol, by method and path."""
