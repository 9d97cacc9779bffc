"""What all tasks that check segments share, wherever the bytes come from.

Invariant: what cannot be read is a finding; nothing is passed over.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from samelog.format.segment_check import SegmentCheck
from samelog.spark.jobs.findings import Checked, CheckOutcome, LogFinding, Series, finding


class Read(NamedTuple):
    """A segment's bytes, checked."""

    check: SegmentCheck
    size: int
    sha256: str


def read_segment(pieces: Iterable[bytes], base: int, *, checksum: int = 0) -> Read:
    """Check a segment's bytes, all of which go into the SHA-256, whatever they are."""
    check = SegmentCheck(base, checksum=checksum)
    digest, size = hashlib.sha256(), 0
    for data in pieces:
        check.feed(data)
        digest.update(data)
        size += len(data)
    check.close()
    return Read(check, size, digest.hexdigest())


def faults_of(series: Series, file: str, check: SegmentCheck) -> Iterator[LogFinding]:
    """What was found in the bytes of a segment."""
    if (fault := check.fault) is not None:
        found = f"{fault.found} ({fault.place})"
        yield finding(series, fault.offset, file, wanted=fault.wanted, found=found)


def outcome_of(
    series: Series, file: str, read: Read, behind: int, findings: Iterable[LogFinding]
) -> CheckOutcome:
    """What a segment that should end at `behind` gave."""
    found = tuple(findings)
    base = read.check.segment.base_offset
    known = Checked(series, file, base, behind, read.size, read.sha256)
    known = known._replace(voids=tuple(read.check.voids), damaged=bool(found))
    return CheckOutcome(known, found)


def unreadable(series: Series, offset: int, file: str, error: Exception) -> CheckOutcome:
    """A file that could not be read where the task ran."""
    wanted = "a file that every executor can read"
    found = f"on host {socket.gethostname()}: {error}"
    return CheckOutcome(None, (finding(series, offset, file, wanted=wanted, found=found),))
