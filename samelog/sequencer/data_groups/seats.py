"""Which replica of a data group this directory has, and whether that has forgotten nothing.

`raft/<group>/replica.json` says so, before the replica says anything, and after it has ended.
`trusted` is the number of times that the directory had become suspect (node.json) when the replica
last counted: if it has become so again, the replica is suspect too.

Invariant: a replica that another directory of this member may have had begins as a suspect; it
counts from an entry of its own group on that names this life.
"""

from __future__ import annotations

import os

import msgspec

from samelog.format.checked_json import encode_checked
from samelog.format.numbers import Unsigned32
from samelog.placement.values import PlacedGroup, PlacedReplica, Placement
from samelog.sequencer.building import Seat
from samelog.sequencer.cluster.node_dir import NodeRecord
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.files import FileSystem
from samelog.store.disk.json_files import checked_text

FORMAT_VERSION = 1
LIMIT_BYTES = 4096
NEVER = -1


class ReplicaRecord(msgspec.Struct, frozen=True):
    """The contents of replica.json."""

    format_version: int
    replica: Unsigned32
    trusted: int
    is_ended: bool = False
    """The table named it no more, and its files are gone: it never begins again."""


class SeatFile:
    """The replica.json of one group."""

    def __init__(self, fs: FileSystem, raft_directory: str, group: int) -> None:
        self._fs = fs
        self._raft_directory = raft_directory
        self._directory = os.path.join(raft_directory, str(group))
        self._path = os.path.join(self._directory, "replica.json")

    def read(self) -> ReplicaRecord | None:
        """None: no replica of the group has begun here. Raises RaftStoreError."""
        if not self._fs.exists(self._path):
            return None
        try:
            data = checked_text(self._path, self._fs.read_file(self._path, LIMIT_BYTES))
            record = msgspec.json.decode(data, type=ReplicaRecord)
        except ValueError as error:
            raise RaftStoreError(f"{self._path} is unreadable ({error}): restore it") from error
        if record.format_version != FORMAT_VERSION:
            text = f"{self._path}: format version {record.format_version}"
            raise RaftStoreError(f"{text}; this program reads {FORMAT_VERSION}")
        return record

    def write(self, record: ReplicaRecord) -> None:
        """Replace it, durably."""
        if not self._fs.exists(self._directory):
            self._fs.make_directory(self._directory)
            self._fs.sync_directory(self._raft_directory)
        self._fs.write_atomically(self._path, encode_checked(record))

    def bury(self, record: ReplicaRecord) -> ReplicaRecord:
        """The replica is gone, and what else it had here: what is left to say."""
        ended = msgspec.structs.replace(record, is_ended=True)
        self._fs.remove_tree(self._directory)
        self.write(ended)
        return ended


def is_overtaken(known: ReplicaRecord, group: PlacedGroup, own: int, table: Placement) -> bool:
    """Whether the table knows of this member's replica, and that it is not wanted any more. A table
    that lags behind, or was recovered from one that did, does not know of it.
    """
    if not table.skipped.has_given("replica", known.replica, table.next_replica):
        return False
    replica = group.replica_of(own)
    return replica is None or replica.replica > known.replica


def has_ended(known: ReplicaRecord | None, replica: int) -> bool:
    """Whether a replica of the group never begins here again, by replica.json alone."""
    if known is None:
        return False
    return replica < known.replica or (known.is_ended and replica == known.replica)


def is_stale(known: ReplicaRecord | None, replica: PlacedReplica) -> bool:
    """Whether the table names a replica that has ended here: it lags behind."""
    return known is not None and known.is_ended and known.replica >= replica.replica


def begun(
    known: ReplicaRecord | None, replica: PlacedReplica, table: Placement, record: NodeRecord
) -> ReplicaRecord:
    """What replica.json is to say before the replica says anything. Raises RaftStoreError."""
    if known is None or (known.is_ended and known.replica < replica.replica):
        is_sure = record.may_vote and table.is_first(replica) and _is_first(replica, record)
        trusted = record.suspicions.times if is_sure else NEVER
        return ReplicaRecord(FORMAT_VERSION, replica.replica, trusted)
    if known.replica != replica.replica:
        text = f"replica {known.replica} was here, and the table says {replica.replica}"
        raise RaftStoreError(f"{text}: its files are kept; move them away to start over")
    return known


def _is_first(replica: PlacedReplica, record: NodeRecord) -> bool:
    """Whether no other directory of the member can have had a replica, by this directory alone."""
    times, sure_after = record.suspicions
    return not times or (sure_after is not None and replica.made_at > sure_after)


def counted(known: ReplicaRecord, record: NodeRecord) -> ReplicaRecord:
    """What replica.json says of a replica that counts, whatever it may have forgotten."""
    return msgspec.structs.replace(known, trusted=record.suspicions.times)


def counts_as(known: ReplicaRecord, replica: int, record: NodeRecord) -> bool:
    """Whether a replica of this number may run, and has forgotten nothing."""
    is_sure = known.trusted == record.suspicions.times and not record.doubtful
    return is_sure and known.replica == replica and not known.is_ended


def seat_of(group: PlacedGroup, known: ReplicaRecord, record: NodeRecord) -> Seat:
    """As whom the replica takes part."""
    return Seat(
        group.number,
        known.replica,
        group.founders if group.is_founder(record.number) else (),
        may_vote=known.trusted == record.suspicions.times,
        may_rest=True,
    )
