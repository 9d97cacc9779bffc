"""The replicated command that archives, and what it changes in the replicated state.

Invariant: a partition's log start never falls, and never passes what is planned; the first segment
that is kept does not begin above it; every segment that is archived is named once, in order.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec

from samelog.archiver.compaction import Compactions
from samelog.format.numbers import Unsigned32

TARGETS_MAX = 1 << 16


class ArchivedSegment(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One segment as it was when it was archived; times in ms, -1: none, or not known.
    `copied_ms`: since when the target of the command has a verified copy, -1: it has none.
    """

    base: int
    next_offset: int
    size: int
    first_ms: int
    last_ms: int
    rolled_ms: int
    sha256: bytes
    copied_ms: int = -1


class ArchiveCommand(
    msgspec.Struct,
    frozen=True,
    array_like=True,
    tag_field="t",
    tag=15,
    forbid_unknown_fields=True,
):
    """Records of a partition below `offset` are archived: nobody reads them any more. Every node
    truncates the segments below `segment`, where the running checksum is `checksum`: these
    `files`, one behind the other, from the first one that was kept so far. Those that were copied
    are at `copy_url`, in `copy_formats`. A command of the replicated state machine.
    """

    needs: ClassVar[int] = 1
    partition: Unsigned32
    offset: int
    segment: int
    checksum: int
    at_ms: int
    reason: str
    files: list[ArchivedSegment] = msgspec.field(default_factory=list)
    copy_url: str = ""
    copy_formats: list[str] = msgspec.field(default_factory=list)


class ArchivedPartition(Protocol):
    """What the replicated state has of a partition, as far as archiving changes it."""

    next_offset: int
    log_start: int
    start_segment: int
    start_checksum: int
    rolls: tuple[tuple[int, int], ...]

    @property
    def compactions(self) -> Compactions: ...


def apply_archive(
    partition: ArchivedPartition, targets: list[str], command: ArchiveCommand
) -> str | None:
    """Raise the log start; why that cannot be, if so. What is archived already stays so. Where
    copies are is remembered in `targets`, all there ever were.
    """
    if not 0 <= command.segment <= command.offset <= partition.next_offset:
        return f"segment {command.segment}, offset {command.offset} of {partition.next_offset}"
    problem = _problem_with_files(partition, command)
    if problem is not None:
        return problem
    if command.copy_url and command.copy_url not in targets:
        if len(targets) == TARGETS_MAX:
            return f"copies are at {TARGETS_MAX} targets already"
        targets.append(command.copy_url)
    partition.log_start = max(partition.log_start, command.offset)
    if command.files:
        partition.start_segment = command.segment
        partition.start_checksum = command.checksum
        partition.rolls = tuple(roll for roll in partition.rolls if roll[0] > command.segment)
        partition.compactions.forget_below(command.segment)
    return None


def _problem_with_files(partition: ArchivedPartition, command: ArchiveCommand) -> str | None:
    if not _names_all_segments(partition.start_segment, command):
        return f"files from {partition.start_segment} to {command.segment} are not all named"
    facts = [(each.base, each.next_offset, each.size) for each in command.files]
    return partition.compactions.problem_with(facts, command.at_ms) if facts else None


def _names_all_segments(start: int, command: ArchiveCommand) -> bool:
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
