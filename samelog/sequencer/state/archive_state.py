"""What archiving changes in the replicated state.

Invariant: a partition's log start never falls, and never passes what is planned; the first segment
that is kept does not begin above it; every file that is archived is named once, in order.
"""

from __future__ import annotations

from samelog.sequencer.state.commands import Archive
from samelog.sequencer.state.types import Partition

TARGETS_MAX = 1 << 16


def archive(partition: Partition, targets: list[str], command: Archive) -> str | None:
    """Raise the log start; why that cannot be, if so. What is archived already stays so. Where
    copies are is remembered in `targets`, all there ever were.
    """
    if not 0 <= command.segment <= command.offset <= partition.next_offset:
        return f"segment {command.segment}, offset {command.offset} of {partition.next_offset}"
    if not _follow(partition.start_segment, command):
        return f"files from {partition.start_segment} to {command.segment} are not all named"
    if command.copy_url and command.copy_url not in targets:
        if len(targets) == TARGETS_MAX:
            return f"copies are at {TARGETS_MAX} targets already"
        targets.append(command.copy_url)
    partition.log_start = max(partition.log_start, command.offset)
    if command.files:
        partition.start_segment = command.segment
        partition.start_checksum = command.checksum
        partition.rolls = [roll for roll in partition.rolls if roll[0] > command.segment]
    return None


def _follow(start: int, command: Archive) -> bool:
    """Whether the files are those from the first one that is kept to the new one; without files
    nothing is truncated.
    """
    if not command.files:
        return command.segment <= start
    for file in command.files:
        if file.base != start or file.next_offset <= start:
            return False
        start = file.next_offset
    return start == command.segment
