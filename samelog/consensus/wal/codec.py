"""The bytes of a file of the write-ahead log (docs/formats.md, "Write-ahead log"). No file is
touched here.

Each record's checksum is seeded with the one before it and with the file's own header, so that a
record left over from an earlier life of the same disk blocks is never taken for one of this file.
Each record also says how much of the file was durable when it was written. That settles what a bad
record means: if a later, valid record says that the place was durable already, the disk lost what
it had promised (never cut, but read on behind it: the other groups' records are whole); otherwise a
write was torn by a crash and nobody was told that it happened (cut).

A member has one log for the replicas of all its Raft groups. Each record says whose it is, and how
many that replica had before it, so that a record that is missing is missed by its own group alone.

Invariant: scanning what was encoded gives equal records; nothing is returned as following a record
that it does not follow.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import msgspec

from samelog.consensus.errors import CorruptRecord, UnfinishedFile
from samelog.consensus.types import MAX_U32, NO_NODE, Entry, HardState
from samelog.format._kernels import crc32c
from samelog.format.errors import UnsupportedFormat

MAGIC = b"SAMERAFT"
FORMAT_VERSION = 1
MAX_RECORD_BYTES = 64 << 20
MAX_FILE_BYTES = (1 << 32) - 1
MAX_CLUSTER_BYTES = 1024

_BEGIN = struct.Struct(">8sHH")  # magic, version, cluster bytes
_FIXED = struct.Struct(">8sHHIQ")  # the same, node, sequence
_CRC = struct.Struct(">I")
_FRAME = struct.Struct(">IIBI")  # length of what follows the checksum, checksum, kind, synced
_LENGTH = struct.Struct(">I")
_TAIL = struct.Struct(">BIIII")  # kind, synced, group, replica, before
_TAG = struct.Struct(">III")  # group, replica, before
_ENTRY = struct.Struct(">QQ")  # index, term
_HARD_STATE = struct.Struct(">QIQ")  # term, vote or NO_NODE, commit
_MARK = struct.Struct(">QQ")  # last index, last term
_INDEX = struct.Struct(">Q")
_PREFIX_BYTES = 8  # length and checksum
_MOVED = 0x80
_MAY_BE_RECORD = re.compile(rb"(?=[\x00-\x04].{7}[\x01-\x05\x81-\x85])", re.DOTALL)

ReplicaKey = tuple[int, int]
"""Number of the group, number of the replica in it."""


class Kind(IntEnum):
    """What a record holds."""

    ENTRY = 1
    HARD_STATE = 2
    SNAPSHOT_MARK = 3
    BASE = 4
    CUT = 5


class SnapshotMark(msgspec.Struct, frozen=True, gc=False):
    """A durable snapshot of everything up to (last_index, last_term) exists from here on."""

    last_index: int
    last_term: int


class Base(msgspec.Struct, frozen=True, gc=False):
    """The replica needs no entry up to `index` any more: the log begins behind it."""

    index: int


class Cut(msgspec.Struct, frozen=True, gc=False):
    """The replica's entries from `index` on are no more."""

    index: int


WalRecord = Entry | HardState | SnapshotMark | Base | Cut


class Tagged(NamedTuple):
    """A record as it stands in a file.

    before: records that the replica had before it, modulo 2^32. is_moved: it is a copy of one that
    counts and stood in a file that is to go; it replaces nothing.
    """

    key: ReplicaKey
    before: int
    is_moved: bool
    record: WalRecord


@dataclass(frozen=True, slots=True)
class WalHeader:
    """Whose file it is. `sequence` numbers the member's log files, no number is used twice."""

    cluster: str
    node: int
    sequence: int


