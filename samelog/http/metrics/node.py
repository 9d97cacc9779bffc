"""What a node's state says to monitoring; read when it is asked for.

Invariant: reading a sample changes nothing and reads no file; the state may change between two
samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from samelog.admin.answers import FRESH_S, NodeState
from samelog.config.tables.node import NodeConfig
from samelog.config.values import parse_address
from samelog.http.metrics import common
from samelog.http.metrics.common import Gather, Metrics, Sample
from samelog.http.metrics.table import COMMON, NODE, by_name
from samelog.placement.values import PlacedGroup
from samelog.runtime.network.tls import NODE_PREFIX
from samelog.sequencer.admin.access import node_tls_files
from samelog.sequencer.admin.groups import group_lags
from samelog.sequencer.admin.parts import ServedNode, parts_of
from samelog.sequencer.admin.readers import read_partitions
from samelog.sequencer.admin.sessions import held_records, inputs_by_session
from samelog.sequencer.admin.status import node_info, records_lacked
from samelog.sequencer.admin.topics import partition_name
from samelog.sequencer.cluster.catching_up import History
from samelog.sequencer.parts import CareParts, LogParts, RaftParts, history_here
from samelog.sequencer.raft.raft_home import home_of
from samelog.sequencer.sites.lags import UNKNOWN

SYNCED = ("merged", "raft")
"""What the node's syncers make durable, in their order; session bytes are synced with the log."""


def node_certificates(config: NodeConfig) -> common.Certificates:
    """Those of a node and its listeners."""
    return common.Certificates(node_tls_files(config), NODE_PREFIX + config.name)


def node_metrics(
    config: NodeConfig,
    node: Callable[[], ServedNode | None],
    not_ready: Callable[[], str],
    certificates: common.Certificates,
) -> Metrics:
    """Those of a process that runs a node, or waits to."""

    def config_problem() -> str:
        found = node()
        return "" if found is None else found.member.status.config_problem

    def of_node(samples: Callable[[ServedNode], Iterator[Sample | None]]) -> Gather:
        def gather() -> Iterator[Sample | None]:
            known = node()
            return iter(()) if known is None else samples(known)

        return gather

    gathers: list[Gather] = [
        common.build,
        certificates.samples,
        partial(common.disk, config.data),
        partial(common.ready, not_ready),
        partial(common.config_refused, config_problem),
        *map(of_node, NODE_SAMPLES),
    ]
    return Metrics(by_name(COMMON, NODE), gathers)


def _state(node: ServedNode) -> Iterator[Sample]:
    for number, member in tuple(node.peers.members.all.items()):
        info, host = node_info(node, member), parse_address(member.address)
        in_maintenance = info.state is NodeState.MAINTENANCE
        name = member.name, "" if host is None else host.host
        yield "samelog_node_maintenance", name, in_maintenance
        if number == node.peers.number:
            for state in NodeState:
                yield "samelog_node_state", (state.value,), info.state is state
            continue
        is_ready = not info.not_ready and info.age_s <= FRESH_S
        yield "samelog_peer_connected", (member.name,), node.peers.presence.is_there(number)
        yield "samelog_peer_ready", (member.name,), is_ready
    yield "samelog_feature_level", (), node.logs.machine.state.members.level
    yield "samelog_feature_level_supported", (), node.raft.upgrade.supported
    kinds = Counter(event.kind for event in node.logs.machine.state.events.remembered)
    for kind, count in kinds.items():
        yield "samelog_events", (kind,), count
    yield from common.loop_delay(node.member.measures.loop_delay)
    yield from common.kafka(node.member.measures.kafka)


def _placement(node: ServedNode) -> Iterator[Sample]:
    table, is_there = node.logs.machine.state.placement, node.peers.presence.is_there
    held = Counter(member for group in table.groups.values() for member in group.everybody)
    for number, member in tuple(node.peers.members.all.items()):
        yield "samelog_group_replicas", (member.name,), held[number]
    hosts = node.logs.machine.state.hosts
    missing = sum(_lacks_copies(group, hosts, is_there) for group in table.groups.values())
    yield "samelog_groups_missing_copies", (), missing
    yield from _history(node)
    states = Counter(task.state.name.lower() for task in table.tasks.values())
    states.update("blocked" if need.obstacle else "waiting" for need in node.placing.needs)
    for state in ("running", "paused", "cancelling", "waiting", "blocked"):
        yield "samelog_tasks", (state,), states[state]


def _sites(node: ServedNode) -> Iterator[Sample]:
    sites, now = node.logs.machine.state.placement.sites, node.member.clock.now()
    for name in tuple(sites.votes):
        lag_ms = node.peers.whereabouts.lags.of_site(name, sites, now)
        yield "samelog_site_lag_known", (name,), lag_ms != UNKNOWN
        if lag_ms != UNKNOWN:
            yield "samelog_site_lag_seconds", (name,), lag_ms / 1000


