"""Copies of sealed segments outside the cluster: their formats and names, and the manifest that
makes a copy count.

A target holds, below a directory for each cluster, topic and id of its log, the segments as they
are, the same records as Parquet, and a manifest for each segment, which is written last. What has
no manifest is no copy.

Invariant: names follow from cluster, topic, partition and offset alone, so that whoever copies a
segment again finds what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from samelog.format.file_names import LOG, segment_name

ARCHIVE_COPY = "archive_copy"
"""The topic setting that counts instead of the nodes' configuration."""
NO_COPY = "none"
SEGMENTS, PARQUET = "segments", "parquet"
FORMATS = (SEGMENTS, PARQUET)
MANIFEST_VERSION = 1


class CopyFault(Exception):
    """A copy cannot be made or used; the message says where and why."""


class TornManifest(CopyFault):
    """A manifest is not whole, as if its writer or the target had been interrupted."""


class SourceFault(CopyFault):
    """The segment itself cannot be copied: it is damaged here, or gone."""


def parse_formats(text: str) -> tuple[str, ...]:
    """The formats in a text such as `segments,parquet`, in the order of FORMATS; none for `none`.
    Raises ValueError.
    """
    if text == NO_COPY:
        return ()
    names = text.split(",")
    if len(set(names)) < len(names) or not set(names) <= set(FORMATS):
        raise ValueError(f"is none of {SEGMENTS}; {PARQUET}; {SEGMENTS},{PARQUET}; {NO_COPY}")
    return tuple(name for name in FORMATS if name in names)


def formats_of(settings: Mapping[str, str], default: tuple[str, ...]) -> tuple[str, ...]:
    """In which formats the segments of a topic with these settings are copied."""
    value = settings.get(ARCHIVE_COPY)
    return default if value is None else parse_formats(value)


def format_bits(formats: tuple[str, ...]) -> int:
    """Formats as a number: a bit for each, in the order of FORMATS."""
    return sum(1 << number for number, name in enumerate(FORMATS) if name in formats)


def formats_in(bits: int) -> tuple[str, ...]:
    """The formats in such a number, without those that this version does not know."""
    return tuple(name for number, name in enumerate(FORMATS) if bits >> number & 1)


class CopiedLog(msgspec.Struct, frozen=True):
    """The merged log that copies are of: one partition of a topic's log, by the id that it has in
    `partition.json`, of one cluster.
    """

    cluster: str
    topic: str
    topic_id: str
    partition: int

    @property
    def directory(self) -> str:
        """The directory of all copies of the topic's log."""
        return f"{self.cluster}/{self.topic}/{self.topic_id}"

    def file(self, kind: str, base: int) -> str:
        """Where the copy of a segment is. Parquet files of all partitions lie side by side, so that
        one directory is the whole topic for whoever reads Parquet.
        """
        if kind == PARQUET:
            name = segment_name(base, ".parquet")
            return f"{self.directory}/parquet/{self.partition}-{name}"
        return f"{self.directory}/segments/{self.partition}/{segment_name(base, LOG)}"

    @property
    def manifests(self) -> str:
        """The directory of this partition's manifests."""
        return f"{self.directory}/manifests/{self.partition}"

    def manifest(self, base: int) -> str:
        """Where the manifest of a segment is."""
        return f"{self.manifests}/{segment_name(base, '.json')}"


class SegmentSchemas(msgspec.Struct, frozen=True):
    """What records of a segment were written with, so that they can be read without the cluster:
    the texts of all versions of the topic's schema up to the one in force at its end, from version
    1 on, and which were in force, as pairs of offset and version (docs/typed.md, T13).
    """

    texts: tuple[str, ...] = ()
    since: tuple[tuple[int, int], ...] = ()


NO_SCHEMAS = SegmentSchemas()


