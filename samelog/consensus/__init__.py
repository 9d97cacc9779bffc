"""Raft, sans I/O: a deterministic core that decides, driven by whoever owns clock, disk and
network.

`Raft` takes messages, time and proposals and gives batches of `Effects`; docs/raft.md is the guide
for drivers. `wal` and `snapshot_file` are the codecs of what a driver keeps on disk.
"""

from samelog.consensus import messages
from samelog.consensus.effects import Effects
from samelog.consensus.errors import (
    Busy,
    ChangePending,
    ConsensusError,
    CorruptRecord,
    HistoryConflict,
    MalformedMessage,
    NotLeader,
    UnfinishedFile,
)
from samelog.consensus.membership import (
    Configuration,
    Membership,
    decode_configuration,
    is_configuration,
)
from samelog.consensus.messages import (
    GroupMessages,
    decode_groups,
    encode_groups,
)
from samelog.consensus.progress import ProgressState, ProgressStatus
from samelog.consensus.raft import Raft
from samelog.consensus.types import Entry, HardState, NodeId, RaftConfig, Role, SaveToken, Snapshot
from samelog.format.errors import InvariantError

__all__ = [
    "Busy",
    "ChangePending",
    "Configuration",
    "ConsensusError",
    "CorruptRecord",
    "Effects",
    "Entry",
    "GroupMessages",
    "HardState",
    "HistoryConflict",
    "InvariantError",
    "MalformedMessage",
    "Membership",
    "NodeId",
    "NotLeader",
    "ProgressState",
    "ProgressStatus",
    "Raft",
    "RaftConfig",
    "Role",
    "SaveToken",
    "Snapshot",
    "UnfinishedFile",
    "decode_configuration",
    "decode_groups",
    "encode_groups",
    "is_configuration",
    "messages",
]
