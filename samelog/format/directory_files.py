"""The small JSON files that say what a directory of a log is: their contents, and their encoding.

Invariant: a file of another format version is never read further than its version. A file is read
as it was written, or refused.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec

from samelog.format.checked_json import checked, encode_checked
from samelog.format.compaction import CompactedSegment
from samelog.format.errors import CorruptLog, UnsupportedFormat
from samelog.format.numbers import PartitionIndex

FORMAT_VERSION = 1


class Versioned(msgspec.Struct, frozen=True, kw_only=True):
    """What every such file holds."""

    remedy: ClassVar[str] = "restore it"
    """What to do if the file is unreadable."""
    format_version: int = FORMAT_VERSION


_Value = TypeVar("_Value", bound=Versioned)


class SessionFile(Versioned, frozen=True, kw_only=True):
    """session.json: whose directory this is."""

    remedy: ClassVar[str] = "restore it; until then nothing of this directory is shipped"
    session: str
    id: str
    """A UUID, made with the directory."""
    identity: str | None = None
    cluster: str | None = None


class ClusterFile(Versioned, frozen=True, kw_only=True):
    """cluster.json: which cluster a session is shipped to, or copies come from."""

    remedy: ClassVar[str] = (
        "restore it; or, if the configured nodes are the right ones, rename it, and it is written "
        "again"
    )
    cluster_id: str


class RunFile(Versioned, frozen=True, kw_only=True):
    """run.<X>.json: one life of the publisher."""

    remedy: ClassVar[str] = (
        "its copy run-again.<X>.json is lost, too; restore one of them; or rename this one, and "
        "the files log.<X>.* of this run stay unshipped, while later runs are shipped"
    )
    run: int
    run_id: str
    """32 hexadecimal digits, random."""
    dedup_id: str | None = None
    dedup_base: int | None = None
    started_ms: int
    end: dict[str, tuple[int, int]] | None = None
    """Directory of a partition -> (roll, byte), once the run has ended; partitions that are not
    named hold nothing of it.
    """
    stage: str | None = None
    """What its records are staged for."""


RunByte = tuple[int, int, int]
"""(run, roll, byte): a byte of a session's partition."""


class DamagedRange(msgspec.Struct, frozen=True):
    """Bytes of a publisher's log that are no record batches any more."""

    input: str
    """The directory of the partition."""
    start: RunByte
    stop: RunByte
    """Where intact batches follow, or the run ends."""
    reason: str
    kept: str
    """The file that keeps a copy of the bytes; empty if none were left. If an operator removes it,
    the loss is not reported any more.
    """


class DamageFile(Versioned, frozen=True, kw_only=True):
    """damage.<X>.json: what is damaged of a run, and how the rest of it is shipped."""

    run: int
    run_id: str | None = None
    """The run id under which the rest is shipped, or None for the run's own id."""
    starts: dict[str, RunByte] = {}
    """Directory of a partition -> where the part of the run begins that has this id."""
    found: list[DamagedRange] = []
    """In this part; the part ends where they start."""
    lost: list[DamagedRange] = []
    """In earlier parts: the records of these ranges never reached the cluster."""


class TopicFile(Versioned, frozen=True, kw_only=True):
    """topic.json: which topic a session's partition belongs to; names can be used again."""

    remedy: ClassVar[str] = (
        "restore it; or, if the topic was not deleted since, rename it, and it is written again"
    )
    topic_id: str
    input: int = 0
    """At a node: the number of the input in its group. A partition that left the group, or a
    session that was forgotten, has another number when it comes back. 0: at a publisher.
    """

    @property
    def owner(self) -> str:
        """What the directory belongs to."""
        return f"{self.topic_id}.{self.input}" if self.input else self.topic_id


class CarriedFile(msgspec.Struct, frozen=True, array_like=True):
    """Bytes [start, stop) of a data file of an earlier run, which are shipped in a later one."""

    run: int
    roll: int
    start: int
    stop: int


class ShippingFile(Versioned, frozen=True, kw_only=True):
    """shipping.json: how a publisher's partition is shipped after its topic was deleted."""

    former: tuple[str, ...] = ()
    """Ids of deleted topics that bytes were shipped to, the newest last."""
    begin: RunByte = (0, 0, 0)
    """The first byte that belongs to the present topic, apart from `carried`."""
    carried: tuple[CarriedFile, ...] = ()
    """Files that are shipped in the run of `begin`, before its own bytes."""
    held: RunByte | None = None
    """The first held byte: from it on, bytes are neither shipped nor removed."""
    decision: str = ""
    """What becomes of held bytes once a run can take them; empty: not decided."""
    merged: RunByte = (-1, 0, 0)
    """The end of the bytes that a node has reported as merged durably; may lag."""

    def holds(self, run: int) -> bool:
        """Whether bytes of a run are held."""
        return self.held is not None and run >= self.held[0]

    def carries(self, run: int) -> bool:
        """Whether bytes of a run are shipped in a later one."""
        return any(each.run == run for each in self.carried)

    def drops(self, run: int) -> bool:
        """Whether all bytes of a run belong to a topic that was deleted."""
        is_held = self.held is not None and run >= self.held[0]
        return run < self.begin[0] and not is_held and not self.carries(run)


