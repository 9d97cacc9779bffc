"""What sidecars answer over HTTP: they can be looked at, and nothing can be changed.

Invariant: a sidecar is ready as soon as the programs beside it can use its files, whether or not
the cluster is there.
Also: looking changes nothing, and reads no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.admin.requests import AdminRequest
from samelog.admin.table import Operation, WhoMayAsk
from samelog.format.positions import SessionPosition
from samelog.http.metrics.common import Gather
from samelog.http.metrics.sidecar import FileSizes, Side, copying, shipping, sidecar_metrics
from samelog.http.metrics.table import PUBLISHER, SUBSCRIBER, Metric
from samelog.http.probes import probe_routes
from samelog.http.routes import VALUES_FEW, Route

if TYPE_CHECKING:
    from samelog.publisher.sidecar import PublisherSidecar
    from samelog.replicator.pull.copy import Copy
    from samelog.replicator.push.client import PushClient
    from samelog.replicator.push.link import NodeStatus
    from samelog.replicator.push.progress import InputProgress, LostRange
    from samelog.subscriber.sidecar import SubscriberSidecar


class ShippedTo(NamedTuple):
    """How shipping to one node is; `phase` is empty while there is no connection; `problems`: what
    the node does not take, and why.
    """

    node: str
    address: str
    phase: str
    last_error: str
    problems: dict[str, str]


class ShippedPartition(NamedTuple):
    """How far one partition has come: on a node's disk, committed, merged on a majority."""

    topic: str
    partition: int
    durable: SessionPosition
    acknowledged: SessionPosition
    merged: SessionPosition


class DamagedRecords(NamedTuple):
    """A damaged range of a partition's log, from `start` to before `stop`; `kept`: the file that
    has a copy of it. It is listed until that file is removed.
    """

    topic: str
    partition: int
    start: SessionPosition
    stop: SessionPosition
    reason: str
    kept: str


class ShippedSession(NamedTuple):
    """One session. `stopped`: why nothing of it will be shipped any more; `fault`: what is wrong
    with its directory now; `damaged`: records that were damaged on disk before they were shipped;
    `held`: what is held because its topic was deleted, and the remedy.
    """

    directory: str
    stopped: str
    fault: str
    nodes: tuple[ShippedTo, ...]
    partitions: tuple[ShippedPartition, ...]
    damaged: tuple[DamagedRecords, ...]
    held: tuple[str, ...]


class Shipping(NamedTuple):
    """All sessions of a publisher sidecar. `fault`: why the directory, or what Kafka clients write,
    cannot be taken; `config_problem`: why the newest configuration does not count; `not_shipped`:
    session directories that cannot be shipped, and why.
    """

    fault: str
    config_problem: str
    not_shipped: dict[str, str]
    sessions: tuple[ShippedSession, ...]


def shipping_view(sidecar: PublisherSidecar, fault: str, config_problem: str) -> Shipping:
    """The status of a publisher sidecar."""
    sessions = tuple(_session(path, each) for path, each in sidecar.clients.items())
    return Shipping(fault, config_problem, dict(sidecar.faults), sessions)


def _session(path: str, client: PushClient) -> ShippedSession:
    status = client.status
    return ShippedSession(
        path,
        str(status.stopped or ""),
        str(status.session_fault or ""),
        tuple(map(_link, status.nodes)),
        tuple(_input(name, each) for name, each in client.progress.items()),
        tuple(map(_damaged, status.damaged)),
        tuple(f"{each.topic}: {each.explain()}" for each in status.held.values()),
    )


def _damaged(each: LostRange) -> DamagedRecords:
    start, stop = (SessionPosition(each.run, *place) for place in (each.start, each.stop))
    return DamagedRecords(*each.name, start, stop, each.reason, each.kept or "")


def _input(name: tuple[str, int], progress: InputProgress) -> ShippedPartition:
    durable, acknowledged = (
        SessionPosition(*progress.durable),
        SessionPosition(*progress.acknowledged),
    )
    return ShippedPartition(*name, durable, acknowledged, SessionPosition(*progress.merged))


def _link(status: NodeStatus) -> ShippedTo:
    phase = "" if status.phase is None else status.phase.name.lower()
    problems = {f"{topic}-{index}": why for (topic, index), why in status.problems.items()}
    return ShippedTo(status.node, str(status.address), phase, status.last_error or "", problems)


class CopyRow(NamedTuple):
    """One copy: the offsets that are here, and where the cluster's log ends (-1: not heard yet);
    `fault`: why it waits or has stopped.
    """

    topic: str
    partition: int
    state: str
    start_offset: int
    next_offset: int
    cluster_end: int
    caught_up: bool
    fault: str


