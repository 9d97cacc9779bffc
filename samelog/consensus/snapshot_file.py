"""The bytes of a snapshot file (docs/raft.md, "Snapshot files"). No file is touched here.

Invariant: decoding gives exactly what was encoded, or an error; never part of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from samelog.consensus.errors import CorruptRecord
from samelog.consensus.types import FileOwner, Snapshot
from samelog.format._kernels import crc32c
from samelog.format.errors import UnsupportedFormat

MAGIC = b"SAMESNAP"
FORMAT_VERSION = 1
MAX_CLUSTER_BYTES = 1024

# magic, version, cluster bytes, group, node, replica, last index, last term, voters, learners,
# checksum of the data, bytes of data
_FIXED = struct.Struct(">8sHHIIIQQIIIQ")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot and whose it is."""

    owner: FileOwner
    snapshot: Snapshot


def encode_snapshot(stored: StoredSnapshot) -> bytes:
    """The whole file. Raises ValueError if the cluster's name is too long."""
    snapshot, owner = stored.snapshot, stored.owner
    cluster = owner.cluster.encode()
    if len(cluster) > MAX_CLUSTER_BYTES:
        raise ValueError("the cluster's name is too long")
    fixed = _FIXED.pack(
        MAGIC,
        FORMAT_VERSION,
        len(cluster),
        owner.group,
        owner.node,
        owner.replica,
        snapshot.last_index,
        snapshot.last_term,
        len(snapshot.voters),
        len(snapshot.learners),
        crc32c(snapshot.data),
        len(snapshot.data),
    )
    members = (*snapshot.voters, *snapshot.learners)
    header = fixed + cluster + struct.pack(f">{len(members)}I", *members)
    return header + _CRC.pack(crc32c(header)) + snapshot.data


def decode_snapshot(data: bytes | bytearray | memoryview) -> StoredSnapshot:
    """A file's snapshot. Raises CorruptRecord, or UnsupportedFormat for other versions."""
    view = memoryview(data)
    if len(view) < _FIXED.size or bytes(view[:8]) != MAGIC:
        raise CorruptRecord("not a snapshot file")
    fields = _FIXED.unpack_from(view)
    if fields[1] != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"snapshot file of format version {fields[1]}; this program reads 1"
        )
    _, _, cluster_bytes, *numbers, voters, learners, crc, data_bytes = fields
    group, node, replica, last_index, last_term = numbers
    header_bytes = _FIXED.size + cluster_bytes + 4 * (voters + learners)
    header = bytes(view[:header_bytes])
    if len(view) < header_bytes + _CRC.size or _CRC.unpack_from(view, header_bytes)[0] != crc32c(
        header
    ):
        raise CorruptRecord("the header of a snapshot file is damaged")
    body = bytes(view[header_bytes + _CRC.size :])
    if len(body) != data_bytes or crc32c(body) != crc:
        raise CorruptRecord("the data of a snapshot file is damaged or incomplete")
    members = struct.unpack_from(f">{voters + learners}I", header, _FIXED.size + cluster_bytes)
    snapshot = Snapshot(last_index, last_term, members[:voters], members[voters:], body)
    cluster = header[_FIXED.size : _FIXED.size + cluster_bytes].decode(errors="replace")
    return StoredSnapshot(FileOwner(cluster, group, node, replica), snapshot)
