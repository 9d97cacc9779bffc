"""The write-ahead log of a member, for the replicas of all its Raft groups: bytes, and what they
add up to. Files are the driver's (sequencer.raft.member_log).
"""

from samelog.consensus.wal.codec import (
    MAX_FILE_BYTES,
    Base,
    Cut,
    ReplicaKey,
    SnapshotMark,
    Tagged,
    WalEncoder,
    WalHeader,
    WalRecord,
    WalScan,
    scan_wal,
)
from samelog.consensus.wal.group_log import GroupLog, carried_bytes
from samelog.consensus.wal.replay import LogReplay

__all__ = [
    "MAX_FILE_BYTES",
    "Base",
    "Cut",
    "GroupLog",
    "LogReplay",
    "ReplicaKey",
    "SnapshotMark",
    "Tagged",
    "WalEncoder",
    "WalHeader",
    "WalRecord",
    "WalScan",
    "carried_bytes",
    "scan_wal",
]
