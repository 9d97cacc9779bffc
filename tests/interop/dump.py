"""Kafka's own dump tool reads compacted segments: python -m tests.interop.dump.

Invariant: it finds every batch valid, and exactly the records that compaction leaves.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.maven import JARS, OLDER_KAFKA, jars
from samelog.format.file_names import LOG, segment_name
from tests.store.compacting import Order, random_log, rewrite

TOOL = "kafka.tools.DumpLogSegments"
QUIET = "-Dorg.apache.logging.log4j.level=OFF"
SEEDS = range(8)
TOMBSTONES_BELOW = 20
TIMEOUT_S = 120.0
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (-?\d+) .* isvalid: (\w+)", re.M)
_RECORD = re.compile(r"^\| offset: (\d+) .* keySize: (-?\d+) valueSize: (-?\d+) ", re.M)
_CONTROL = re.compile(r"^\| offset: (\d+) .*endTxnMarker", re.M)

Shown = list[tuple[int, int, int]]
"""(offset, bytes of the key, bytes of the value) of records; -1: null."""


def dumped(files: list[Path]) -> dict[Path, str]:
    """What the tool says of each segment. Raises bench.maven.Unavailable, CalledProcessError."""
    jars(OLDER_KAFKA)
    names = ",".join(map(str, files))
    command = ["java", QUIET, "-cp", f"{JARS / OLDER_KAFKA}/*", TOOL]
    command += ["--deep-iteration", "--files", names]
    found = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    _, *parts = re.split(r"^Dumping (.*)$", found.stdout, flags=re.MULTILINE)
    return {Path(name): text for name, text in zip(parts[::2], parts[1::2], strict=True)}


def records_of(text: str) -> Shown:
    """All records but control records."""
    control = set(_CONTROL.findall(text))
    found = [match.groups() for match in _RECORD.finditer(text)]
    return [(int(o), int(k), int(v)) for o, k, v in found if o not in control]


class DumpedLog(NamedTuple):
    """A compacted segment, its records, and the offset behind it."""

    file: Path
    records: Shown
    stop: int


def compact(path: Path, seed: int) -> DumpedLog:
    """Of a log of its own."""
    keyed = random_log(path, seed)
    stop = keyed.log.end()[0]
    keyed.log.swap(rewrite(keyed.log, stop, Order(tombstones_below=TOMBSTONES_BELOW)))
    keyed.log.close()
    left = [each for each in keyed.expected(stop, TOMBSTONES_BELOW) if each[0] < stop]
    records = [(offset, _size(key), _size(value)) for offset, key, value in left]
    return DumpedLog(path / segment_name(0, LOG), records, stop)


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def problems(text: str, wanted: DumpedLog) -> list[str]:
    """What is wrong with what the tool says of one segment."""
    batches = [match.groups() for match in _BATCH.finditer(text)]
    found = [f"batch {first} is not valid" for first, _, _, valid in batches if valid != "true"]
    borders = [0, *(int(last) + 1 for _, last, _, _ in batches)]
    if [int(first) for first, *_ in batches] != borders[:-1] or borders[-1] != wanted.stop:
        found.append(f"batches do not follow each other up to {wanted.stop}: {borders}")
    if records_of(text) != wanted.records:
        found.append(f"records are {records_of(text)}, not {wanted.records}")
    return found


def main() -> int:
    """Compact some logs, and have the tool read them: 0, if it reads what is there."""
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        logs = [compact(Path(directory, str(seed)), seed) for seed in SEEDS]
        said = dumped([each.file for each in logs])
        for each in logs:
            wrong += [f"{each.file}: {problem}" for problem in problems(said[each.file], each)]
    sys.stdout.write("\n".join(wrong or [f"Kafka's dump tool reads {len(SEEDS)} compacted logs"]))
    sys.stdout.write("\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
