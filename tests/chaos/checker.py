"""Decides from merged files whether anything was lost, doubled, reordered or made up.

What publishers noted says only what they were promised; everything else is read from the files,
through `samelog.store`. Each copy is checked by itself (CRCs, offsets, indexes), against the
others (byte for byte, to the same end), and the longest one record by record.

Invariant: nothing that a running process says is believed, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.store.merged.check import PartitionCopy, check_all, find_copies
from tests.chaos.load import TOPIC
from tests.chaos.notes import Kind, last_count, read_notes
from tests.chaos.record import Author, Parsed, first_chain, next_chain, parse

READ_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Promise:
    """What one life of a publisher appended, and was told is acknowledged and merged."""

    author: Author
    appended: int
    acknowledged: int
    keeps_files: bool = True
    """Whether its own disk kept everything, so that all it appended has to be merged at last."""


@dataclass(slots=True)
class Findings:
    """What the files say. Only `merged` may be above 0."""

    merged: int = 0
    lost: int = 0
    """Acknowledged, and not there."""
    unmerged: int = 0
    """Appended to files that still exist, and not there."""
    doubled: int = 0
    reordered: int = 0
    holes: int = 0
    """Neither acknowledged nor there, but a later record of the same life is."""
    foreign: int = 0
    """Records that no publisher wrote, or not at this place of its chain."""
    faults: list[str] = field(default_factory=list)
    """What is wrong with copies: by themselves, or against each other."""

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        missing = (self.lost, self.unmerged, self.holes)
        wrong = (self.doubled, self.reordered, self.foreign)
        return not any(missing) and not any(wrong) and not self.faults


@dataclass(slots=True)
class _Life:
    """What was seen of one life."""

    chain: bytes
    seen: set[int] = field(default_factory=set)
    last: int = -1


class RecordCheck:
    """Follows the records of one merged log, in its order."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._lives: dict[Author, _Life] = {}
        self._newest: dict[str, int] = {}

    def take(self, values: Iterable[bytes | None]) -> None:
        """The next records."""
        for value in values:
            self.findings.merged += 1
            record = parse(value)
            if record is None:
                self.findings.foreign += 1
            else:
                self._take(record)

    def _take(self, record: Parsed) -> None:
        author, number = record.author, record.number
        life = self._lives.setdefault(author, _Life(first_chain(author)))
        newest = self._newest.setdefault(author.session, author.life)
        self._newest[author.session] = max(newest, author.life)
        if number in life.seen:
            self.findings.doubled += 1
            return
        life.seen.add(number)
        if number < life.last or author.life < newest:
            self.findings.reordered += 1
            return
        # Behind a gap, which is counted elsewhere, the chain can only be taken up again.
        if number == life.last + 1 and next_chain(life.chain, record.body) != record.chain:
            self.findings.foreign += 1
        life.chain, life.last = record.chain, number

    def missing(self, author: Author, count: int) -> int:
        """How many of a life's first `count` records were not seen."""
        life = self._lives.get(author)
        return count if life is None else sum(n not in life.seen for n in range(count))

    def holes(self, counted: dict[Author, int]) -> int:
        """Records missing in front of others, behind the first ones, which are counted already."""
        return sum(
            sum(n not in life.seen for n in range(counted.get(author, 0), life.last))
            for author, life in self._lives.items()
        )


def values_of(directory: Path) -> Iterator[list[bytes | None]]:
    """The values of all records of one partition's directory, in order, in pieces."""
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            position = 0
            while data := file.read(READ_BYTES):
                end = kernels.scan(data).end
                if end == 0:
                    return  # the copy's own check has said so
                table = to_arrow(data, 0, end, topic=TOPIC, partition=0)
                yield table["value"].to_pylist()
                position += end
                file.seek(position)


def promises_of(notes: dict[Author, Path], lost_disks: frozenset[str]) -> list[Promise]:
    """What the publishers noted. `lost_disks`: sessions whose own files a power loss may cut."""
    promises = []
    for author, path in notes.items():
        known = read_notes(path)
        appended, acknowledged = (
            last_count(known, kind) for kind in (Kind.APPENDED, Kind.ACKNOWLEDGED)
        )
        keeps = author.session not in lost_disks
        promises.append(Promise(author, appended, acknowledged, keeps))
    return promises


def check(directories: Sequence[Path], promises: Sequence[Promise]) -> Findings:
    """Judge all copies below `directories` (nodes' data directories, subscribers')."""
    copies = find_copies([str(path) for path in directories])
    faults = check_all(copies, lambda _: None)
    missing = len(directories) - len(copies)
    if missing:
        faults.append(f"{missing} of {len(directories)} copies are not there")
    ends = {copy.end_offset for copy in copies}
    if len(ends) > 1:
        faults.append("copies end at different offsets: " + ", ".join(map(_end_of, copies)))
    findings = _check_records(copies, promises)
    findings.faults = faults
    return findings


def _end_of(copy: PartitionCopy) -> str:
    return f"{copy.directory} at {copy.end_offset}"


def _check_records(copies: Sequence[PartitionCopy], promises: Sequence[Promise]) -> Findings:
    check = RecordCheck()
    if copies:
        sound = [copy for copy in copies if not copy.faults] or copies
        longest = max(sound, key=lambda copy: copy.end_offset)
        try:
            for values in values_of(Path(longest.directory)):
                check.take(values)
        except LogFormatError:
            check.findings.foreign += 1
    return judge(check, promises)


def judge(check: RecordCheck, promises: Iterable[Promise]) -> Findings:
    """What was seen, against what was promised."""
    findings = check.findings
    counted: dict[Author, int] = {}
    for promise in promises:
        author, acknowledged = promise.author, promise.acknowledged
        owed = max(promise.appended, acknowledged) if promise.keeps_files else acknowledged
        lost = check.missing(author, acknowledged)
        findings.lost += lost
        findings.unmerged += check.missing(author, owed) - lost
        counted[author] = owed
    findings.holes = check.holes(counted)
    return findings
