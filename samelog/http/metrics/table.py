"""Every metric there is: docs/metrics.md is made from this, and nothing else is exported.

Names and units follow Prometheus' conventions: base units, counters end in `_total`.
Invariant: one name has one kind, one meaning and one list of labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

_ROW = re.compile(r"(\w+) (\w+)(?:\{([\w,]+)\})?: (.+)")


class MetricKind(Enum):
    """The kinds of metric that Prometheus has."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `labels` tell its series apart."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


def _table(text: str) -> tuple[Metric, ...]:
    """Rows `kind name{labels}: help`; an indented line continues the row before. Raises ValueError
    for anything else.
    """
    rows = text.strip().replace("\n    ", " ").split("\n")
    return tuple(map(_metric, rows))


def _metric(row: str) -> Metric:
    match = _ROW.fullmatch(row)
    if match is None:
        raise ValueError(f"this is no metric: {row!r}")
    kind, name, labels, text = match.groups()
    return Metric(name, MetricKind(kind), text, tuple(labels.split(",")) if labels else ())


COMMON = _table("""
gauge samelog_build_info{version}: Always 1; the label says the version.
gauge samelog_ready: 1: /readyz answers that the process can serve.
gauge samelog_config_refused: 1: the newest configuration cannot be read or used; the one before it
    is in force.
histogram samelog_event_loop_delay_seconds: How late timers of 50 ms run: for so long the event loop
    was busy with something else.
gauge samelog_tls_certificate_expiry_timestamp_seconds{certificate}: When a certificate expires: the
    process's own, its authority's, a listener's.
gauge samelog_tls_files_unusable{certificate}: 1: certificate, key or authority as they are on disk
    cannot be used; the ones loaded before stay in use.
gauge samelog_disk_used_bytes: Bytes used on the disk of the data directory, by whatever.
gauge samelog_disk_free_bytes: Bytes that this process can still write to that disk.
gauge samelog_kafka_connections{listener}: Open connections of Kafka clients.
counter samelog_kafka_refused_connections_total{listener}: Connections refused because of limits or
    identity.
counter samelog_kafka_requests_total{listener}: Requests of Kafka clients that were answered.
counter samelog_kafka_received_bytes_total{listener}: Bytes of requests received from Kafka clients.
counter samelog_kafka_sent_bytes_total{listener}: Bytes of records sent to Kafka clients.
gauge samelog_kafka_held_bytes{listener}: Memory that requests and answers of Kafka clients take
    now, in bytes.
""")

