"""What a merged log takes in place of records that no other copy has any more: what was set aside
here, or void batches.

Invariant: nothing is appended but where the log ends.
"""

from __future__ import annotations

from samelog.format.errors import CorruptBatch, NotContiguous
from samelog.format.void_batch import void_batches
from samelog.store.merged.log import MergedLog


def append_spare(log: MergedLog) -> bool:
    """Append a piece of what the log's `spares` have seen, if it goes on exactly here; whether any
    did. Raises as `MergedLog.append_copy`.
    """
    found = log.spares.find(log.next_offset, log.end())
    if found is None:
        return False
    base, data = found
    begins_segment = base == log.next_offset != log.end()[0]
    return _append_sound(log, *((base, 0) if begins_segment else log.end()), data)


def append_void(
    log: MergedLog, records: int, *, segment_base: int, epoch: int, timestamp: int
) -> int:
    """Put void batches in the place of records that no copy has; their bytes. `segment_base`: the
    segment they are in, which they may begin.

    Raises:
        NotContiguous: another segment is growing.
        NoSpace, DiskFault: nothing counts as written.
    """
    if segment_base == log.next_offset != log.end()[0]:
        log.roll()
    if segment_base != log.end()[0]:
        raise NotContiguous(f"{log.path}: void in {segment_base}, the end is {log.end()}")
    data = void_batches(records, timestamp)
    log.append(data, base_offset=log.next_offset, leader_epoch=epoch)
    return len(data)


def _append_sound(log: MergedLog, base: int, byte: int, data: bytes) -> bool:
    """Append up to the first wrong offset, which no CRC covers; whether there was anything."""
    try:
        log.append_copy(base, byte, data)
    except CorruptBatch as error:
        if error.position == 0:
            return False
        log.append_copy(base, byte, data[: error.position])
    return True
