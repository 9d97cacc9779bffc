"""The records of one copy in an archive, as tables.

Invariant: rows have rising offsets; a copy that is shorter than its manifest says, or damaged, is
an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any

from samelog.archiver.copies.copying import pieces_of
from samelog.archiver.copies.manifests import PARQUET, SEGMENTS, CopiedLog, CopyFault, Manifest
from samelog.archiver.copies.restoring import whole_batches
from samelog.archiver.copies.targets import Target, translated_errors
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.spark.plan.offsets import Span

if TYPE_CHECKING:
    import pyarrow as pa

BASE_OFFSET = Struct(">q")
PLACE_COLUMNS = ["offset", "timestamp"]


def tables_of(
    target: Target, manifest: Manifest, wanted: Span, columns: list[str]
) -> Iterator[pa.Table]:
    """The records with offsets [first, behind) of a copy; with at least these columns. Raises
    CopyFault.
    """
    kind = SEGMENTS if SEGMENTS in manifest.files else PARQUET
    if kind not in manifest.files:
        raise CopyFault(f"{manifest.log.manifest(manifest.first_offset)} names no file")
    name = manifest.log.file(kind, manifest.first_offset)
    file = target.open(name)
    if file is None:
        raise CopyFault(f"{name} is not there, but its manifest is")
    with translated_errors(name), file:
        size, said = file.seek(0, 2), manifest.files[kind].size
        if size != said:
            raise CopyFault(f"{name} has {size} bytes, its manifest says {said}")
        file.seek(0)
        tables = (
            _of_segment(file, name, manifest.log, wanted)
            if kind == SEGMENTS
            else _of_parquet(file, wanted, columns)
        )
        for table in tables:
            part = within(table, wanted)
            if part.num_rows:
                yield part


def _of_segment(file: Any, name: str, place: CopiedLog, wanted: Span) -> Iterator[pa.Table]:
    """Unpacks only what may be in the range; there is no index beside a copy."""
    for data in whole_batches(pieces_of(file, name), name):
        first, behind = _extent(data)
        if first >= wanted[1]:
            return
        if behind <= wanted[0]:
            continue
        try:
            yield to_arrow(data, 0, len(data), topic=place.topic, partition=place.partition)
        except LogFormatError as error:
            raise CopyFault(f"{name} is damaged: {error}") from error


def _extent(data: bytes) -> Span:
    """The offsets of whole batches that were copied as they lay behind each other."""
    first: int = BASE_OFFSET.unpack_from(data)[0]
    headers = kernels.batch_headers(data, 0, len(data))
    return first, first + sum(header[2] for header in headers)


def _of_parquet(file: Any, wanted: Span, columns: list[str]) -> Iterator[pa.Table]:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file, page_checksum_verification=True) as parquet:
        at = parquet.schema_arrow.get_field_index("offset")
        for number in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(number).column(at).statistics
            if known is not None and not (known.min < wanted[1] and known.max >= wanted[0]):
                continue
            yield parquet.read_row_group(number, columns=[*{*columns, "offset"}])


def within(table: pa.Table, wanted: Span) -> pa.Table:
    """The records with offsets [first, behind); offsets rise, so that they lie together."""
    from pyarrow import compute

    offsets = table["offset"]
    first, last = (compute.sum(compute.less(offsets, bound)).as_py() or 0 for bound in wanted)
    return table.slice(first, last - first)


def first_at(target: Target, manifest: Manifest, timestamp_ms: int) -> int | None:
    """The first offset of a copy with this timestamp or a later one. Raises CopyFault."""
    import pyarrow as pa
    from pyarrow import compute

    whole = manifest.first_offset, manifest.next_offset
    for table in tables_of(target, manifest, whole, PLACE_COLUMNS):
        late = compute.greater_equal(table["timestamp"].cast(pa.int64()), timestamp_ms)
        place = compute.index(late.combine_chunks(), pa.scalar(value=True)).as_py()
        if place >= 0:
            found: int = table["offset"][place].as_py()
            return found
    return None
