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
    Metric("shiplog_build_info", GAUGE, "1; the version.", ("version",)),
    Metric("shiplog_ready", GAUGE, "Whether /readyz says so.", ()),
    Metric(
        "shiplog_config_refused",
        GAUGE,
        "1: the newest configuration cannot be had or used; the one before counts.",
    ),
    Metric(
        "shiplog_event_loop_delay_seconds",
        HISTOGRAM,
        "By how much a timer of 50 ms is late: how long the process does nothing else meanwhile.",
    ),
    Metric(
        "shiplog_tls_certificate_expiry_timestamp_seconds",
        GAUGE,
        "When a certificate expires: the process's own, its authority's, a listener's.",
        ("certificate",),
    ),
    Metric(
        "shiplog_tls_files_unusable",
        GAUGE,
        "1: certificate, key or authority cannot be used as they are now; older ones still are.",
        ("certificate",),
    ),
    Metric("shiplog_disk_used_bytes", GAUGE, "Taken on the disk of the data directory."),
    Metric("shiplog_disk_free_bytes", GAUGE, "Free for this process on that disk."),
    Metric("shiplog_kafka_connections", GAUGE, "Open now.", ("listener",)),
    Metric("shiplog_kafka_refused_connections_total", COUNTER, "Not let in.", ("listener",)),
    Metric("shiplog_kafka_requests_total", COUNTER, "Answered.", ("listener",)),
    Metric("shiplog_kafka_received_bytes_total", COUNTER, "Of requests.", ("listener",)),
    Metric("shiplog_kafka_sent_bytes_total", COUNTER, "Of records in answers.", ("listener",)),
    Metric("shiplog_kafka_held_bytes", GAUGE, "Held in memory for clients.", ("listener",)),
)

NODE = (
    Metric("shiplog_node_state", GAUGE, "1 for the state that the node is in.", ("state",)),
    Metric("shiplog_peer_connected", GAUGE, "Whether another member is there.", ("peer",)),
    Metric(
        "shiplog_received_bytes_total",
        COUNTER,
        "Session bytes written here: from publishers, Kafka clients and peers.",
    ),
    Metric("shiplog_received_records_total", COUNTER, "The records in them."),
    Metric(
        "shiplog_session_received_bytes_total", COUNTER, "Of one session's bytes.", ("session",)
    ),
    Metric("shiplog_session_received_records_total", COUNTER, "The records in them.", ("session",)),
    Metric(
        "shiplog_committed_records_total",
        COUNTER,
        "Records that Raft has committed, ever: the partition's next offset.",
        PART,
    ),
    Metric("shiplog_merged_records_total", COUNTER, "Records in the merged log here, ever.", PART),
    Metric("shiplog_merged_bytes_total", COUNTER, "Merged here, not copied from peers."),
    Metric("shiplog_sent_bytes_total", COUNTER, "Of logs, to subscribers and peers."),
    Metric(
        "shiplog_sent_records_total",
        COUNTER,
        "Of merged logs, to subscribers and Kafka consumers; a copy restarted counts again.",
    ),
    Metric("shiplog_partition_size_bytes", GAUGE, "Merged files that are kept.", PART),
    Metric("shiplog_connections", GAUGE, "Publishers' and readers' connections.", ("role",)),
    Metric(
        "shiplog_partition_lag_records",
        GAUGE,
        "Committed, and not merged here yet.",
        PART,
    ),
    Metric(
        "shiplog_node_lag_records",
        GAUGE,
        "Committed, and not merged durably by a node, in all partitions; as far as is known here: "
        "the leader knows it of all.",
        ("node",),
    ),
    Metric("shiplog_session_unmerged_bytes", GAUGE, "Here, and not merged yet.", ("session",)),
    Metric("shiplog_session_connected", GAUGE, "Whether it is shipped here.", ("session",)),
    Metric(
        "shiplog_session_last_received_timestamp_seconds",
        GAUGE,
        "When bytes of it came here last, since the node was started.",
        ("session",),
    ),
    Metric(
        "shiplog_subscriber_lag_bytes",
        GAUGE,
        "In the merged log here, and not sent; the slowest connection of an identity.",
        ("subscriber", *PART),
    ),
    Metric(
        "shiplog_group_lag_records",
        GAUGE,
        "Committed records that a consumer group has not committed.",
        ("group", *PART),
    ),
    Metric("shiplog_group_members", GAUGE, "Members of a consumer group.", ("group",)),
    Metric(
        "shiplog_append_to_merged_seconds",
        HISTOGRAM,
        "From a record's timestamp to its merging here.",
    ),
    Metric(
        "shiplog_append_to_read_seconds",
        HISTOGRAM,
        "From a record's timestamp to its being sent to a subscriber or a Kafka consumer.",
    ),
    Metric("shiplog_fsync_seconds", HISTOGRAM, "One sync of the disk.", ("files",)),
    Metric(
        "shiplog_raft_commit_seconds",
        HISTOGRAM,
        "From proposing an entry to applying it; on the leader.",
    ),
    Metric("shiplog_raft_term", GAUGE, "Raft's term."),
    Metric("shiplog_raft_is_leader", GAUGE, "Whether this node leads."),
    Metric("shiplog_raft_has_leader", GAUGE, "Whether this node knows a leader."),
    Metric("shiplog_raft_may_vote", GAUGE, "0: its directory was lost, and it may not."),
    Metric("shiplog_raft_elections_total", COUNTER, "Leaders seen elected since the start."),
    Metric("shiplog_raft_voters", GAUGE, "Voting members."),
    Metric("shiplog_raft_commit_index", GAUGE, "The last entry that is committed."),
    Metric("shiplog_raft_applied_index", GAUGE, "The last entry that is applied here."),
    Metric("shiplog_raft_log_entries", GAUGE, "Entries in the log, behind the last snapshot."),
    Metric("shiplog_raft_uncommitted_entries", GAUGE, "Entries in the log, not committed."),
    Metric("shiplog_raft_unsaved_batches", GAUGE, "Saves that wait for the disk."),
    Metric("shiplog_merge_queue_instructions", GAUGE, "Committed, and not executed here."),
    Metric("shiplog_merge_queue_bytes", GAUGE, "Of what they merge."),
    Metric("shiplog_intake_stopped", GAUGE, "1: the disk is full or fails; nothing is taken in."),
    Metric(
        "shiplog_divergences_total",
        COUNTER,
        "How often a majority had other bytes than this node since its start.",
    ),
    Metric("shiplog_partitions_halted", GAUGE, "Partitions that are not executed nor served."),
    Metric(
        "shiplog_partitions_missing_records",
        GAUGE,
        "Partitions that wait for records that no node has.",
    ),
    Metric("shiplog_damaged_files", GAUGE, "Damage at rest that no other node could mend."),
    Metric("shiplog_damaged_inputs", GAUGE, "Inputs that cannot be merged from here; leader."),
    Metric(
        "shiplog_events",
        GAUGE,
        "Events that the cluster remembers, such as a possible loss: `shiplog status`.",
        ("kind",),
    ),
    Metric("shiplog_archive_log_start_offset", GAUGE, "What is before is archived.", PART),
    Metric(
        "shiplog_archive_held_partitions", GAUGE, "Held back for consumer groups; on the leader."
    ),
    Metric("shiplog_archive_copies_waiting", GAUGE, "Segments to be copied first; leader."),
    Metric("shiplog_archive_copies_total", COUNTER, "Segments copied since the start; leader."),
    Metric("shiplog_archive_copies_failing", GAUGE, "1: copying fails, or is not configured."),
    Metric("shiplog_archive_pending_bytes", GAUGE, "Archived, and not truncated here yet."),
    Metric("shiplog_archive_policy_refused", GAUGE, "1: the policy file is not understood."),
    Metric("shiplog_archive_policies_differing", GAUGE, "Nodes with another policy than counts."),
)

