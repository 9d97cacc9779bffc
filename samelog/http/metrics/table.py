"""Every metric there is: docs/metrics.md is made from this, and nothing else is exported.

Names and units follow Prometheus' conventions: base units, counters end in `_total`.
Invariant: one name has one kind, one meaning and one list of labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """As Prometheus has them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `labels` tell its series apart."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


PART = ("topic", "partition")

COMMON = (
    Metric("samelog_build_info", GAUGE, "1; the version.", ("version",)),
    Metric("samelog_ready", GAUGE, "Whether /readyz says so.", ()),
    Metric(
        "samelog_config_refused",
        GAUGE,
        "1: the newest configuration cannot be had or used; the one before counts.",
    ),
    Metric(
        "samelog_event_loop_delay_seconds",
        HISTOGRAM,
        "By how much a timer of 50 ms is late: how long the process does nothing else meanwhile.",
    ),
    Metric(
        "samelog_tls_certificate_expiry_timestamp_seconds",
        GAUGE,
        "When a certificate expires: the process's own, its authority's, a listener's.",
        ("certificate",),
    ),
    Metric(
        "samelog_tls_files_unusable",
        GAUGE,
        "1: certificate, key or authority cannot be used as they are now; older ones still are.",
        ("certificate",),
    ),
    Metric("samelog_disk_used_bytes", GAUGE, "Taken on the disk of the data directory."),
    Metric("samelog_disk_free_bytes", GAUGE, "Free for this process on that disk."),
    Metric("samelog_kafka_connections", GAUGE, "Open now.", ("listener",)),
    Metric("samelog_kafka_refused_connections_total", COUNTER, "Not let in.", ("listener",)),
    Metric("samelog_kafka_requests_total", COUNTER, "Answered.", ("listener",)),
    Metric("samelog_kafka_received_bytes_total", COUNTER, "Of requests.", ("listener",)),
    Metric("samelog_kafka_sent_bytes_total", COUNTER, "Of records in answers.", ("listener",)),
    Metric("samelog_kafka_held_bytes", GAUGE, "Held in memory for clients.", ("listener",)),
)

