"""What a node's state says to monitoring; read when it is asked for.

Invariant: looking changes nothing, reads no file, and survives what changes between two looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from samelog.http.metrics import common
from samelog.http.metrics.collector import Gather, Metrics, Sample
from samelog.http.metrics.table import COMMON, NODE, by_name
from samelog.http.node_views import group_lags, inputs_by_session, name_of, reading
from samelog.runtime.network.tls import NODE_PREFIX
from samelog.wire.admin import NodeState

if TYPE_CHECKING:
    from samelog.config.tables.node import NodeConfig
    from samelog.sequencer.node import Node

SYNCED = ("merged", "raft", "session")
"""What the node's syncers make durable, in their order."""


def node_metrics(
    config: NodeConfig, node: Callable[[], Node | None], not_ready: Callable[[], str]
) -> Metrics:
    """Those of a process that runs a node, or waits to."""
    files = {f"kafka/{each.name}": each.tls for each in config.kafka.listeners}
    certificates = common.Certificates(
        common.tls_files_of(config.tls, config.http, files), NODE_PREFIX + config.name
    )

    def config_problem() -> str:
        found = node()
        return "" if found is None else found.status.config_problem

    def of_node(look: Callable[[Node], Iterator[Sample]]) -> Gather:
        def gather() -> Iterator[Sample]:
            known = node()
            return iter(()) if known is None else look(known)

        return gather

    gathers: list[Gather] = [
        common.build,
        certificates.samples,
        partial(common.disk, config.data),
        partial(common.ready, not_ready),
        partial(common.config_refused, config_problem),
        *map(of_node, LOOKS),
    ]
    return Metrics(by_name(COMMON, NODE), gathers)


def _state(node: Node) -> Iterator[Sample]:
    for state in NodeState:
        yield "samelog_node_state", (state.name.lower(),), node.status.state is state
    for number, member in tuple(node.members.all.items()):
        if number != node.number:
            yield "samelog_peer_connected", (member.name,), node.is_there(number)
    kinds = Counter(event.kind for event in node.replica.machine.state.events)
    for kind, count in kinds.items():
        yield "samelog_events", (kind,), count
    yield from common.loop_delay(node.measures.loop_delay)
    yield from common.kafka(node.measures.kafka)


def _traffic(node: Node) -> Iterator[Sample]:
    yield "samelog_received_bytes_total", (), node.intake.traffic.total_bytes
    yield "samelog_received_records_total", (), node.intake.traffic.total_records
    yield "samelog_merged_bytes_total", (), node.merging.merged_bytes
    yield "samelog_sent_bytes_total", (), node.connections.sent_bytes
    yield "samelog_sent_records_total", (), node.measures.sent_records
    yield "samelog_connections", ("publisher",), len(node.connections.pushes)
    yield "samelog_connections", ("reader",), len(node.connections.pulls)


def _latencies(node: Node) -> Iterator[Sample]:
    yield "samelog_append_to_merged_seconds", (), node.measures.append_to_merged
    yield "samelog_append_to_read_seconds", (), node.measures.append_to_read
    yield "samelog_raft_commit_seconds", (), node.group.commit_times
    for name, syncer in zip(SYNCED, node.syncers, strict=True):
        yield "samelog_fsync_seconds", (name,), syncer.durations


def _partitions(node: Node) -> Iterator[Sample]:
    for number, merged in tuple(node.merging.partitions.items()):
        known = node.replica.machine.state.partitions.get(number)
        if known is None:
            continue
        name, log = (merged.topic, str(merged.index)), merged.log
        yield "samelog_committed_records_total", name, known.next_offset
        yield "samelog_merged_records_total", name, log.next_offset
        yield "samelog_partition_lag_records", name, max(0, known.next_offset - log.next_offset)
        yield "samelog_partition_size_bytes", name, sum(each.size for each in log.segments())
        yield "samelog_archive_log_start_offset", name, known.log_start


def _sessions(node: Node) -> Iterator[Sample]:
    known = node.replica.machine.state.sessions
    node.intake.traffic.keep(known)
    there = {server.session for server in node.connections.pushes}
    offset_s = node.clock.wall_ms() / 1000 - node.clock.now()
    received = node.intake.received_at
    for name, entries in inputs_by_session(node).items():
        meter = node.intake.traffic.sessions.get(name)
        unmerged = sum(map(node.sessions.unmerged_bytes, entries))
        last = max((received.get(entry.number, 0.0) for entry in entries), default=0.0)
        total = 0 if meter is None else meter.total
        yield "samelog_session_received_bytes_total", (name,), total
        records = node.intake.traffic.records[name]
        yield "samelog_session_received_records_total", (name,), records
        yield "samelog_session_unmerged_bytes", (name,), unmerged
        yield "samelog_session_connected", (name,), name in there
        if last:
            yield "samelog_session_last_received_timestamp_seconds", (name,), last + offset_s


