"""Copies one sealed segment to a target, reads the copy back, and only then writes its manifest.

The segment is read once, in pieces: every batch's CRC is checked, and the running checksum at its
end must be the cluster's, so that what has rotted here is never taken for a copy.

Invariant: whatever ends a copy before its manifest is written, there is no copy.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from samelog.archiver.copies.manifests import (
    PARQUET,
    SEGMENTS,
    CopiedFile,
    CopiedLog,
    CopyFault,
    CopyJob,
    Manifest,
    SourceFault,
    TornManifest,
    decode_manifest,
    encode_manifest,
)
from samelog.archiver.copies.parquet import ParquetSink, check_parquet
from samelog.archiver.copies.targets import Target, Upload, translated_errors
from samelog.archiver.copies.value_schema import parse_schema
from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.store.disk.batch_walk import BatchChunk, BatchWalk
from samelog.store.disk.files import File, FileSystem

PIECE_BYTES = 8 << 20
"""Of the segment, in memory at a time."""
_BASE_TIMESTAMP = struct.Struct(">27xq")  # of a batch

ReportBytes = Callable[[int], None]
"""Is told how many bytes more were read, of the segment or of its copies."""


def copy_segment(
    fs: FileSystem, target: Target, job: CopyJob, *, now_ms: int, progress: ReportBytes
) -> Manifest:
    """Make the copies that a job asks for, unless they are there; the manifest of them all.

    Raises:
        SourceFault: the segment is damaged here, or gone.
        CopyFault: the target cannot be written, or has not kept what was written.
    """
    known = _earlier(target, job, name := job.log.manifest(job.base))
    there = {} if known is None else _intact(target, known, progress)
    missing = [kind for kind in job.formats if kind not in there]
    if known is not None and not missing and len(there) == len(known.files):
        if known.schemas == job.schemas:
            return known
        made = replace(known, schemas=job.schemas)  # an older version did not note them
    else:
        made = _SegmentCopies(target, job, missing).make(fs, now_ms, there, progress=progress)
    write_file(target, name, encode_manifest(made))
    if read_manifest(target, job.log, name) != made:
        raise CopyFault(f"{name} is not what was written to it")
    return made


def _earlier(target: Target, job: CopyJob, name: str) -> Manifest | None:
    """Return the manifest of an earlier copy, None if none is whole. Raises CopyFault."""
    try:
        known = read_manifest(target, job.log, name)
    except TornManifest:
        return None
    if known is not None and not known.is_of(job):
        raise CopyFault(f"{name} is about other bytes of the same offsets: it is not replaced")
    return known


def _intact(target: Target, known: Manifest, progress: ReportBytes) -> dict[str, CopiedFile]:
    """The files of an earlier copy that are still what its manifest says."""
    found = {}
    for kind, file in known.files.items():
        name = known.log.file(kind, known.first_offset)
        if read_back(target, name, progress) == file:
            found[kind] = file
    return found


class _SegmentCopies:
    """Writes the copies of one segment side by side."""

    def __init__(self, target: Target, job: CopyJob, kinds: list[str]) -> None:
        self._target = target
        self._job = job
        self._kinds = kinds
        self._uploads: dict[str, _Hashed] = {}
        self._parquet: ParquetSink | None = None

    def make(
        self, fs: FileSystem, now_ms: int, there: dict[str, CopiedFile], *, progress: ReportBytes
    ) -> Manifest:
        """Write and read back; raises as `copy_segment`, and leaves nothing then."""
        job = self._job
        try:
            self._begin()
            sha256, first_ms = self._pour(fs, progress)
            for upload in self._uploads.values():
                upload.commit()
        finally:
            for upload in self._uploads.values():
                upload.abort()
            if self._parquet is not None:
                self._parquet.close()  # which would write the end of the file once it is collected
        files = {**there, **{kind: self._checked(kind, progress) for kind in self._kinds}}
        return Manifest(
            log=job.log,
            first_offset=job.base,
            next_offset=job.next_offset,
            size=job.size,
            sha256=sha256,
            first_ms=first_ms,
            last_ms=job.last_ms,
            begin_checksum=job.begin_checksum,
            end_checksum=job.end_checksum,
            copied_ms=now_ms,
            files=files,
            schemas=job.schemas,
        )

    def _begin(self) -> None:
        for kind in self._kinds:
            name = self._job.log.file(kind, self._job.base)
            self._uploads[kind] = _Hashed(self._target.create(name))
        if PARQUET in self._uploads:
            schema = parse_schema(self._job.value_schema)
            self._parquet = ParquetSink(
                self._uploads[PARQUET], self._job.log, schema, self._job.schemas
            )

    def _pour(self, fs: FileSystem, progress: ReportBytes) -> tuple[str, int]:
        """All of the segment into the copies: its SHA-256 and first timestamp."""
        digest, first_ms = hashlib.sha256(), -1
        for piece in source_pieces(fs, self._job):
            data = memoryview(piece.data)[: piece.size]
            if piece.position == 0:
                first_ms = _BASE_TIMESTAMP.unpack_from(data)[0]
            digest.update(data)
            if SEGMENTS in self._uploads:
                self._uploads[SEGMENTS].write(data)
            self._pour_rows(piece)
            progress(piece.size)
        if self._parquet is not None:
            self._parquet.close()
        return digest.hexdigest(), first_ms

    def _pour_rows(self, piece: BatchChunk) -> None:
        if self._parquet is None:
            return
        try:
            self._parquet.write(piece.data, piece.size)
        except LogFormatError as error:
            raise SourceFault(f"{self._job.path}: no rows for Parquet: {error}") from error

    def _checked(self, kind: str, progress: ReportBytes) -> CopiedFile:
        name = self._job.log.file(kind, self._job.base)
        file = self._uploads[kind].file
        if read_back(self._target, name, progress) != file:
            raise CopyFault(f"{name} is not what was written to it")
        if kind == PARQUET and self._parquet is not None:
            with translated_errors(name), self._target.open(name) as rows:
                check_parquet(rows, name, self._parquet.groups)
        return file


class _Hashed:
    """An upload, and what went into it. pyarrow takes it for a file."""

    closed = False

    def __init__(self, upload: Upload) -> None:
        self._upload = upload
        self._digest = hashlib.sha256()
        self._size = 0
        self._is_over = False

    @property
    def file(self) -> CopiedFile:
        """Size and SHA-256 of what was written."""
        return CopiedFile(self._size, self._digest.hexdigest())

    def write(self, data: Any) -> int:
        """Add bytes; none any more once it is over."""
        if self._is_over:
            return len(data)
        self._upload.write(data)
        self._digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Where the next byte goes."""
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def commit(self) -> None:
        """Give the file its name."""
        self._upload.commit()
        self._is_over = True

    def abort(self) -> None:
        """Remove what was written, unless it was committed."""
        if not self._is_over:
            self._is_over = True
            self._upload.abort()


