"""A compacted segment that came from another node: checked, and given its indexes.

Invariant: what passes is the segment that was asked for, to the byte, and durable.
"""

from __future__ import annotations

import hashlib

from samelog.format.compaction import CompactedSegment
from samelog.format.file_names import INDEX, LOG, TIME_INDEX
from samelog.format.segment import GrowingSegment
from samelog.store.disk.files import FileSystem
from samelog.store.merged.segment_files import write_entries
from samelog.store.merged.segment_walk import RunningChecksum, walk_into

PIECE_BYTES = 1 << 20


def take_up(fs: FileSystem, path: str, wanted: CompactedSegment) -> bool:
    """Whether the file is the segment that is wanted; its indexes are beside it then. Raises
    DiskFault.
    """
    if _sha256(fs, path) != wanted.sha256:
        return False
    segment, file = GrowingSegment(wanted.base), fs.open(path, writable=True)
    try:
        checksum = RunningChecksum(0, wanted.begin_checksum)
        walk_into(segment, file, file.size(), checksum)
        file.datasync()
    finally:
        file.close()
    is_it = checksum.value == wanted.bytes_checksum
    if not is_it or segment.seal(wanted.sealed.checksum) != wanted.sealed:
        return False
    for suffix, index in ((INDEX, segment.offsets), (TIME_INDEX, segment.times)):
        beside = fs.open(path.removesuffix(LOG) + suffix, create=True)
        try:
            write_entries(index, beside)
            beside.datasync()
        finally:
            beside.close()
    return True


def _sha256(fs: FileSystem, path: str) -> bytes:
    digest, file, position = hashlib.sha256(), fs.open(path), 0
    try:
        while data := file.pread(PIECE_BYTES, position):
            digest.update(data)
            position += len(data)
    finally:
        file.close()
    return digest.digest()