NODE = _table("""
gauge samelog_node_state{state}: 1 for the state that the node is in, 0 for the others.
gauge samelog_peer_connected{peer}: 1: another member is connected to this node.
gauge samelog_peer_ready{peer}: 1: another member said within 5 s that its /readyz answers 200.
gauge samelog_node_maintenance{node,host}: 1: a member, whose address has this host, is in
    maintenance.
gauge samelog_feature_level: The cluster's feature level, as this node knows it.
gauge samelog_group_replicas{node}: Replicas of data groups that a member has, by the table of
    placement.
gauge samelog_groups_missing_copies: Data groups with fewer copies that are whole, on members that
    are connected to this node, than they shall have.
gauge samelog_replicas_catching_up: Replicas of data groups on this node that lack something yet.
gauge samelog_history_ratio: Of the records that the replicas of data groups on this node shall
    have, so many are here.
gauge samelog_tasks{state}: Tasks of placement: running, paused or cancelling; and, by the leader
    of group 0 only, what waits or is blocked.
gauge samelog_site_lag_seconds{site}: How long the oldest record has waited that the best member of
    a site lacks, by its own word. Missing while none of them says so.
gauge samelog_site_lag_known{site}: 1: a member of the site said within 5 s how far it is behind.
gauge samelog_feature_level_supported: The newest feature level that this node supports.
gauge samelog_raft_disk_used_bytes: Bytes used on the disk of Raft's files, which is another one if
    `node.raft_dir` says so.
gauge samelog_raft_disk_free_bytes: Bytes that this process can still write to that disk.
gauge samelog_tail_memory_bytes: Memory that the newest bytes of merged logs take: at most
    `limits.tail_bytes`.
gauge samelog_session_memory_bytes: Memory that the newest session bytes take: at most
    `limits.session_memory_bytes`.
counter samelog_tail_memory_reads_total: Reads of merged logs that this memory has answered.
counter samelog_received_bytes_total: Session bytes written to this node's disk, from publishers,
    Kafka clients and peers.
counter samelog_received_records_total: Records in the session bytes written to this node's disk.
counter samelog_session_received_bytes_total{session}: Bytes of one session written to this node's
    disk.
counter samelog_session_received_records_total{session}: Records of one session written to this
    node's disk.
counter samelog_committed_records_total{topic,partition}: Records that Raft has committed since the
    topic was created: the partition's next offset.
counter samelog_merged_records_total{topic,partition}: Records in this node's merged log since the
    topic was created.
counter samelog_merged_bytes_total: Bytes that this node has merged, without those copied from
    peers.
counter samelog_sent_bytes_total: Bytes of logs sent to subscribers and peers.
counter samelog_sent_records_total: Records of merged logs sent to subscribers and Kafka consumers;
    a copy that starts again counts again.
gauge samelog_partition_size_bytes{topic,partition}: Bytes of the merged files that this node keeps.
gauge samelog_connections{role}: Open connections of publishers and of readers.
gauge samelog_partition_lag_records{topic,partition}: Committed records that this node has not
    merged yet.
gauge samelog_node_lag_records{node}: Committed records, of all partitions, that a node has not
    merged durably, as far as this node knows; the leader knows it of all.
gauge samelog_session_unmerged_bytes{session}: Bytes of a session that this node has and that are
    not merged yet.
gauge samelog_session_held_bytes{session}: Bytes that a connected publisher holds, because their
    topic was deleted before they were merged.
gauge samelog_session_connected{session}: 1: a publisher ships the session to this node now.
gauge samelog_session_last_received_timestamp_seconds{session}: When this node last received bytes
    of a session, since it was started.
gauge samelog_subscriber_lag_bytes{subscriber,topic,partition}: Bytes of this node's merged log that
    a subscriber has not been sent; of several connections of one identity the slowest.
gauge samelog_group_lag_records{group,topic,partition}: Records of a partition from the offset on
    that a consumer group committed; all of them if a member has the partition and the group
    committed nothing there.
gauge samelog_group_members{group}: Members of a consumer group.
histogram samelog_append_to_merged_seconds: Time from a record's timestamp until this node merged
    it.
histogram samelog_append_to_read_seconds: Time from a record's timestamp until this node sent it to
    a subscriber or a Kafka consumer.
histogram samelog_fsync_seconds{files}: Time of one sync; `raft`: of the log and session bytes.
histogram samelog_raft_commit_seconds: Time from proposing a Raft entry until it was applied; on the
    leader.
gauge samelog_raft_term: Raft's term.
gauge samelog_raft_is_leader: 1: this node leads.
gauge samelog_raft_has_leader: 1: this node knows a leader.
gauge samelog_raft_may_vote: 0: this node may have forgotten promises, and counts for nothing.
gauge samelog_raft_halted: 1: it met another history, or a newer version: it takes no part any more.
gauge samelog_raft_ahead: Voters that acknowledged more to this leader than it has.
counter samelog_raft_elections_total: Elections of a leader that this node has seen since its start.
gauge samelog_raft_voters: Members that vote.
gauge samelog_raft_commit_index: Index of the last Raft entry that is committed.
gauge samelog_raft_applied_index: Index of the last Raft entry that this node has applied.
gauge samelog_raft_log_entries: Entries in Raft's log behind the last snapshot.
gauge samelog_raft_uncommitted_entries: Entries in Raft's log that are not committed.
gauge samelog_raft_unsaved_batches: Writes of Raft's log that wait for the disk.
gauge samelog_merge_queue_instructions: Merge instructions that are committed and that this node has
    not executed.
gauge samelog_merge_queue_bytes: Bytes that those instructions will merge.
gauge samelog_intake_stopped: 1: the disk is full or fails, and the node receives no session bytes.
counter samelog_divergences_total: Partitions of this node that differed from those of a majority,
    or on which no majority agreed, since its start.
gauge samelog_partitions_halted: Partitions that this node neither merges nor serves, because of a
    fault.
gauge samelog_partitions_missing_records: Partitions that wait for records which no node has.
gauge samelog_damaged_files: Damaged files that no other node could repair.
gauge samelog_damaged_inputs: Session partitions whose bytes on this node are damaged and cannot be
    merged; on the leader.
counter samelog_refused_records_total: Records that this node, leading, left out or refused
    because they do not fit their topic's schema, since its start.
counter samelog_misplaced_keys_total: Records of a sample that this node, leading, found in another
    partition than Kafka's murmur2 gives their keys, of topics with dedup.key or compaction, since
    its start. samelog topic describe names the sessions.
gauge samelog_damaged_replicas: Replicas of data groups on this node that cannot begin, or are
    halted, because of what is on its disk.
gauge samelog_events{kind}: Events that the cluster remembers, such as a possible loss; `samelog
    status` shows them.
gauge samelog_archive_log_start_offset{topic,partition}: The first offset that is not archived.
gauge samelog_archive_held_partitions: Partitions that are not archived because a consumer group has
    not read them; on the leader.
gauge samelog_archive_copies_waiting: Segments that wait to be copied before they are archived; on
    the leader.
counter samelog_archive_copies_total: Segments copied since the start; on the leader.
gauge samelog_archive_copies_failing: 1: copying before archiving fails, or has no target.
gauge samelog_archive_pending_bytes: Bytes that are archived and not truncated on this node yet.
gauge samelog_archive_policy_refused: 1: the policy file cannot be understood; the policy before it
    is in force.
gauge samelog_archive_policies_differing: Nodes whose policy differs from the one in force.
""")