def _nodes_lag(node: Node) -> Iterator[Sample]:
    ends = {n: each.next_offset for n, each in node.replica.machine.state.partitions.items()}
    for number, member in tuple(node.members.all.items()):
        view = node.coordinator.views.get(number)
        if number == node.number:
            durable = node.merging.merged_durable()
        elif view is not None and view.merged_durable:
            durable = view.merged_durable
        else:
            continue
        lag = sum(max(0, end - durable.get(n, 0)) for n, end in ends.items())
        yield "samelog_node_lag_records", (member.name,), lag


def _subscribers(node: Node) -> Iterator[Sample]:
    slowest: dict[tuple[str, str, str], int] = {}
    for server in tuple(node.connections.pulls):
        for each in reading(server):
            key = str(server.link.identity), each.topic, str(each.partition)
            slowest[key] = max(each.lag_bytes, slowest.get(key, 0))
    for key, lag in slowest.items():
        yield "samelog_subscriber_lag_bytes", key, lag


def _groups(node: Node) -> Iterator[Sample]:
    for name, group in tuple(node.replica.machine.state.groups.by_id.items()):
        yield "samelog_group_members", (name,), len(group.members) + len(group.consumers)
        for number, lag in tuple(group_lags(node, group)):
            topic, index = name_of(node, number)
            yield "samelog_group_lag_records", (name, topic, str(index)), lag


def _raft(node: Node) -> Iterator[Sample]:
    raft = node.group.raft
    yield "samelog_raft_term", (), raft.term
    yield "samelog_raft_is_leader", (), raft.leader == node.number
    yield "samelog_raft_has_leader", (), raft.leader is not None
    yield "samelog_raft_may_vote", (), raft.may_vote
    yield "samelog_raft_elections_total", (), node.group.elections
    yield "samelog_raft_voters", (), len(raft.voters)
    yield "samelog_raft_commit_index", (), raft.commit_index
    yield "samelog_raft_applied_index", (), node.replica.applied_index
    yield "samelog_raft_log_entries", (), raft.last_index - raft.first_index + 1
    yield "samelog_raft_uncommitted_entries", (), raft.last_index - raft.commit_index
    yield "samelog_raft_unsaved_batches", (), node.group.unsaved


def _troubles(node: Node) -> Iterator[Sample]:
    pending = node.merging.pending()
    partitions = tuple(node.merging.partitions.items())
    wanted = [node.repair.wanted(number) for number, _ in partitions]
    yield "samelog_merge_queue_instructions", (), len(pending)
    yield "samelog_merge_queue_bytes", (), sum(merge.size for merge in pending)
    yield "samelog_intake_stopped", (), node.intake.stopped is not None
    yield "samelog_divergences_total", (), node.merging.divergences
    yield "samelog_partitions_halted", (), sum(each.fault is not None for _, each in partitions)
    yield "samelog_partitions_missing_records", (), sum(map(bool, wanted))
    yield "samelog_damaged_files", (), len(tuple(node.scrubber.troubles))
    yield "samelog_damaged_inputs", (), len(node.coordinator.damaged_inputs())


def _archive(node: Node) -> Iterator[Sample]:
    archive = node.archive
    copies = archive.copies.state()
    yield "samelog_archive_held_partitions", (), len(archive.rounds.held)
    yield "samelog_archive_copies_waiting", (), copies.waiting + bool(copies.file)
    yield "samelog_archive_copies_total", (), copies.copied
    yield "samelog_archive_copies_failing", (), bool(archive.copies.trouble)
    yield "samelog_archive_pending_bytes", (), archive.truncation.pending_bytes
    yield "samelog_archive_policy_refused", (), bool(archive.policy.problem)
    yield "samelog_archive_policies_differing", (), len(archive.disagreements())


LOOKS = (
    _state,
    _traffic,
    _latencies,
    _partitions,
    _sessions,
    _nodes_lag,
    _subscribers,
    _groups,
    _raft,
    _troubles,
    _archive,
)