def source_pieces(fs: FileSystem, job: CopyJob) -> Iterator[BatchChunk]:
    """The batches of a segment, each piece before the next is read. Raises SourceFault, at the end
    also when they are not what the cluster has merged.
    """
    try:
        file = fs.open(job.path)
        try:
            yield from _checked_pieces(file, job)
        finally:
            file.close()
    except LogFormatError as error:
        raise SourceFault(str(error)) from error


def _checked_pieces(file: File, job: CopyJob) -> Iterator[BatchChunk]:
    walk = BatchWalk(file, 0, job.size, chunk_bytes=PIECE_BYTES)
    checksum = job.begin_checksum
    for piece in walk:
        checksum = kernels.crc32c(memoryview(piece.data)[: piece.size], checksum)
        yield piece
    if walk.end < job.size or checksum != job.end_checksum:
        reason = walk.reason or "its bytes are not what was merged"
        raise SourceFault(f"{job.path} is damaged at or before byte {walk.end}: {reason}")


def read_manifest(target: Target, log: CopiedLog, name: str) -> Manifest | None:
    """A manifest of a copy of this log; None if there is none. Raises CopyFault."""
    file = target.open(name)
    if file is None:
        return None
    found = decode_manifest(b"".join(pieces_of(file, name)), name)
    if found.log != log:
        raise CopyFault(f"{name} is about {found.log.directory}: somebody has moved it")
    return found


def read_back(target: Target, name: str, progress: ReportBytes) -> CopiedFile | None:
    """What a file at the target holds; None if there is none. Raises CopyFault."""
    file = target.open(name)
    if file is None:
        return None
    digest, size = hashlib.sha256(), 0
    for data in pieces_of(file, name):
        digest.update(data)
        size += len(data)
        progress(len(data))
    return CopiedFile(size, digest.hexdigest())


def pieces_of(file: Any, name: str) -> Iterator[bytes]:
    """All of a file, which is closed then."""
    with translated_errors(name), file:
        while data := file.read(PIECE_BYTES):
            yield data


def write_file(target: Target, name: str, data: bytes) -> None:
    """Write a small file whole. Raises CopyFault."""
    upload = target.create(name)
    try:
        upload.write(data)
        upload.commit()
    except CopyFault:
        upload.abort()
        raise