NODE = (
    Metric("samelog_node_state", GAUGE, "1 for the state that the node is in.", ("state",)),
    Metric("samelog_peer_connected", GAUGE, "Whether another member is there.", ("peer",)),
    Metric(
        "samelog_received_bytes_total",
        COUNTER,
        "Session bytes written here: from publishers, Kafka clients and peers.",
    ),
    Metric("samelog_received_records_total", COUNTER, "The records in them."),
    Metric(
        "samelog_session_received_bytes_total", COUNTER, "Of one session's bytes.", ("session",)
    ),
    Metric("samelog_session_received_records_total", COUNTER, "The records in them.", ("session",)),
    Metric(
        "samelog_committed_records_total",
        COUNTER,
        "Records that Raft has committed, ever: the partition's next offset.",
        PART,
    ),
    Metric("samelog_merged_records_total", COUNTER, "Records in the merged log here, ever.", PART),
    Metric("samelog_merged_bytes_total", COUNTER, "Merged here, not copied from peers."),
    Metric("samelog_sent_bytes_total", COUNTER, "Of logs, to subscribers and peers."),
    Metric(
        "samelog_sent_records_total",
        COUNTER,
        "Of merged logs, to subscribers and Kafka consumers; a copy restarted counts again.",
    ),
    Metric("samelog_partition_size_bytes", GAUGE, "Merged files that are kept.", PART),
    Metric("samelog_connections", GAUGE, "Publishers' and readers' connections.", ("role",)),
    Metric(
        "samelog_partition_lag_records",
        GAUGE,
        "Committed, and not merged here yet.",
        PART,
    ),
    Metric(
        "samelog_node_lag_records",
        GAUGE,
        "Committed, and not merged durably by a node, in all partitions; as far as is known here: "
        "the leader knows it of all.",
        ("node",),
    ),
    Metric("samelog_session_unmerged_bytes", GAUGE, "Here, and not merged yet.", ("session",)),
    Metric("samelog_session_connected", GAUGE, "Whether it is shipped here.", ("session",)),
    Metric(
        "samelog_session_last_received_timestamp_seconds",
        GAUGE,
        "When bytes of it came here last, since the node was started.",
        ("session",),
    ),
    Metric(
        "samelog_subscriber_lag_bytes",
        GAUGE,
        "In the merged log here, and not sent; the slowest connection of an identity.",
        ("subscriber", *PART),
    ),
    Metric(
        "samelog_group_lag_records",
        GAUGE,
        "Committed records that a consumer group has not committed.",
        ("group", *PART),
    ),
    Metric("samelog_group_members", GAUGE, "Members of a consumer group.", ("group",)),
    Metric(
        "samelog_append_to_merged_seconds",
        HISTOGRAM,
        "From a record's timestamp to its merging here.",
    ),
    Metric(
        "samelog_append_to_read_seconds",
        HISTOGRAM,
        "From a record's timestamp to its being sent to a subscriber or a Kafka consumer.",
    ),
    Metric("samelog_fsync_seconds", HISTOGRAM, "One sync of the disk.", ("files",)),
    Metric(
        "samelog_raft_commit_seconds",
        HISTOGRAM,
        "From proposing an entry to applying it; on the leader.",
    ),
    Metric("samelog_raft_term", GAUGE, "Raft's term."),
    Metric("samelog_raft_is_leader", GAUGE, "Whether this node leads."),
    Metric("samelog_raft_has_leader", GAUGE, "Whether this node knows a leader."),
    Metric("samelog_raft_may_vote", GAUGE, "0: its directory was lost, and it may not."),
    Metric("samelog_raft_elections_total", COUNTER, "Leaders seen elected since the start."),
    Metric("samelog_raft_voters", GAUGE, "Voting members."),
    Metric("samelog_raft_commit_index", GAUGE, "The last entry that is committed."),
    Metric("samelog_raft_applied_index", GAUGE, "The last entry that is applied here."),
    Metric("samelog_raft_log_entries", GAUGE, "Entries in the log, behind the last snapshot."),
    Metric("samelog_raft_uncommitted_entries", GAUGE, "Entries in the log, not committed."),
    Metric("samelog_raft_unsaved_batches", GAUGE, "Saves that wait for the disk."),
    Metric("samelog_merge_queue_instructions", GAUGE, "Committed, and not executed here."),
    Metric("samelog_merge_queue_bytes", GAUGE, "Of what they merge."),
    Metric("samelog_intake_stopped", GAUGE, "1: the disk is full or fails; nothing is taken in."),
    Metric(
        "samelog_divergences_total",
        COUNTER,
        "How often a majority had other bytes than this node since its start.",
    ),
    Metric("samelog_partitions_halted", GAUGE, "Partitions that are not executed nor served."),
    Metric(
        "samelog_partitions_missing_records",
        GAUGE,
        "Partitions that wait for records that no node has.",
    ),
    Metric("samelog_damaged_files", GAUGE, "Damage at rest that no other node could mend."),
    Metric("samelog_damaged_inputs", GAUGE, "Inputs that cannot be merged from here; leader."),
    Metric(
        "samelog_events",
        GAUGE,
        "Events that the cluster remembers, such as a possible loss: `samelog status`.",
        ("kind",),
    ),
    Metric("samelog_archive_log_start_offset", GAUGE, "What is before is archived.", PART),
    Metric(
        "samelog_archive_held_partitions", GAUGE, "Held back for consumer groups; on the leader."
    ),
    Metric("samelog_archive_copies_waiting", GAUGE, "Segments to be copied first; leader."),
    Metric("samelog_archive_copies_total", COUNTER, "Segments copied since the start; leader."),
    Metric("samelog_archive_copies_failing", GAUGE, "1: copying fails, or is not configured."),
    Metric("samelog_archive_pending_bytes", GAUGE, "Archived, and not truncated here yet."),
    Metric("samelog_archive_policy_refused", GAUGE, "1: the policy file is not understood."),
    Metric("samelog_archive_policies_differing", GAUGE, "Nodes with another policy than counts."),
)

SIDECAR = (
    Metric(
        "samelog_sidecar_directory_faulty",
        GAUGE,
        "1: the directory is away, unwritable or full; see /readyz.",
    ),
)

PUBLISHER = (
    Metric("samelog_sidecar_sessions", GAUGE, "Sessions that are shipped."),
    Metric(
        "samelog_sidecar_sessions_not_shipped",
        GAUGE,
        "Session directories that cannot be shipped; see /status.",
    ),
    Metric(
        "samelog_sidecar_session_stopped",
        GAUGE,
        "1: nothing of a session will be shipped any more, or its directory is faulty.",
        ("session",),
    ),
    Metric("samelog_sidecar_session_connected_nodes", GAUGE, "That take it.", ("session",)),
    Metric("samelog_sidecar_session_refused", GAUGE, "Inputs nodes refuse.", ("session",)),
    Metric("samelog_sidecar_held_bytes", GAUGE, "Of files not released yet.", ("session",)),
    Metric(
        "samelog_sidecar_budget_bytes", GAUGE, "What each session may hold, by the configuration."
    ),
)

SUBSCRIBER = (
    Metric("samelog_sidecar_connected", GAUGE, "Whether a node is connected to."),
    Metric("samelog_sidecar_copy_start_offset", GAUGE, "What is before is not here.", PART),
    Metric("samelog_sidecar_copied_records_total", COUNTER, "In the copy, ever.", PART),
    Metric(
        "samelog_sidecar_copy_lag_records",
        GAUGE,
        "In the cluster's log, as far as was heard, and not copied.",
        PART,
    ),
    Metric("samelog_sidecar_copy_caught_up", GAUGE, "Whether the node had no more.", PART),
    Metric("samelog_sidecar_copy_stopped", GAUGE, "1: it is copied no more; see /status.", PART),
)


def by_name(*groups: Iterable[Metric]) -> dict[str, Metric]:
    """Some of the metrics."""
    return {metric.name: metric for group in groups for metric in group}
