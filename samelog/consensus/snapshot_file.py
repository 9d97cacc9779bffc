"""The bytes of a snapshot file (docs/raft.md, "Snapshot files"). No file is touched here.

Invariant: decoding gives exactly what was encoded, or an error; never part of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from samelog.consensus.errors import CorruptRecord
from samelog.consensus.types import Snapshot
from samelog.format._kernels import crc32c
from samelog.format.errors import UnsupportedFormat

MAGIC = b"SAMESNAP"
FORMAT_VERSION = 1
MAX_CLUSTER_BYTES = 1024

# magic, version, cluster bytes, group, last index, last term, voters, learners,
# checksum of the data, bytes of data
_FIXED = struct.Struct(">8sHHIQQBBIQ")
_CRC = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot and whose it is."""

    cluster: str
    group: int
    snapshot: Snapshot


def encode_snapshot(stored: StoredSnapshot) -> bytes:
    """The whole file. Raises ValueError if the cluster's name is too long."""
    snapshot, cluster = stored.snapshot, stored.cluster.encode()
    if len(cluster) > MAX_CLUSTER_BYTES:
        raise ValueError("the cluster's name is too long")
    fixed = _FIXED.pack(
        MAGIC,
        FORMAT_VERSION,
        len(cluster),
        stored.group,
        snapshot.last_index,
        snapshot.last_term,
        len(snapshot.voters),
        len(snapshot.learners),
        crc32c(snapshot.data),
        len(snapshot.data),
    )
    header = fixed + cluster + bytes(snapshot.voters) + bytes(snapshot.learners)
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
    _, _, cluster_bytes, group, last_index, last_term, voters, learners, crc, data_bytes = fields
    header_bytes = _FIXED.size + cluster_bytes + voters + learners
    header = bytes(view[:header_bytes])
    if len(view) < header_bytes + _CRC.size or _CRC.unpack_from(view, header_bytes)[0] != crc32c(
        header
    ):
        raise CorruptRecord("the header of a snapshot file is damaged")
    body = bytes(view[header_bytes + _CRC.size :])
    if len(body) != data_bytes or crc32c(body) != crc:
        raise CorruptRecord("the data of a snapshot file is damaged or incomplete")
    members = header[_FIXED.size + cluster_bytes :]
    snapshot = Snapshot(
        last_index, last_term, tuple(members[:voters]), tuple(members[voters:]), body
    )
    cluster = header[_FIXED.size : _FIXED.size + cluster_bytes].decode(errors="replace")
    return StoredSnapshot(cluster, group, snapshot)