class Copying(NamedTuple):
    """All copies of a subscriber sidecar. `fault`: why nothing can be copied on this host;
    `config_problem`: why the newest configuration does not count; `node`: the one that is copied
    from, empty if there is none; `last_error`: why there was none; `not_copied`: topics that have
    no copy, and why.
    """

    fault: str
    config_problem: str
    node: str
    last_error: str
    not_copied: dict[str, str]
    copies: tuple[CopyRow, ...]


def copying_view(sidecar: SubscriberSidecar, config_problem: str) -> Copying:
    """The status of a subscriber sidecar."""
    copies = tuple(map(_copy, sidecar.copies.values()))
    status, fault = sidecar.status, sidecar.fault
    if status is None:
        return Copying(fault, config_problem, "", "", {}, copies)
    problems = {topic: str(why) for topic, why in status.problems.items()}
    return Copying(fault, config_problem, status.node, status.last_error or "", problems, copies)


def _copy(copy: Copy) -> CopyRow:
    return CopyRow(
        *copy.name,
        copy.state.name.lower(),
        copy.log.start_offset,
        copy.log.next_offset,
        -1 if copy.cluster_end is None else copy.cluster_end,
        copy.caught_up,
        str(copy.fault or ""),
    )


class GetShipping(AdminRequest[Shipping], frozen=True):
    """The state of shipping."""


class GetCopying(AdminRequest[Copying], frozen=True):
    """The state of copying."""


@dataclass(frozen=True, slots=True)
class SidecarKind:
    """What one kind of sidecar has of its own: the request for its status and the answer, metrics,
    and why it is not ready.
    """

    request: type[AdminRequest[Any]]
    status: Callable[[], object]
    table: tuple[Metric, ...]
    samples: Gather
    not_ready: Callable[[], str]


class SidecarApi:
    """Implements routes.HttpApi."""

    values_max = VALUES_FEW

    def __init__(self, title: str, side: Side, kind: SidecarKind) -> None:
        self.title, self.cluster = title, side.config.cluster
        self.delays = side.delays
        self.is_started = False
        """Whether the Kafka listener, if there is one, is open."""
        self._kind = kind

        async def status(request: object, identity: str) -> object:
            return kind.status()

        metrics = sidecar_metrics(side, kind.table, kind.samples, self.not_ready)
        row = Operation(
            "GET", "/status", "The state of the sidecar.", WhoMayAsk.READER, kind.request
        )
        self.routes = (*probe_routes(self, self.not_ready, metrics), Route(row, status))

    def not_ready(self) -> str:
        """Why it cannot serve; empty if it can."""
        return self._kind.not_ready() if self.is_started else "the sidecar is starting"

    def may_read(self, identity: str) -> bool:
        """Every identity of the authority may: there are no grants at a sidecar."""
        return True

    def may_change(self, identity: str) -> bool:
        """Nobody: a sidecar has no request that changes anything."""
        return False

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        """False: a sidecar has no such request."""
        return False


def publisher_api(
    sidecar: PublisherSidecar, side: Side, listener_fault: Callable[[], str] = lambda: ""
) -> SidecarApi:
    """Of a publisher sidecar: it takes what programs write, as long as its directory can be used.
    `listener_fault`: why the Kafka listener takes nothing; empty if it does.
    """

    def fault() -> str:
        return sidecar.directory.fault or listener_fault()

    budget = side.config.publisher.budget_bytes
    kind = SidecarKind(
        GetShipping,
        lambda: shipping_view(sidecar, fault(), side.config_problem()),
        PUBLISHER,
        partial(shipping, sidecar, budget, FileSizes()),
        fault,
    )
    return SidecarApi("samelog publisher sidecar", side, kind)


def subscriber_api(sidecar: SubscriberSidecar, side: Side) -> SidecarApi:
    """Of a subscriber sidecar: there is something to read once every topic has a copy, as long as
    its directory can be used.
    """

    def not_ready() -> str:
        if sidecar.fault:
            return sidecar.fault
        there = {topic for topic, _ in sidecar.copies}
        missing = ", ".join(topic for topic in sidecar.topics if topic not in there)
        return f"no copy yet of {missing}" if missing else ""

    kind = SidecarKind(
        GetCopying,
        lambda: copying_view(sidecar, side.config_problem()),
        SUBSCRIBER,
        lambda: copying(sidecar),
        not_ready,
    )
    return SidecarApi("samelog subscriber sidecar", side, kind)