def _history(node: ServedNode) -> Iterator[Sample]:
    found = [history_here(logs) for _, logs, _ in node.data_groups.here]
    yield "samelog_replicas_catching_up", (), sum(each.here < each.all for each in found)
    whole = History(sum(each.here for each in found), sum(each.all for each in found))
    yield "samelog_history_ratio", (), whole.ratio


def _lacks_copies(group: PlacedGroup, hosts: int, is_there: Callable[[int], bool]) -> bool:
    """A goal beyond the hosts that exist is not missed by anything."""
    whole = [each for each in group.replicas if each.votes and each.is_whole]
    return sum(is_there(each.member) for each in whole) < min(group.goal, hosts)


def _traffic(node: ServedNode) -> Iterator[Sample]:
    yield "samelog_received_bytes_total", (), node.logs.intake.traffic.total_bytes
    yield "samelog_received_records_total", (), node.logs.intake.traffic.total_records
    yield "samelog_merged_bytes_total", (), node.member.measures.merged_bytes
    yield "samelog_sent_bytes_total", (), node.member.connections.sent_bytes
    yield "samelog_sent_records_total", (), node.member.measures.sent_records
    yield "samelog_connections", ("publisher",), len(node.member.connections.publishers)
    yield "samelog_connections", ("reader",), len(node.member.connections.pulls)


def _files(node: ServedNode) -> Iterator[Sample]:
    yield from common.disk(home_of(node.member.config), "raft_disk")
    yield "samelog_tail_memory_bytes", (), node.member.memory.tails.held_bytes
    yield "samelog_session_memory_bytes", (), node.member.memory.sessions.held_bytes
    yield "samelog_tail_memory_reads_total", (), node.member.memory.tails.reads


def _latencies(node: ServedNode) -> Iterator[Sample]:
    yield "samelog_append_to_merged_seconds", (), node.member.measures.append_to_merged
    yield "samelog_append_to_read_seconds", (), node.member.measures.append_to_read
    yield "samelog_raft_commit_seconds", (), node.raft.group.commit_times
    for name, syncer in zip(SYNCED, node.syncers, strict=True):
        yield "samelog_fsync_seconds", (name,), syncer.durations


def _partitions(node: ServedNode) -> Iterator[Sample]:
    state = node.logs.machine.state
    for number in tuple(state.partitions.by_number):
        logs = (parts_of(node, number) or (None,))[0]
        known = None if logs is None else logs.machine.state.partitions.by_number.get(number)
        if logs is None or known is None:
            continue  # other nodes have it
        opened = logs.merging.partitions.get(number)
        merged = 0 if opened is None else opened.log.next_offset
        segments = () if opened is None else opened.log.segments()
        topic = state.topics.by_id.get(known.topic_id)
        name = "" if topic is None else topic.name, str(known.index)
        yield "samelog_committed_records_total", name, known.next_offset
        yield "samelog_merged_records_total", name, merged
        yield "samelog_partition_lag_records", name, max(0, known.next_offset - merged)
        yield "samelog_partition_size_bytes", name, sum(each.size for each in segments)
        yield "samelog_archive_log_start_offset", name, known.log_start


def _sessions(node: ServedNode) -> Iterator[Sample | None]:
    known = node.logs.machine.state.sessions.by_name
    node.logs.intake.traffic.keep(known)
    there = {server.session for server in node.member.connections.pushes}
    held = held_records(node)
    offset_s = node.member.clock.wall_ms() / 1000 - node.member.clock.now()
    for name, entries in (yield from inputs_by_session(node)).items():
        meter = node.logs.intake.traffic.sessions.get(name)
        unmerged = sum(each.unmerged_bytes for each in entries)
        last = max((each.received_at or 0.0 for each in entries), default=0.0)
        total = 0 if meter is None else meter.total
        yield "samelog_session_received_bytes_total", (name,), total
        records = node.logs.intake.traffic.records[name]
        yield "samelog_session_received_records_total", (name,), records
        yield "samelog_session_unmerged_bytes", (name,), unmerged
        held_bytes = sum(each.size_bytes for each in held.get(name, ()))
        yield "samelog_session_held_bytes", (name,), held_bytes
        yield "samelog_session_connected", (name,), name in there
        if last:
            yield "samelog_session_last_received_timestamp_seconds", (name,), last + offset_s


def _nodes_lag(node: ServedNode) -> Iterator[Sample]:
    for number, member in tuple(node.peers.members.all.items()):
        lag = records_lacked(node, number)
        if lag is not None:
            yield "samelog_node_lag_records", (member.name,), lag