class PartitionFile(Versioned, frozen=True, kw_only=True):
    """partition.json: which partition a merged log is, and where it begins."""

    remedy: ClassVar[str] = "restore it; or rename the directory, and the partition is copied again"
    topic: str
    topic_id: str
    partition: PartitionIndex
    came: int = 0
    """At a node: the task that moved the partition to its group; 0: it was created there."""
    start_offset: int = 0
    """Where this copy begins: behind what is archived, or where a subscriber wanted it."""
    start_checksum: int = 0
    """The running checksum there."""
    log_start: int = 0
    """Records below this offset are archived."""
    is_deleted: bool = False
    """Whether the topic was deleted in the cluster; of subscribers' copies only."""

    @property
    def owner(self) -> str:
        """What the directory belongs to: a partition that comes back to a group is another one."""
        return merged_owner(self.topic_id, self.came)


def merged_owner(log_id: str, came: int) -> str:
    """What a merged log's directory belongs to; `came`: as PartitionFile has it."""
    return f"{log_id}.{came}" if came else log_id


class RowsFile(PartitionFile, frozen=True, kw_only=True):
    """rows.json: as partition.json, of a directory that has only what passed a filter."""

    where: str = ""
    columns: tuple[str, ...] = ()
    """None: all."""
    version: int = 0
    """Of the topic's schema, as which rows were read; 0: records are as they were."""
    schema_text: str = ""
    """What rows are written as; empty: records are as they were."""
    skips_unread: bool = False
    is_committed: bool = False

    @property
    def filter(self) -> tuple[str, tuple[str, ...], int, bool, bool]:
        """What passed: the directories of others are not for each other."""
        return self.where, self.columns, self.version, self.skips_unread, self.is_committed

    def of(self, whose: PartitionFile) -> RowsFile:
        """The same filter over another partition."""
        topic, topic_id, partition = whose.topic, whose.topic_id, whose.partition
        return msgspec.structs.replace(self, topic=topic, topic_id=topic_id, partition=partition)


class CompactedFile(Versioned, frozen=True, kw_only=True):
    """compacted.json: which segments of a merged log were compacted, in order."""

    number: int = 0
    """Of the last compaction that was carried out here."""
    segments: list[CompactedSegment] = []
    swapped: tuple[int, int] | None = None
    """From where to where a swap reaches that is under way."""
    copied: CompactedSegment | None = None
    """The one that the growing segment is a copy of, as far as it has come."""


class ScrubFile(Versioned, frozen=True, kw_only=True):
    """scrub.json: when a node has read all its merged segments, and how far it has come since."""

    done_ms: int
    """When the last round ended, by the wall clock."""
    partition: int = -1
    base_offset: int = -1
    """The last segment that the present round has read; -1: none is under way."""


def encode_directory_file(value: Versioned) -> bytes:
    """The text of a file."""
    return encode_checked(value)


def decode_directory_file(data: bytes, path: str, kind: type[_Value]) -> _Value:
    """What the file at `path` holds.

    Raises:
        UnsupportedFormat: it was written by another version.
        CorruptLog: it is not JSON, not such a file, or not as it was written.
    """
    damage: ValueError | None = None
    try:
        data = checked(data)
    except ValueError as error:  # another version may have other checksums, or none
        damage = error
    try:
        version = msgspec.json.decode(data, type=Versioned).format_version
        if version != FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{path}: format version {version}; this program reads {FORMAT_VERSION}: "
                "use the program that wrote it, or a newer one"
            )
        if damage is not None:
            raise damage
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise CorruptLog(path, 0, f"unreadable ({error}); {kind.remedy}") from error


class RefusedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `refused`: a record that the cluster refused. It is one of the batch at (run, roll,
    start), by the publisher's own numbers; why, where that is told (of a batch only of the first
    ones); and what it was. `is_lost`: its bytes were not here any more.
    """

    topic: str
    partition: int
    run: int
    roll: int
    start: int
    record: int
    together: int = 1
    """How many of the batch were refused: their lines follow each other."""
    column: str = ""
    """Empty: the value as a whole does not fit."""
    expected: str = ""
    found: str = ""
    timestamp: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = []
    is_lost: bool = False
