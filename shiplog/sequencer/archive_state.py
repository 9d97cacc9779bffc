"""What archiving changes in the replicated state.

Invariant: a partition's log start never falls, and never passes what is planned; the first segment
that is kept holds it.
"""

from __future__ import annotations

from shiplog.sequencer.commands import Archive
from shiplog.sequencer.state_types import Partition


def archive(partition: Partition, command: Archive) -> str | None:
    """Raise the log start; why that cannot be, if so. What is archived already stays so."""
    if not 0 <= command.segment <= command.offset <= partition.next_offset:
        return f"segment {command.segment}, offset {command.offset} of {partition.next_offset}"
    partition.log_start = max(partition.log_start, command.offset)
    if command.segment > partition.start_segment:
        partition.start_segment = command.segment
        partition.start_checksum = command.checksum
        partition.rolls = [roll for roll in partition.rolls if roll[0] > command.segment]
    return None