SIDECAR = _table("""
gauge samelog_sidecar_directory_faulty: 1: the directory is missing, unwritable or full; /readyz
    says which.
""")

PUBLISHER = _table("""
gauge samelog_sidecar_sessions: Sessions that are shipped.
gauge samelog_sidecar_sessions_not_shipped: Session directories that cannot be shipped; /status says
    why.
gauge samelog_sidecar_session_stopped{session}: 1: nothing more of the session will be shipped, or
    its directory is faulty.
gauge samelog_sidecar_session_connected_nodes{session}: Nodes that a session is shipped to now.
gauge samelog_sidecar_session_refused{session}: Partitions of a session that nodes refuse.
gauge samelog_sidecar_session_damaged{session}: Ranges of a session's files that were damaged before
    they were shipped: their records are lost.
gauge samelog_sidecar_held_bytes{session}: Bytes of a session's files that are not released yet.
gauge samelog_sidecar_budget_bytes: Bytes that each session may hold, by the configuration.
""")

SUBSCRIBER = _table("""
gauge samelog_sidecar_connected: 1: the sidecar is connected to a node.
gauge samelog_sidecar_copy_start_offset{topic,partition}: The first offset of the copy.
counter samelog_sidecar_copied_records_total{topic,partition}: Records in the copy since it was
    made.
gauge samelog_sidecar_copy_lag_records{topic,partition}: Records of the cluster's log, as far as the
    sidecar knows it, that are not copied.
gauge samelog_sidecar_copy_caught_up{topic,partition}: 1: the node had no more records when it was
    last heard.
gauge samelog_sidecar_copy_stopped{topic,partition}: 1: the copy has stopped; /status says why.
""")

MIRROR = _table("""
gauge samelog_mirror_lag_records{mirror,partition}: Records of the source that the mirror has not;
    not there while that is not known.
gauge samelog_mirror_lag_unknown{mirror,partition}: 1: the lag of the mirror is not known.
gauge samelog_mirror_stopped{mirror,partition}: 1: it goes on only after somebody has looked at it;
    /status says why.
counter samelog_mirror_records_total{mirror,partition}: The mirror's next offset.
counter samelog_mirror_brought_bytes_total: Bytes of batches that were brought to the destination.
gauge samelog_mirror_topics_refused: Topics of the source that are chosen and have no mirror;
    /status says why.
gauge samelog_mirror_own_groups{mirror}: Groups that have positions of their own in a mirror.
gauge samelog_mirror_source_silence_seconds: So long ago the source was heard of last.
gauge samelog_mirror_source_faulty: 1: the source cannot be read now.
gauge samelog_mirror_destination_faulty: 1: the destination takes nothing now.
""")


def by_name(*groups: Iterable[Metric]) -> dict[str, Metric]:
    """The metrics of these groups by their names."""
    return {metric.name: metric for group in groups for metric in group}
