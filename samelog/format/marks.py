"""Durable marks: the contents of the small files that say up to where a log is known to be on disk.

Layout of a record: one line of JSON, then one line with the CRC-32C of the first (without its line
feed) as eight hexadecimal digits. Most files have one record; that of a node's session logs grows
by one each time. Marks are written lazily, so they lag; they never lead, because they are written
only after a finished sync. A record that cannot be read counts as no mark at all.

Invariant: what a mark vouches for was durable when the mark was written.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.directory_files import PartitionFile
from samelog.format.segment import SealedSegment

MARKS_FORMAT_VERSION = 1

_Marks = TypeVar("_Marks", bound="Marks")


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What all marks files have in common."""

    format_version: int = MARKS_FORMAT_VERSION


class RunMark(msgspec.Struct, frozen=True, array_like=True):
    """Up to (roll, byte) a run is durable; a batch begins at `hint`, shortly before."""

    run: int
    roll: int
    byte: int
    hint: int


class InputMarks(Marks, frozen=True, kw_only=True):
    """The marks file of one partition of a session."""

    runs: list[RunMark]


class InputMark(msgspec.Struct, frozen=True, array_like=True):
    """The marks of one input at a node."""

    number: int
    """Of the input, in its group."""
    whose: str
    """Session and partition: after a recovery the number may be another input's."""
    runs: list[RunMark]


class MarksRecord(Marks, frozen=True, kw_only=True):
    """One record in the marks file of a node's session logs; the last one of an input counts."""

    inputs: list[InputMark]
    is_complete: bool
    """Whether an input without marks is new; else its marks may have been lost."""


class LogCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """The end of a merged log at some moment: byte `byte` of segment `base`."""

    offset: int
    base: int
    byte: int
    checksum: int
    """CRC-32C of all merged bytes up to here."""
    open: tuple[tuple[int, int], ...] | None = ()
    """(producer id, first offset) of the transactions that are open here; None: not known."""


class IndexMark(msgspec.Struct, frozen=True, array_like=True):
    """The first entries of a segment's index files, as they were."""

    base: int
    index_entries: int
    index_checksum: int
    time_entries: int
    time_checksum: int


class MergedMarks(Marks, frozen=True, kw_only=True):
    """The marks file of a merged partition."""

    durable: LogCheckpoint
    sealed: list[SealedSegment]
    """Wholly durable segments, in order."""
    indexes: list[IndexMark]
    """Of the segments from the durable position on."""
    whose: PartitionFile | None = None
    """What partition.json said, which is made of it again if it is damaged; None: there is none."""


def encode_marks(marks: Marks) -> bytes:
    """The contents of a marks file."""
    line = msgspec.json.encode(marks)
    return b"%s\n%08x\n" % (line, kernels.crc32c(line))


def decode_marks(data: bytes, kind: type[_Marks]) -> _Marks | None:
    """The marks in a file's contents; None when they cannot be trusted."""
    line, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % kernels.crc32c(line):
        return None
    try:
        marks = msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return marks if marks.format_version == MARKS_FORMAT_VERSION else None


class FoundRecords(NamedTuple):
    """What a file of session marks holds."""

    records: list[MarksRecord]
    """Those that are intact, in order."""
    end: int
    """Where the intact records from the start of the file end."""
    is_damaged: bool
    """Whether an intact record is behind bytes that are none: these are no torn tail."""


def find_session_marks(data: bytes) -> FoundRecords:
    """Read a file of session marks."""
    lines = data.split(b"\n")
    records: list[MarksRecord] = []
    end = at = 0
    is_damaged = is_broken = False
    while at + 2 < len(lines):
        size = len(lines[at]) + len(lines[at + 1]) + 2
        found = decode_marks(b"%s\n%s\n" % (lines[at], lines[at + 1]), MarksRecord)
        if found is None:
            is_broken, at = True, at + 1
            continue
        records.append(found)
        is_damaged, at = is_broken, at + 2
        end += 0 if is_broken else size
    return FoundRecords(records, end, is_damaged)