class CopyJob(msgspec.Struct, frozen=True):
    """A sealed segment to be copied: the file and what it must hold. `begin_checksum` and
    `end_checksum` are the running checksums where it begins and ends; `value_schema` is the topic's
    setting.
    """

    url: str
    path: str
    log: CopiedLog
    base: int
    next_offset: int
    size: int
    last_ms: int
    begin_checksum: int
    end_checksum: int
    formats: tuple[str, ...]
    value_schema: str = ""
    schemas: SegmentSchemas = NO_SCHEMAS


class CopiedFile(msgspec.Struct, frozen=True):
    """One file at the target, as it was read back."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy holds: offsets [first_offset, next_offset), `size` bytes with this SHA-256 (hex)
    as a segment, and the running checksums around it. `files`: by format. Times in ms.
    """

    format_version: int = MANIFEST_VERSION
    log: CopiedLog = msgspec.field(name="place")
    first_offset: int
    next_offset: int
    size: int
    sha256: str
    first_ms: int
    last_ms: int
    begin_checksum: int
    end_checksum: int
    copied_ms: int
    files: dict[str, CopiedFile]
    schemas: SegmentSchemas = NO_SCHEMAS

    def is_of(self, job: CopyJob) -> bool:
        """Whether it is about the very bytes that are to be copied."""
        return (
            self.log,
            self.first_offset,
            self.next_offset,
            self.size,
            self.begin_checksum,
            self.end_checksum,
        ) == (
            job.log,
            job.base,
            job.next_offset,
            job.size,
            job.begin_checksum,
            job.end_checksum,
        )


class _Version(msgspec.Struct):
    format_version: int


def encode_manifest(manifest: Manifest) -> bytes:
    """The JSON text of a manifest."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The manifest in a file of this name. Raises TornManifest, CopyFault."""
    try:
        version = msgspec.json.decode(data, type=_Version).format_version
        if version == MANIFEST_VERSION:
            return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TornManifest(f"{name} is no manifest of a copy: {error}") from error
    raise CopyFault(f"{name} has version {version}, this program reads {MANIFEST_VERSION}")


class SegmentSpan(Protocol):
    """A file of a merged log: offsets [first_offset, next_offset), times in ms."""

    @property
    def first_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def first_ms(self) -> int: ...
    @property
    def last_ms(self) -> int: ...


_Span = TypeVar("_Span", bound=SegmentSpan)


class RestoreRange(NamedTuple):
    """What of a partition is wanted back: offsets [first, behind), and records from `from_ms` to
    `to_ms`; None: no bound.
    """

    first: int | None = None
    behind: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def holds(self, known: SegmentSpan) -> bool:
        """Whether some of a copy may be in it. Records are as old as their timestamps say, which
        need not rise: a segment counts from its first timestamp to its highest.
        """
        return not (
            (self.first is not None and known.next_offset <= self.first)
            or (self.behind is not None and known.first_offset >= self.behind)
            or (self.from_ms is not None and known.last_ms < self.from_ms)
            or (self.to_ms is not None and known.first_ms > self.to_ms)
        )


def choose(known: list[_Span], wanted: RestoreRange) -> list[_Span]:
    """The copies that hold a range, one behind the other, from those of one partition in order.
    Raises CopyFault: there is none, or something in between was not copied.
    """
    wanted_at = [at for at, each in enumerate(known) if wanted.holds(each)]
    if not wanted_at:
        raise CopyFault("no copy holds any of that")
    chosen = known[wanted_at[0] : wanted_at[-1] + 1]
    for before, after in pairwise(chosen):
        if after.first_offset != before.next_offset:
            gap = f"offsets {before.next_offset} to {after.first_offset - 1}"
            raise CopyFault(f"there is no copy of {gap}: choose a range before or behind them")
    _check_ends(chosen, wanted)
    return chosen


def _check_ends(chosen: Sequence[SegmentSpan], wanted: RestoreRange) -> None:
    first, behind = chosen[0].first_offset, chosen[-1].next_offset
    if wanted.first is not None and wanted.first < first:
        raise CopyFault(f"there is no copy of offsets {wanted.first} to {first - 1}")
    if wanted.behind is not None and wanted.behind > behind:
        raise CopyFault(f"there is no copy of offsets {behind} to {wanted.behind - 1}")
