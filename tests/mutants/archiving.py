"""Planted bugs in how archived files are told from others, and emptied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.archiver import history
from samelog.archiver.copies import copying
from samelog.archiver.copies.manifests import CopyFault, TornManifest, encode_manifest
from samelog.archiver.history import ArchiveHistory
from samelog.format.directory_files import PartitionFile
from samelog.format.errors import CorruptLog
from samelog.format.file_names import LOG, segment_bases
from samelog.format.history import encode_record
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.compaction.compactor import Compactor
from samelog.sequencer.state.tables.transfers import TransfersTable
from samelog.sequencer.state.units import placement
from samelog.store.disk.files import FileSystem, OsFileSystem
from samelog.store.merged import log as merged_log
from samelog.store.merged import partition_file, truncation
from samelog.store.merged.recovery import MergedRecovery
from samelog.wire.peer_messages import HistoryAsked, HistoryTold


@contextmanager
def unreadable_is_archived() -> Iterator[None]:
    """A log whose start cannot be read restarts behind all its files."""
    original = partition_file.claim

    def claim(fs: FileSystem, directory: str, wanted: PartitionFile, **how: Any) -> PartitionFile:
        try:
            return original(fs, directory, wanted, **how)
        except CorruptLog:
            names = fs.list_directory(directory)
            truncation.truncate_segments(fs, directory, segment_bases(names))
            return wanted

    with patch.object(merged_log, "claim", claim):
        yield


@contextmanager
def empty_is_archived() -> Iterator[None]:
    """A segment without bytes counts as archived, whatever Raft says."""
    original = MergedRecovery.recover

    def recover(self: MergedRecovery, bases: list[int]) -> None:
        sizes = {base: self.fs.size(self.segments.path(base, LOG)) for base in bases}
        original(self, [base for base in bases if sizes[base] or base == bases[-1]])

    with patch.object(MergedRecovery, "recover", recover):
        yield


@contextmanager
def truncate_in_place() -> Iterator[None]:
    """Archived files are cut, under whoever reads them."""

    def write_atomically(self: OsFileSystem, path: str, data: bytes, **how: Any) -> None:
        file = self.open(path, writable=True, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()

    with patch.object(OsFileSystem, "write_atomically", write_atomically):
        yield


@contextmanager
def truncate_by_path() -> Iterator[None]:
    """Files are truncated in any directory at the path of a copy."""

    def empty(self: OsFileSystem, path: str, *, within: tuple[int, int]) -> None:
        del within
        self.write_atomically(path, b"", durable=False)

    with patch.object(OsFileSystem, "empty", empty):
        yield


@contextmanager
def lose_the_name_of_a_history() -> Iterator[None]:
    """The file that says what was archived goes with the power, though it was synced."""

    def append(self: ArchiveHistory, number: int, files: Any, **how: Any) -> bool:
        file = self._file(number)
        if not file.append(files):
            return False
        self._ends[number] = file.end
        self._dirty.add(number)
        return True

    with patch.object(ArchiveHistory, "_append", append):
        yield


@contextmanager
def take_replicas_without_files() -> Iterator[None]:
    """A new replica votes, and others go, before it has what was archived and compacted."""
    with patch.object(GroupKeeper, "has_files", lambda self, number: True):
        yield


@contextmanager
def decide_without_new_voters() -> Iterator[None]:
    """Former voters decide on a compaction whose segments a new voter lacks."""
    with patch.object(placement, "_give_up_compactions", lambda state, voters: None):
        yield


@contextmanager
def wait_until_it_is_in_place() -> Iterator[None]:
    """Compacted segments count when they are in place only, which the last ones never are."""
    original = Compactor._is_moved

    def is_moved(self: Compactor, number: int) -> bool:
        merged = self._parts.merging.partitions[number]
        with patch.object(merged.log.generations, "written", {}):
            return original(self, number)

    with patch.object(Compactor, "_is_moved", is_moved):
        yield


@contextmanager
def count_what_is_not_synced() -> Iterator[None]:
    """A history that peers told goes with the power, though it counted."""
    original = ArchiveHistory._append

    def append(self: ArchiveHistory, number: int, files: Any, **how: Any) -> bool:
        return original(self, number, files)

    with patch.object(ArchiveHistory, "_append", append):
        yield


@contextmanager
def ask_one_peer_only() -> Iterator[None]:
    """Partitions take turns in asking peers: each of two always asks the same one of two."""
    original, asked = ArchiveHistory._ask, 0

    def ask(self: ArchiveHistory, number: int) -> None:
        nonlocal asked
        self._asked[number], asked = asked, asked + 1
        original(self, number)

    with patch.object(ArchiveHistory, "_ask", ask):
        yield


@contextmanager
def wait_for_a_lost_history() -> Iterator[None]:
    """A history that no member has is asked for without end."""
    with patch.object(ArchiveHistory, "_is_lost", lambda self, lack: False):
        yield


@contextmanager
def take_silence_for_loss() -> Iterator[None]:
    """Voters that cannot be reached are taken for ones that lack it, too."""
    with patch.object(history, "GIVE_UP_S", 0.0):
        yield


@contextmanager
def deny_what_is_to_come() -> Iterator[None]:
    """A member that lags says that it lacks what it will know from its Raft log."""

    def answer(self: ArchiveHistory, node: int, message: HistoryAsked) -> None:
        files = self.read(message.partition, message.offset, history.PAGE_FILES)
        records = b"".join(map(encode_record, files))
        self._cluster.send(node, HistoryTold(message.partition, records, not files))

    with patch.object(ArchiveHistory, "answer", answer):
        yield


@contextmanager
def give_up_what_is_being_copied() -> Iterator[None]:
    """A group gives up the history of a partition that it has yet to be given."""
    with patch.object(TransfersTable, "is_coming", lambda self, partition: False):
        yield


@contextmanager
def stop_at_a_torn_manifest() -> Iterator[None]:
    """Half a manifest at a target stops the copies of its partition."""
    original = copying.read_manifest

    def read(*given: Any) -> Any:
        try:
            return original(*given)
        except TornManifest as error:
            raise CopyFault(str(error)) from error

    with patch.object(copying, "read_manifest", read):
        yield


@contextmanager
def believe_manifests() -> Iterator[None]:
    """A manifest is not read back before its copy counts."""
    original, made = copying.read_manifest, dict[str, Any]()

    def encode(manifest: Any) -> bytes:
        made["last"] = manifest
        return encode_manifest(manifest)

    def read(*given: Any) -> Any:
        return made.pop("last", None) or original(*given)

    with patch.object(copying, "encode_manifest", encode):  # noqa: SIM117
        with patch.object(copying, "read_manifest", read):
            yield


_HISTORY = "tests/archiver/test_history.py::"
_COPYING = "tests/archiver/test_copying.py::"
_UPKEEP = "tests/sequencer/test_group_upkeep.py::"
_COPIES = "tests/replicator/test_copy_upkeep.py::"
_ARCHIVE = "tests/store/test_archive.py::"
ARCHIVING = (
    ("archive.1", unreadable_is_archived, _ARCHIVE + "test_an_unreadable_start_archives_nothing"),
    ("archive.1", empty_is_archived, _ARCHIVE + "test_an_empty_file_above_the_start_is_damage"),
    (
        "archive.8",
        lose_the_name_of_a_history,
        "tests/archiver/test_history.py::test_the_name_of_a_new_history_is_durable",
    ),
    (
        "archive.9",
        take_replicas_without_files,
        _UPKEEP + "test_a_replica_that_does_not_know_what_was_archived_is_no_whole_copy",
    ),
    (
        "archive.9",
        decide_without_new_voters,
        _UPKEEP + "test_who_votes_now_decides_what_is_compacted",
    ),
    (
        "archive.9",
        wait_until_it_is_in_place,
        "tests/sequencer/test_compactor.py::test_who_wrote_what_was_decided_has_it",
    ),
    (
        "archive.9",
        count_what_is_not_synced,
        _HISTORY + "test_what_peers_told_is_durable_before_it_counts",
    ),
    ("archive.9", ask_one_peer_only, _HISTORY + "test_each_partition_asks_every_peer"),
    (
        "archive.10",
        wait_for_a_lost_history,
        _HISTORY + "test_a_history_that_no_voter_has_is_given_up",
    ),
    (
        "archive.10",
        take_silence_for_loss,
        _HISTORY + "test_a_voter_that_may_have_a_history_is_waited_for",
    ),
    (
        "archive.10",
        deny_what_is_to_come,
        _HISTORY + "test_a_voter_that_lags_does_not_say_that_it_lacks_anything",
    ),
    (
        "archive.10",
        give_up_what_is_being_copied,
        _HISTORY + "test_the_history_of_a_partition_that_is_being_copied_is_not_given_up",
    ),
    ("archive.11", stop_at_a_torn_manifest, _COPYING + "test_a_manifest_that_is_not_whole_is_none"),
    (
        "archive.11",
        believe_manifests,
        _COPYING + "test_a_manifest_that_was_not_kept_makes_no_copy",
    ),
    ("logs.2", truncate_in_place, _ARCHIVE + "test_who_reads_a_file_goes_on_reading_it"),
    (
        "logs.13",
        truncate_by_path,
        _COPIES + "test_files_of_a_directory_that_takes_the_place_of_a_copy_are_not_truncated",
    ),
)
"""Rule, bug, and the test that finds it."""
