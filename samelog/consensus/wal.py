"""The bytes of a write-ahead log file of the consensus log (docs/raft.md, "Log files"). No file is
touched here.

Each record's checksum is seeded with the one before it and with the file's own header, so that a
record left over from an earlier life of the same disk blocks is never taken for one of this file.
Each record also says how much of the file was durable when it was written. That settles what a bad
record means: if a later, valid record says that the place was durable already, the disk lost what
it had promised (never cut); otherwise a write was torn by a crash and nobody was told that it
happened (cut).

Invariant: scanning what was encoded gives equal records; no record after a bad one is ever
returned.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from samelog.consensus.errors import CorruptRecord, UnfinishedFile
from samelog.consensus.types import NO_NODE, Entry, FileOwner, HardState
from samelog.format._kernels import crc32c
from samelog.format.errors import UnsupportedFormat

MAGIC = b"SAMERAFT"
FORMAT_VERSION = 1
MAX_RECORD_BYTES = 64 << 20
MAX_FILE_BYTES = (1 << 32) - 1
MAX_CLUSTER_BYTES = 1024

_FIXED = struct.Struct(
    ">8sHHIIIQQ"
)  # magic, version, cluster bytes, group, node, replica, sequence, first index
_CRC = struct.Struct(">I")
_FRAME = struct.Struct(">IIBI")  # length of what follows the checksum, checksum, kind, synced
_LENGTH = struct.Struct(">I")
_TAIL = struct.Struct(">BI")  # kind, synced
_ENTRY = struct.Struct(">QQ")  # index, term
_HARD_STATE = struct.Struct(">QIQ")  # term, vote or NO_NODE, commit
_MARK = struct.Struct(">QQ")  # last index, last term
_PREFIX_BYTES = 8  # length and checksum
_MAY_BE_RECORD = re.compile(rb"(?=[\x00-\x04].{7}[\x01-\x03])", re.DOTALL)


class Kind(IntEnum):
    """What a record holds."""

    ENTRY = 1
    HARD_STATE = 2
    SNAPSHOT_MARK = 3


class SnapshotMark(msgspec.Struct, frozen=True, gc=False):
    """A durable snapshot of everything up to (last_index, last_term) exists from here on."""

    last_index: int
    last_term: int


WalRecord = Entry | HardState | SnapshotMark


@dataclass(frozen=True, slots=True)
class WalHeader:
    """Whose file it is. `sequence` numbers the node's log files, no number is used twice.

    `first_index`: no entry in the file is below it.
    """

    owner: FileOwner
    sequence: int
    first_index: int


@dataclass(frozen=True, slots=True)
class WalScan:
    """The valid records from the beginning of a file, and what stopped the scan.

    end: byte behind the last of them. torn: bytes of an unfinished write follow; cut the file at
    `end`. corrupt: why the record at `end`, which had been durable, is unreadable; nothing may be
    cut. chain: where the checksums stand, for WalEncoder.resume.
    """

    header: WalHeader
    records: list[WalRecord]
    end: int
    torn: bool
    corrupt: str | None
    chain: int


class WalEncoder:
    """Encodes one file from its header on, or from the end of a scan. `position`: bytes so far."""

    def __init__(self, header: WalHeader) -> None:
        self.header_bytes = _encode_header(header)
        self.position = len(self.header_bytes)
        self._salt: int = _CRC.unpack(self.header_bytes[-4:])[0]
        self._chain = 0
        self._before = self.position, 0
        """Position and chain before what was encoded last."""

    @classmethod
    def resume(cls, scan: WalScan) -> WalEncoder:
        """Go on behind the last valid record of a scanned file."""
        encoder = cls(scan.header)
        encoder.position = scan.end
        encoder._chain = scan.chain
        return encoder

    def take_back(self) -> None:
        """What was encoded last was not written."""
        self.position, self._chain = self._before

    def encode(self, records: Iterable[WalRecord], *, synced: int) -> bytes:
        """The bytes of `records`, to be written at `position`.

        synced: the first so many bytes of the file are known to be durable (by a sync that ended
        before now). Raises ValueError if a record or the file gets too large.
        """
        if not 0 <= synced <= self.position:
            raise ValueError(f"{synced} bytes cannot be durable of {self.position}")
        parts, chain = [], self._chain
        for record in records:
            kind, body = _encode_body(record)
            rest = _TAIL.pack(kind, synced) + body
            if len(rest) > MAX_RECORD_BYTES:
                raise ValueError(f"a record of {len(rest)} bytes is too large for the log")
            length = _LENGTH.pack(len(rest))
            chain = crc32c(rest, crc32c(length, chain ^ self._salt))
            parts.append(length + _CRC.pack(chain) + rest)
        encoded = b"".join(parts)
        if self.position + len(encoded) > MAX_FILE_BYTES:
            raise ValueError("a log file would pass its largest size")
        self._before = self.position, self._chain
        self.position, self._chain = self.position + len(encoded), chain
        return encoded


def scan_wal(data: bytes | bytearray | memoryview) -> WalScan:
    """Read a whole file.

    Raises UnfinishedFile if it ends within its header (the newest file may, and can be removed),
    CorruptRecord if the header is damaged, UnsupportedFormat for other versions.
    """
    view = memoryview(data)
    header, position, salt = _decode_header(view)
    records: list[WalRecord] = []
    chain = 0
    while True:
        crc = _checksum(view, position, chain ^ salt)
        if crc is None:
            break
        length, _, kind, _ = _FRAME.unpack_from(view, position)
        record = _decode_body(
            kind, view[position + _FRAME.size : position + _PREFIX_BYTES + length]
        )
        records.append(record)
        position += _PREFIX_BYTES + length
        chain = crc
    clean = not bytes(view[position:]).strip(b"\0")
    proof = None if clean else _find_proof(view, position, chain, salt)
    torn = not clean and proof is None
    corrupt = (
        None if proof is None else f"bad record at byte {position}, but byte {proof} follows it"
    )
    return WalScan(header, records, position, torn, corrupt, chain)


def _encode_header(header: WalHeader) -> bytes:
    owner = header.owner
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
        header.sequence,
        header.first_index,
    )
    return fixed + cluster + _CRC.pack(crc32c(fixed + cluster))


def _decode_header(view: memoryview) -> tuple[WalHeader, int, int]:
    """The header, its size, its checksum."""
    size = _header_bytes(view)
    body = bytes(view[: size - _CRC.size])
    (crc,) = _CRC.unpack_from(view, len(body))
    if crc32c(body) != crc:
        raise CorruptRecord("the header of a log file is damaged")
    _, _, _, group, node, replica, sequence, first_index = _FIXED.unpack_from(view)
    cluster = body[_FIXED.size :].decode(errors="replace")
    owner = FileOwner(cluster, group, node, replica)
    return WalHeader(owner, sequence, first_index), size, crc


def _header_bytes(view: memoryview) -> int:
    """How long the header says it is."""
    if len(view) < _FIXED.size or not bytes(view).strip(b"\0"):
        raise UnfinishedFile("a log file ends within its header")
    magic, version, cluster_bytes, *_ = _FIXED.unpack_from(view)
    if magic != MAGIC:
        raise CorruptRecord("not a file of the consensus log")
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(f"log file of format version {version}; this program reads 1")
    size: int = _FIXED.size + cluster_bytes + _CRC.size
    if cluster_bytes > MAX_CLUSTER_BYTES:
        raise CorruptRecord("the header of a log file is damaged")
    if len(view) < size:
        raise UnfinishedFile("a log file ends within its header")
    return size


def _encode_body(record: WalRecord) -> tuple[Kind, bytes]:
    if isinstance(record, Entry):
        return Kind.ENTRY, _ENTRY.pack(record.index, record.term) + record.data
    if isinstance(record, HardState):
        vote = NO_NODE if record.vote is None else record.vote
        return Kind.HARD_STATE, _HARD_STATE.pack(record.term, vote, record.commit)
    return Kind.SNAPSHOT_MARK, _MARK.pack(record.last_index, record.last_term)


def _decode_body(kind: int, body: memoryview) -> WalRecord:
    """A body whose checksum is right, so anything odd was written by another version."""
    try:
        if kind == Kind.ENTRY:
            index, term = _ENTRY.unpack_from(body)
            return Entry(index, term, bytes(body[_ENTRY.size :]))
        if kind == Kind.HARD_STATE:
            term, vote, commit = _HARD_STATE.unpack(body)
            return HardState(term, None if vote == NO_NODE else vote, commit)
        if kind == Kind.SNAPSHOT_MARK:
            return SnapshotMark(*_MARK.unpack(body))
    except struct.error as error:
        raise UnsupportedFormat(f"log record of kind {kind}: {error}") from error
    raise UnsupportedFormat(f"log record of unknown kind {kind}")


def _checksum(view: memoryview, position: int, seed: int) -> int | None:
    """The checksum of the record at `position` if it is whole and valid there, else None."""
    if len(view) - position < _FRAME.size:
        return None
    length, crc, _, _ = _FRAME.unpack_from(view, position)
    stop = position + _PREFIX_BYTES + length
    if not _TAIL.size <= length <= MAX_RECORD_BYTES or stop > len(view):
        return None
    valid = crc == _computed(view, position, stop, seed)
    return crc if valid else None


def _computed(view: memoryview, start: int, stop: int, seed: int) -> int:
    return crc32c(view[start + _PREFIX_BYTES : stop], crc32c(view[start : start + 4], seed))


def _find_proof(view: memoryview, bad: int, chain: int, salt: int) -> int | None:
    """Where a valid record begins that says that byte `bad` was durable; None if there is none.

    The record before it need not be valid, but its checksum field must be readable, for it is the
    seed: either the bad record's own, or that of anything between that has the shape of a record
    and ends where this one begins.
    """
    data = bytes(view)
    seeds_at, anywhere = _seeds_behind_bad(view, bad, chain ^ salt)
    for found in _MAY_BE_RECORD.finditer(data, bad + 1):
        start = found.start()
        if len(data) - start < _FRAME.size:
            break
        length, crc, _, synced = _FRAME.unpack_from(data, start)
        stop = start + _PREFIX_BYTES + length
        if bad < synced <= start and stop <= len(data):
            for seed in (*anywhere, *seeds_at.get(start, ())):
                if _checksum(view, start, seed ^ salt) is not None:
                    return start
        seeds_at[stop].append(crc)
    return None


def _seeds_behind_bad(
    view: memoryview, bad: int, seed: int
) -> tuple[defaultdict[int, list[int]], list[int]]:
    """What may seed the record behind the bad one: at the place the bad one names, and anywhere."""
    seeds_at: defaultdict[int, list[int]] = defaultdict(list)
    if len(view) - bad < _FRAME.size:
        return seeds_at, []
    length, crc, _, _ = _FRAME.unpack_from(view, bad)
    stop = bad + _PREFIX_BYTES + length
    if stop <= len(view) and length <= MAX_RECORD_BYTES:
        seeds_at[stop].append(_computed(view, bad, stop, seed))
    return seeds_at, [crc]


@dataclass(slots=True)
class Recovered:
    """What the records of all log files, read in order, add up to."""

    hard_state: HardState
    entries: list[Entry]
    mark: SnapshotMark | None
    replaced_log: bool = False
    """Whether a snapshot took the place of entries, so that the next one must follow its mark."""


def replay(records: Iterable[WalRecord]) -> Recovered:
    """Fold records into a node's state: later entries replace earlier ones from their index on.

    Where the first entry stands cannot be judged here: what was before it, marks of later snapshots
    apart, may have gone with files that were removed. Raises CorruptRecord if an entry is missing
    between two that are there.
    """
    recovered = Recovered(HardState(0, None, 0), [], None)
    for record in records:
        if isinstance(record, Entry):
            _replay_entry(recovered, record)
        elif isinstance(record, HardState):
            recovered.hard_state = record
        else:
            _replay_mark(recovered, record)
    return recovered


def mark_lost(recovered: Recovered, last_index: int, last_term: int) -> SnapshotMark | None:
    """The mark of a snapshot that was kept when a loss of power took the end of the log with it: to
    be written before the entries that follow it, or these would follow a gap. None: the log has the
    snapshot's end, or its mark.
    """
    known, entries = recovered.mark, recovered.entries
    if known is not None and known.last_index >= last_index:
        return None
    if not entries:
        return SnapshotMark(last_index, last_term) if recovered.replaced_log else None
    position = last_index - entries[0].index
    is_there = position < len(entries) and entries[position].term == last_term
    return None if position < 0 or is_there else SnapshotMark(last_index, last_term)


def _replay_entry(recovered: Recovered, entry: Entry) -> None:
    entries = recovered.entries
    if entries:
        next_index = entries[-1].index + 1
    elif recovered.replaced_log and recovered.mark is not None:
        next_index = recovered.mark.last_index + 1
    else:
        next_index = entry.index
    if entry.index > next_index:
        raise CorruptRecord(f"entries {next_index} to {entry.index - 1} are missing from the log")
    if entries and entry.index < next_index:
        del entries[max(0, entry.index - entries[0].index) :]
    entries.append(entry)


def _replay_mark(recovered: Recovered, mark: SnapshotMark) -> None:
    """A snapshot whose end is not in the log replaced the log."""
    recovered.mark = mark
    entries = recovered.entries
    position = mark.last_index - entries[0].index if entries else -1
    if position < 0:
        return
    if position >= len(entries) or entries[position].term != mark.last_term:
        entries.clear()
        recovered.replaced_log = True
