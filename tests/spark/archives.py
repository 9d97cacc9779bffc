"""An archive of two segments, as segments and as Parquet, and ways to spoil it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from msgspec.structs import replace

from samelog.archiver.copies.manifests import (
    PARQUET,
    SEGMENTS,
    CopiedFile,
    decode_manifest,
    encode_manifest,
)
from samelog.archiver.copies.targets import open_target
from samelog.format import _kernels as kernels
from tests.archiver.test_copying import COPIED, make_source


class Archive:
    """One in a directory of its own, with the log it was made of beside it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "archive"
        self.path.mkdir()
        self.merged = root / "merged"
        self.source = make_source(self.merged)
        self.manifests = self.source.copy(open_target(str(self.path)))

    def file(self, number: int, kind: str) -> Path:
        """A copy of the first segment, 0, or the second."""
        return self.path / COPIED.file(kind, self.manifests[number].first_offset)

    def manifest(self, number: int) -> Path:
        """The file of a manifest."""
        return self.path / COPIED.manifest(self.manifests[number].first_offset)

    def change(self, number: int, **facts: Any) -> None:
        """Let a manifest say something else."""
        path = self.manifest(number)
        known = decode_manifest(path.read_bytes(), path.name)
        path.write_bytes(encode_manifest(replace(known, **facts)))

    def believe(self, number: int, kind: str) -> None:
        """Let the manifest say what is in the file now: whoever wrote it is wrong, not the disk."""
        data = self.file(number, kind).read_bytes()
        path = self.manifest(number)
        known = decode_manifest(path.read_bytes(), path.name)
        made = CopiedFile(len(data), hashlib.sha256(data).hexdigest())
        facts: dict[str, Any] = {"files": {**known.files, kind: made}}
        if kind == SEGMENTS:
            checksum = kernels.crc32c(data, known.begin_checksum)
            facts |= {"sha256": made.sha256, "size": made.size, "end_checksum": checksum}
        self.change(number, **facts)

    def batches(self, number: int) -> list[bytes]:
        """Those of a segment's copy."""
        data = self.file(number, SEGMENTS).read_bytes()
        return [data[h[0] : h[0] + h[1]] for h in kernels.batch_headers(data, 0, len(data))]

    def put_batches(self, number: int, batches: Sequence[bytes]) -> None:
        """Other batches in a segment's copy, which its manifest believes."""
        self.file(number, SEGMENTS).write_bytes(b"".join(batches))
        self.believe(number, SEGMENTS)

    def put_rows(self, number: int, change: Callable[[Any], Any]) -> None:
        """Other rows in a Parquet file, which its manifest believes."""
        path = self.file(number, PARQUET)
        table = change(pq.read_table(path))
        pq.write_table(table, path, row_group_size=16)
        self.believe(number, PARQUET)


def flip(path: Path, place: float = 0.5) -> None:
    """Change a bit."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)


def only(archive: Archive, kind: str) -> None:
    """As if copies had been made in one format."""
    for number, manifest in enumerate(archive.manifests):
        archive.change(number, files={kind: manifest.files[kind]})