@dataclass(slots=True)
class WalScan:
    """The valid records of a file, and what stopped the scan.

    pieces: records that follow each other; between two pieces some are unreadable. end: byte behind
    the first piece. torn: bytes of an unfinished write follow; cut the file at `end`. corrupt: why
    the record at `end`, which had been durable, is unreadable; nothing may be cut. chain: where the
    checksums stand at `end`, for WalEncoder.resume.
    """

    header: WalHeader
    pieces: list[list[Tagged]]
    end: int
    torn: bool
    corrupt: str | None
    chain: int

    @property
    def records(self) -> list[WalRecord]:
        """All that could be read, whosever they are."""
        return [tagged.record for piece in self.pieces for tagged in piece]


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

    def encode(
        self,
        key: ReplicaKey,
        before: int,
        records: Iterable[WalRecord],
        *,
        synced: int,
        moved: bool = False,
    ) -> bytes:
        """The bytes of a replica's `records`, to be written at `position`.

        before: how many it had before. synced: the first so many bytes of the file are known to be
        durable (by a sync that ended before now). Raises ValueError if a record or the file gets
        too large.
        """
        if not 0 <= synced <= self.position:
            raise ValueError(f"{synced} bytes cannot be durable of {self.position}")
        parts: list[bytes] = []
        chain = self._chain
        group, replica = key
        flag = _MOVED if moved else 0
        for record in records:
            if type(record) is Entry:
                kind, body = 1, _ENTRY.pack(record.index, record.term) + record.data
            elif type(record) is HardState:
                vote = NO_NODE if record.vote is None else record.vote
                kind, body = 2, _HARD_STATE.pack(record.term, vote, record.commit)
            else:
                kind, body = _encode_rare(record)
            rest = _TAIL.pack(kind | flag, synced, group, replica, before) + body
            size = len(rest)
            if size > MAX_RECORD_BYTES:
                raise ValueError(f"a record of {size} bytes is too large for the log")
            length = _LENGTH.pack(size)
            chain = crc32c(rest, crc32c(length, chain ^ self._salt))
            parts += (length, _CRC.pack(chain), rest)
            before = (before + 1) & MAX_U32
        encoded = b"".join(parts)
        position = self.position + len(encoded)
        if position > MAX_FILE_BYTES:
            raise ValueError("a log file would pass its largest size")
        self._before = self.position, self._chain
        self.position, self._chain = position, chain
        return encoded


def scan_wal(data: bytes | bytearray | memoryview) -> WalScan:
    """Read a whole file.

    Raises UnfinishedFile if it ends within its header (the newest file may, and can be removed),
    CorruptRecord if the header is damaged, UnsupportedFormat for other versions.
    """
    view = memoryview(data)
    header, position, salt = _decode_header(view)
    scan = WalScan(header, [], position, torn=False, corrupt=None, chain=0)
    walk = _Walk(view, salt)
    position, chain = walk.read_on(scan, position, 0)
    scan.end, scan.chain = position, chain
    while bytes(view[position:]).strip(b"\0"):
        proof = walk.find_proof(position, chain)
        if proof is None:
            scan.torn = scan.corrupt is None
            break
        start, seed = proof
        text = f"bad record at byte {position}, but byte {start} follows it"
        scan.corrupt = scan.corrupt or text
        start, seed = walk.find_whole(position, chain, start) or proof
        position, chain = walk.read_on(scan, start, seed)
    return scan


class _Walk:
    """One file, record by record."""

    def __init__(self, view: memoryview, salt: int) -> None:
        self._view = view
        self._salt = salt

    def read_on(self, scan: WalScan, position: int, chain: int) -> tuple[int, int]:
        """Take the records that follow each other from here on; where they end, and the chain."""
        view, piece = self._view, list[Tagged]()
        while (crc := self._checksum(position, chain)) is not None:
            length, _, kind, _ = _FRAME.unpack_from(view, position)
            stop = position + _PREFIX_BYTES + length
            piece.append(self._decode(kind, view[position + _FRAME.size : stop]))
            position, chain = stop, crc
        scan.pieces.append(piece)
        return position, chain

    def _decode(self, kind: int, body: memoryview) -> Tagged:
        group, replica, before = _TAG.unpack_from(body)
        record = _decode_body(kind & ~_MOVED, body[_TAG.size :])
        is_moved = bool(kind & _MOVED)
        return Tagged((group, replica), before, is_moved, record)

    def _checksum(self, position: int, chain: int) -> int | None:
        """The checksum of the record at `position` if it is whole and valid there, else None."""
        view = self._view
        if len(view) - position < _FRAME.size:
            return None
        length, crc, _, _ = _FRAME.unpack_from(view, position)
        stop = position + _PREFIX_BYTES + length
        if not _TAIL.size <= length <= MAX_RECORD_BYTES or stop > len(view):
            return None
        valid = crc == _computed(view, position, stop, chain ^ self._salt)
        return crc if valid else None

    def find_proof(self, bad: int, chain: int) -> tuple[int, int] | None:
        """Where a valid record begins that says that byte `bad` was durable, and the chain before
        it; None if there is none.
        """
        return self._find(bad, chain, len(self._view), is_proof=True)

    def find_whole(self, bad: int, chain: int, stop: int) -> tuple[int, int] | None:
        """Where the first valid record begins behind the one at `bad` and before `stop`."""
        return self._find(bad, chain, stop, is_proof=False)

    def _find(self, bad: int, chain: int, limit: int, *, is_proof: bool) -> tuple[int, int] | None:
        """The record before the found one need not be valid, but its checksum field must be
        readable, for it is the seed: either the bad record's own, or that of anything between that
        has the shape of a record and ends where this one begins.
        """
        view, data = self._view, bytes(self._view)
        seeds_at, anywhere = _seeds_behind_bad(view, bad, chain ^ self._salt)
        for found in _MAY_BE_RECORD.finditer(data, bad + 1, limit):
            start = found.start()
            if len(data) - start < _FRAME.size:
                break
            length, crc, _, synced = _FRAME.unpack_from(data, start)
            stop = start + _PREFIX_BYTES + length
            if (bad < synced <= start or not is_proof) and stop <= len(data):
                for seed in (*anywhere, *seeds_at.get(start, ())):
                    if self._checksum(start, seed) is not None:
                        return start, seed
            seeds_at[stop].append(crc)
        return None