def _subscribers(node: ServedNode) -> Iterator[Sample]:
    slowest: dict[tuple[str, str, str], int] = {}
    for server in tuple(node.member.connections.pulls):
        for each in read_partitions(server):
            key = str(server.link.identity), each.topic, str(each.partition)
            slowest[key] = max(each.lag_bytes, slowest.get(key, 0))
    for key, lag in slowest.items():
        yield "samelog_subscriber_lag_bytes", key, lag


def _groups(node: ServedNode) -> Iterator[Sample | None]:
    for name, group in tuple(node.logs.machine.state.groups.by_id.items()):
        yield "samelog_group_members", (name,), len(group.members) + len(group.consumers)
        for number, lag in (yield from group_lags(node, group)).items():
            topic, index = partition_name(node.logs.machine, number)
            yield "samelog_group_lag_records", (name, topic, str(index)), lag


def _raft(node: ServedNode) -> Iterator[Sample]:
    raft = node.raft.group.raft
    yield "samelog_raft_term", (), raft.term
    yield "samelog_raft_is_leader", (), raft.leader == node.peers.number
    yield "samelog_raft_has_leader", (), raft.leader is not None
    yield "samelog_raft_may_vote", (), raft.may_vote
    yield "samelog_raft_halted", (), bool(node.raft.group.halted)
    yield "samelog_raft_ahead", (), len(raft.trust.ahead)
    yield "samelog_raft_elections_total", (), node.raft.group.elections
    yield "samelog_raft_voters", (), len(raft.voters)
    yield "samelog_raft_commit_index", (), raft.commit_index
    yield "samelog_raft_applied_index", (), node.raft.replica.applied_index
    yield "samelog_raft_log_entries", (), raft.last_index - raft.first_index + 1
    yield "samelog_raft_uncommitted_entries", (), raft.last_index - raft.commit_index
    yield "samelog_raft_unsaved_batches", (), node.raft.group.unsaved


def _troubles(node: ServedNode) -> Iterator[Sample]:
    held = ((node.logs, node.raft, node.care), *node.data_groups.held)
    pending = [merge for logs, _, _ in held for merge in logs.merging.pending()]
    partitions = [(logs, *each) for logs, _, _ in held for each in logs.merging.partitions.items()]
    wanted = [logs.repair.merged.wanted(number) for logs, number, _ in partitions]
    yield "samelog_merge_queue_instructions", (), len(pending)
    yield "samelog_merge_queue_bytes", (), sum(merge.size for merge in pending)
    stopped = any(logs.intake.stopped is not None for logs, _, _ in held)
    yield "samelog_intake_stopped", (), stopped
    yield "samelog_divergences_total", (), sum(logs.merging.divergences for logs, _, _ in held)
    yield "samelog_partitions_halted", (), sum(each.fault is not None for *_, each in partitions)
    yield "samelog_partitions_missing_records", (), sum(map(bool, wanted))
    yield from _damages(held)
    yield from _misfits(held)
    yield "samelog_damaged_replicas", (), node.data_groups.damaged_replicas


def _misfits(held: Sequence[tuple[LogParts, RaftParts, CareParts]]) -> Iterator[Sample]:
    refused = (raft.schemas.refused_records for _, raft, _ in held)
    yield "samelog_refused_records_total", (), sum(refused)
    misplaced = (logs.intake.key_placement.misplaced_records for logs, _, _ in held)
    yield "samelog_misplaced_keys_total", (), sum(misplaced)


def _damages(held: Sequence[tuple[LogParts, RaftParts, CareParts]]) -> Iterator[Sample]:
    files = (tuple(care.scrubber.troubles) for _, _, care in held)
    yield "samelog_damaged_files", (), sum(map(len, files))
    inputs = (raft.coordinator.damaged_inputs() for _, raft, _ in held)
    yield "samelog_damaged_inputs", (), sum(map(len, inputs))


def _archive(node: ServedNode) -> Iterator[Sample]:
    archive = node.care.archive
    archives = [archive, *(care.archive for _, _, care in node.data_groups.held)]
    copies = [each.copies.state() for each in archives]
    yield "samelog_archive_held_partitions", (), sum(len(each.rounds.held) for each in archives)
    yield "samelog_archive_copies_waiting", (), sum(c.waiting + bool(c.file) for c in copies)
    yield "samelog_archive_copies_total", (), sum(each.copied for each in copies)
    yield "samelog_archive_copies_failing", (), any(each.copies.trouble for each in archives)
    yield "samelog_archive_pending_bytes", (), node.member.shares.pending_bytes
    yield "samelog_archive_policy_refused", (), bool(archive.policy.problem)
    yield "samelog_archive_policies_differing", (), len(archive.disagreements())


NODE_SAMPLES = (
    _state,
    _placement,
    _sites,
    _traffic,
    _files,
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