SIDECAR = (
    Metric(
        "shiplog_sidecar_directory_faulty",
        GAUGE,
        "1: the directory is away, unwritable or full; see /readyz.",
    ),
)

PUBLISHER = (
    Metric("shiplog_sidecar_sessions", GAUGE, "Sessions that are shipped."),
    Metric(
        "shiplog_sidecar_sessions_not_shipped",
        GAUGE,
        "Session directories that cannot be shipped; see /status.",
    ),
    Metric(
        "shiplog_sidecar_session_stopped",
        GAUGE,
        "1: nothing of a session will be shipped any more, or its directory is faulty.",
        ("session",),
    ),
    Metric("shiplog_sidecar_session_connected_nodes", GAUGE, "That take it.", ("session",)),
    Metric("shiplog_sidecar_session_refused", GAUGE, "Inputs nodes refuse.", ("session",)),
    Metric("shiplog_sidecar_held_bytes", GAUGE, "Of files not released yet.", ("session",)),
    Metric(
        "shiplog_sidecar_budget_bytes", GAUGE, "What each session may hold, by the configuration."
    ),
)

SUBSCRIBER = (
    Metric("shiplog_sidecar_connected", GAUGE, "Whether a node is connected to."),
    Metric("shiplog_sidecar_copy_start_offset", GAUGE, "What is before is not here.", PART),
    Metric("shiplog_sidecar_copied_records_total", COUNTER, "In the copy, ever.", PART),
    Metric(
        "shiplog_sidecar_copy_lag_records",
        GAUGE,
        "In the cluster's log, as far as was heard, and not copied.",
        PART,
    ),
    Metric("shiplog_sidecar_copy_caught_up", GAUGE, "Whether the node had no more.", PART),
    Metric("shiplog_sidecar_copy_stopped", GAUGE, "1: it is copied no more; see /status.", PART),
)


def by_name(*groups: Iterable[Metric]) -> dict[str, Metric]:
    """Some of the metrics."""
    return {metric.name: metric for group in groups for metric in group}