def _encode_header(header: WalHeader) -> bytes:
    cluster = header.cluster.encode()
    if len(cluster) > MAX_CLUSTER_BYTES:
        raise ValueError("the cluster's name is too long")
    size = len(cluster)
    fixed = _FIXED.pack(MAGIC, FORMAT_VERSION, size, header.node, header.sequence)
    return fixed + cluster + _CRC.pack(crc32c(fixed + cluster))


def _decode_header(view: memoryview) -> tuple[WalHeader, int, int]:
    """The header, its size, its checksum."""
    size = _header_bytes(view)
    body = bytes(view[: size - _CRC.size])
    (crc,) = _CRC.unpack_from(view, len(body))
    if crc32c(body) != crc:
        raise CorruptRecord("the header of a log file is damaged")
    cluster = body[_FIXED.size :].decode(errors="replace")
    *_, node, sequence = _FIXED.unpack_from(view)
    return WalHeader(cluster, node, sequence), size, crc


def _header_bytes(view: memoryview) -> int:
    """Return the length of the header. Raises as `scan_wal` does."""
    if len(view) < _BEGIN.size or not bytes(view).strip(b"\0"):
        raise UnfinishedFile("a log file ends within its header")
    magic, version, cluster_bytes = _BEGIN.unpack_from(view)
    if magic != MAGIC:
        raise CorruptRecord("not a file of the consensus log")
    if version != FORMAT_VERSION:
        text = f"log file of format version {version}; this program reads {FORMAT_VERSION}"
        raise UnsupportedFormat(text)
    size: int = _FIXED.size + cluster_bytes + _CRC.size
    if cluster_bytes > MAX_CLUSTER_BYTES:
        raise CorruptRecord("the header of a log file is damaged")
    if len(view) < size:
        raise UnfinishedFile("a log file ends within its header")
    return size


def _encode_rare(record: WalRecord) -> tuple[int, bytes]:
    if isinstance(record, SnapshotMark):
        return Kind.SNAPSHOT_MARK, _MARK.pack(record.last_index, record.last_term)
    if isinstance(record, Base):
        return Kind.BASE, _INDEX.pack(record.index)
    if isinstance(record, Cut):
        return Kind.CUT, _INDEX.pack(record.index)
    raise TypeError(f"{type(record).__name__} is written by encode itself")


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
        if kind == Kind.BASE:
            return Base(*_INDEX.unpack(body))
        if kind == Kind.CUT:
            return Cut(*_INDEX.unpack(body))
    except struct.error as error:
        raise UnsupportedFormat(f"log record of kind {kind}: {error}") from error
    raise UnsupportedFormat(f"log record of unknown kind {kind}")


def _computed(view: memoryview, start: int, stop: int, seed: int) -> int:
    return crc32c(view[start + _PREFIX_BYTES : stop], crc32c(view[start : start + 4], seed))


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
