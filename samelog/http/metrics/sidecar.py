"""What sidecars tell monitoring.

Invariant: reading a sample changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from samelog.http.metrics import common
from samelog.http.metrics.common import Gather, Metrics, Sample
from samelog.http.metrics.table import COMMON, SIDECAR, Metric, by_name
from samelog.runtime.counters import FAST_S, Histogram, ListenerTally
from samelog.runtime.network.expiry import tls_files_of
from samelog.wire.pull.copies import CopyState

if TYPE_CHECKING:
    from samelog.config.tables.client import ClientConfig
    from samelog.config.tables.shared import HttpConfig
    from samelog.publisher.sidecar import PublisherSidecar
    from samelog.replicator.push.client import PushClient
    from samelog.subscriber.sidecar import SubscriberSidecar


@dataclass(frozen=True, slots=True)
class Side:
    """What both kinds have: how they are configured, where, what their listeners count, and how
    late the event loop is, and why the newest configuration does not count.
    """

    config: ClientConfig
    directory: str
    http: HttpConfig | None = None
    tallies: Mapping[str, ListenerTally] = field(default_factory=dict)
    delays: Histogram = field(default_factory=lambda: Histogram(FAST_S))
    config_problem: Callable[[], str] = lambda: ""


def sidecar_metrics(
    side: Side, table: tuple[Metric, ...], samples: Gather, not_ready: Callable[[], str]
) -> Metrics:
    """`table` and `samples`: of one kind of sidecar."""
    files = tls_files_of(side.config.tls, side.http, {})
    gathers: list[Gather] = [
        common.build,
        common.Certificates(files).samples,
        partial(common.disk, side.directory),
        partial(common.ready, not_ready),
        partial(common.config_refused, side.config_problem),
        partial(common.kafka, side.tallies),
        partial(common.loop_delay, side.delays),
        samples,
    ]
    return Metrics(by_name(COMMON, SIDECAR, table), gathers)


class FileSizes:
    """Bytes of the files of sessions. They are counted again only where files may have changed."""

    def __init__(self) -> None:
        self._known: dict[PushClient, tuple[int, int]] = {}
        """`file_changes` when they were counted, and the bytes."""

    def keep(self, clients: Collection[PushClient]) -> None:
        """Forget all other sessions."""
        if len(self._known) > len(clients):
            self._known = {each: self._known[each] for each in clients if each in self._known}

    def of(self, path: str, client: PushClient) -> int:
        """Return the bytes of a session's files, of which `path` is the directory."""
        known, changes = self._known.get(client), client.file_changes
        if known is None or known[0] != changes or client.is_blind:
            known = self._known[client] = changes, _size(path)
        return known[1]


def shipping(sidecar: PublisherSidecar, budget_bytes: int, held: FileSizes) -> Iterator[Sample]:
    """Samples of a publisher sidecar."""
    clients = sidecar.clients
    held.keep(clients.values())
    yield "samelog_sidecar_directory_faulty", (), bool(sidecar.directory.fault)
    yield "samelog_sidecar_sessions_not_shipped", (), len(sidecar.faults)
    yield "samelog_sidecar_sessions", (), len(clients)
    yield "samelog_sidecar_budget_bytes", (), budget_bytes
    for path, client in clients.items():
        status, name = client.status, (os.path.basename(path),)
        is_stopped = status.stopped is not None or status.session_fault is not None
        refused = {problem for node in status.nodes for problem in node.problems}
        there = sum(node.phase is not None for node in status.nodes)
        yield "samelog_sidecar_session_stopped", name, is_stopped
        yield "samelog_sidecar_session_connected_nodes", name, there
        yield "samelog_sidecar_session_refused", name, len(refused)
        yield "samelog_sidecar_session_damaged", name, len(status.damaged)
        yield "samelog_sidecar_held_bytes", name, held.of(path, client)


def _size(directory: str) -> int:
    """Bytes of the files below a directory, as far as they are there."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:  # released meanwhile
                continue
    return total


def copying(sidecar: SubscriberSidecar) -> Iterator[Sample]:
    """Samples of a subscriber sidecar."""
    status = sidecar.status
    yield "samelog_sidecar_directory_faulty", (), bool(sidecar.fault)
    yield "samelog_sidecar_connected", (), status is not None and bool(status.node)
    for copy in tuple(sidecar.copies.values()):
        topic, partition = copy.name
        name, end = (topic, str(partition)), copy.log.next_offset
        yield "samelog_sidecar_copy_start_offset", name, copy.log.start_offset
        yield "samelog_sidecar_copied_records_total", name, end
        yield "samelog_sidecar_copy_caught_up", name, copy.caught_up
        yield "samelog_sidecar_copy_stopped", name, copy.state is CopyState.STOPPED
        if copy.cluster_end is not None:
            yield "samelog_sidecar_copy_lag_records", name, max(0, copy.cluster_end - end)
