"""The names of the files and directories of session logs and merged logs.

A session's directory:

    session.json                       whose directory this is
    session.lock                       locked by the process that writes
    cluster.json                       which cluster it is shipped to
    run.<X>.json                       one run (life) of the publisher, or one for held records
    damage.<X>.json                    what is damaged of it; written by the process that ships
    <topic>-<partition>/               what the session holds for one partition

In the directory of one partition of a session, empty files state facts about the file beside them:

    log.<run>.<roll>                   record batches; position in the file = position in the log
    log.<run>.<roll>.sealed-<length>   the file ends at this length and will never grow
    log.<run>.<roll>.from-<byte>       the run is held only from this position on
    topic.json                         which topic id the directory belongs to

A name is created by one system call and becomes durable with its directory, in the order of
creation; a fact inside a file would need an order between the syncs of two files. Numbers are
decimal without leading zeros.

A merged partition's directory has Kafka's names: a segment's three files are called after its base
offset, in 20 decimal digits (`.log`, `.index`, `.timeindex`; `.txnindex` where transactions were
aborted); `partition.json` says which partition it is, `compacted.json` which segments were
compacted. The compaction with number n writes new ones in the folder `compacting.<n>`, and says so
in its `written.json` once it has them all.

In both kinds of directory `marks` says up to where the log is on disk, and a file set aside as
damaged is called `<name>.quarantined-<n>` and never read as a log.

Invariant: every name has one meaning; names of any other form are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from samelog.format.errors import InvalidName
from samelog.format.names import check_topic_name

SESSION_FILE = "session.json"
LOCK_FILE = "session.lock"
CLUSTER_FILE = "cluster.json"
TOPIC_FILE = "topic.json"
SHIPPING_FILE = "shipping.json"
PARTITION_FILE = "partition.json"
ROWS_FILE = "rows.json"
MARKS_FILE = "marks"
SHIPPING_MARKS_FILE = "marks.shipping"
SESSION_MARKS_FILE = ".marks"
"""Beside the directories of sessions at a node; no session has such a name."""
COMPACTED_FILE = "compacted.json"
WRITTEN_FILE = "written.json"
COMPACTING = "compacting"
"""And the number of a compaction: the folder in which it writes new segments."""
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"

_NUMBER = r"(0|[1-9][0-9]{0,18})"
_DATA = re.compile(rf"log\.{_NUMBER}\.{_NUMBER}")
_MARKER = re.compile(rf"log\.{_NUMBER}\.{_NUMBER}\.(sealed|from)-{_NUMBER}")
_INPUT = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})")
_SEGMENT = re.compile(r"([0-9]{20})\.log")


def input_name(topic: str, partition: int) -> str:
    """The name of the directory of one partition: of a session, or of a copy of a merged log."""
    return f"{topic}-{partition}"


def parse_input_name(name: str) -> tuple[str, int] | None:
    """(topic, partition) of such a directory; None for other names."""
    match = _INPUT.fullmatch(name)
    if match is None:
        return None
    try:
        return check_topic_name(match[1]), int(match[2])
    except InvalidName:
        return None


def segment_name(base_offset: int, suffix: str) -> str:
    """The name of one of a segment's files."""
    return f"{base_offset:020d}{suffix}"


def segment_bases(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments among the names, in order."""
    return sorted(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))


@dataclass(slots=True)
class RunNames:
    """What the names say about one run."""

    data: set[int] = field(default_factory=set)
    """Rolls of the data files."""
    sealed: dict[int, int] = field(default_factory=dict)
    """Roll -> length."""
    starts: list[tuple[int, int]] = field(default_factory=list)
    """Positions of the `from` markers; the highest counts."""

    @property
    def start(self) -> tuple[int, int]:
        """Where the run's bytes begin, as far as markers say."""
        return max(self.starts, default=(0, 0))


def data_name(run: int, roll: int) -> str:
    """The name of a data file."""
    return f"log.{run}.{roll}"


def sealed_name(run: int, roll: int, length: int) -> str:
    """The name that says that a file is sealed."""
    return f"log.{run}.{roll}.sealed-{length}"


def from_name(run: int, roll: int, byte: int) -> str:
    """The name that says where a run starts."""
    return f"log.{run}.{roll}.from-{byte}"


def parse_names(names: Iterable[str]) -> dict[int, RunNames]:
    """What the names of a directory say, by run."""
    runs: dict[int, RunNames] = {}
    for name in names:
        if match := _DATA.fullmatch(name):
            runs.setdefault(int(match[1]), RunNames()).data.add(int(match[2]))
        elif match := _MARKER.fullmatch(name):
            names_of_run = runs.setdefault(int(match[1]), RunNames())
            if match[3] == "sealed":
                names_of_run.sealed[int(match[2])] = int(match[4])
            else:
                names_of_run.starts.append((int(match[2]), int(match[4])))
    return runs
