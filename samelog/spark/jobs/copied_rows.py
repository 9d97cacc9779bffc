"""Parquet files in an archive: their bytes against the manifest, and their rows' offsets.

Invariant: offsets are looked at row by row, and every row's topic and partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from samelog.archiver.copies.copying import read_back
from samelog.archiver.copies.manifests import PARQUET, CopyFault, Manifest
from samelog.archiver.copies.targets import Target, open_target, translated_errors
from samelog.spark.jobs.findings import (
    Checked,
    CheckOutcome,
    LogFinding,
    Series,
    check_runs,
    finding,
)
from samelog.spark.jobs.segment_reads import unreadable
from samelog.spark.plan.offsets import Span

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ["topic", "partition", "offset"]


class CopiedRows(NamedTuple):
    """A Parquet file, and what its manifest says of it."""

    series: Series
    url: str
    manifest: Manifest

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.manifest.files[PARQUET].size

    def check(self) -> CheckOutcome:
        """Read it."""
        manifest = self.manifest
        file = manifest.log.file(PARQUET, manifest.first_offset)
        try:
            return self._check(open_target(self.url), file)
        except CopyFault as error:
            return unreadable(self.series, manifest.first_offset, file, error)

    def _check(self, target: Target, file: str) -> CheckOutcome:
        manifest, wanted = self.manifest, self.manifest.files[PARQUET]
        found = read_back(target, file, lambda count: None)
        if found is None:
            raise CopyFault("it is not there")
        findings: list[LogFinding] = []
        if found != wanted:
            findings.append(
                finding(
                    self.series,
                    manifest.first_offset,
                    file,
                    wanted=f"SHA-256 {wanted.sha256} of {wanted.size} bytes, as its manifest says",
                    found=f"{found.sha256} of {found.size}",
                )
            )
        whole = manifest.first_offset, manifest.next_offset
        rows = Rows(self.series, file, manifest.first_offset, is_damaged=bool(findings))
        with translated_errors(file), target.open(file) as source:
            voids, more = check_runs(self.series, file, rows.runs(source), whole)
        findings += [*rows.findings, *more]
        known = Checked(self.series, file, *whole, found.size, voids=voids)
        known = known._replace(damaged=bool(findings))
        return CheckOutcome(known, tuple(findings))


class Rows:
    """The rows of one file, and what is wrong with them beside their offsets."""

    def __init__(self, series: Series, file: str, first: int, *, is_damaged: bool) -> None:
        """`first`: its first offset; `is_damaged`: its bytes are not what they were, so that all of
        them are looked at.
        """
        self.findings: list[LogFinding] = []
        self._series = series
        self._file = file
        self._columns = None if is_damaged else COLUMNS
        self._behind = first

    def runs(self, source: Any) -> Iterator[Span]:
        """Runs of dense offsets, as far as the file can be read."""
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(source, page_checksum_verification=True) as parquet:
                for number in range(parquet.num_row_groups):
                    yield from self._group(parquet.read_row_group(number, columns=self._columns))
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).partition("\n")[0]
            self._add("a row group that can be read", reason)

    def _group(self, rows: pa.Table) -> Iterator[Span]:
        from pyarrow import compute

        wanted = {"topic": self._series.topic, "partition": self._series.partition}
        for column, value in wanted.items():
            others = compute.unique(rows.column(column)).to_pylist()
            if others not in ([], [value]):
                self._add(f"rows of {column} {value}", f"rows of {others}")
        for run in runs_of(rows.column("offset").combine_chunks()):
            self._behind = run[1]
            yield run

    def _add(self, wanted: str, found: str) -> None:
        self.findings.append(
            finding(self._series, self._behind, self._file, wanted=wanted, found=found)
        )


def runs_of(offsets: pa.Array) -> Iterator[Span]:
    """Offsets of rows, in their order, as runs of dense ones."""
    from pyarrow import compute

    if len(offsets) == 0:
        return
    steps = compute.pairwise_diff(offsets).fill_null(0)  # there is none before the first
    starts = compute.indices_nonzero(compute.not_equal(steps, 1)).to_pylist()
    for start, stop in zip(starts, [*starts[1:], len(offsets)], strict=True):
        yield offsets[start].as_py(), offsets[stop - 1].as_py() + 1
