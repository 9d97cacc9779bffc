"""Planted bugs about where things are: the newest bytes in memory, Raft's files on another disk."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.format.marks import FoundRecords, RunMark, find_session_marks
from samelog.sequencer.raft import raft_home
from samelog.store.disk.tail_memory import LogTail, TailMemory
from samelog.store.session import marks_file
from samelog.store.session.log import InputLog
from samelog.store.session.marks_file import MarksFile
from samelog.store.session.run import HeldRun


@contextmanager
def keep_what_was_cut() -> Iterator[None]:
    """Bytes in memory stay there when the log is cut, and newer ones follow them."""
    wrote, read = LogTail.wrote, LogTail.read

    def write_on(self: LogTail, layout: int, *place: Any, **how: Any) -> None:
        wrote(self, 0, *place, **how)

    def read_all(self: LogTail, layout: int, *place: Any) -> bytes | None:
        return read(self, 0, *place)

    with patch.object(LogTail, "wrote", write_on), patch.object(LogTail, "read", read_all):
        yield


@contextmanager
def keep_every_byte() -> Iterator[None]:
    """The limit of what is kept in memory is of one log at most, and of none in truth."""
    with patch.object(TailMemory, "trim", lambda self: None):
        yield


@contextmanager
def keep_bytes_of_what_is_given_up() -> Iterator[None]:
    """What is in memory of a session log stays there when its run is set aside or begins later."""
    with patch.object(InputLog, "_give_up_bytes", lambda self: None):
        yield


@contextmanager
def believe_memory_always() -> Iterator[None]:
    """Bytes in memory that have another digest count as damage at once."""

    def copy(self: InputLog, *args: Any, from_file: bool = False) -> bytearray:
        return original(self, *args)

    original = InputLog.copy
    with patch.object(InputLog, "copy", copy):
        yield


@contextmanager
def begin_without_raft_files() -> Iterator[None]:
    """A node takes whatever is in its `raft_dir`: nothing, where a disk is not mounted."""

    def check(*args: Any, **options: Any) -> None:
        """It will be right."""

    with patch.object(raft_home, "check_home", check):
        yield


@contextmanager
def count_what_is_being_copied() -> Iterator[None]:
    """Files that are moved count at the new place before they are there."""
    original = raft_home._make_way

    def make_way(fs: Any, config: Any, mark: Any) -> None:
        original(fs, config, mark)
        if raft_home.home_of(config) != config.data:
            raft_home._mark_both(fs, config, mark)

    with patch.object(raft_home, "_make_way", make_way):
        yield


@contextmanager
def trust_older_raft_files() -> Iterator[None]:
    """Raft's files are as good as any, whenever they are of."""
    with patch.object(raft_home, "why_doubted", lambda fs, config, incarnation: ""):
        yield


@contextmanager
def mark_what_is_written() -> Iterator[None]:
    """Marks of session logs vouch for bytes that were written, synced or not."""

    def mark(self: HeldRun) -> RunMark:
        return RunMark(self.number, *self.end, self.hint)

    with patch.object(HeldRun, "mark", mark):
        yield


@contextmanager
def take_damaged_marks_for_torn_ones() -> Iterator[None]:
    """A record of session marks that is damaged counts as one that was never written whole."""

    def find(data: bytes) -> FoundRecords:
        found = find_session_marks(data)
        return FoundRecords(found.records, len(data), is_damaged=False)

    with patch.object(marks_file, "find_session_marks", find):
        yield


@contextmanager
def replace_marks_before_they_are_durable() -> Iterator[None]:
    """The new file of session marks takes the place of the old one unsynced."""
    original = MarksFile._rewrite

    def write(self: MarksFile, marks: Any) -> Generator[list[Any], None, int]:
        rounds = original(self, marks)
        while True:
            try:
                next(rounds)
            except StopIteration as over:
                return int(over.value)
            yield []

    with patch.object(MarksFile, "_rewrite", write):
        yield


_STORE = "tests/sequencer/test_session_store.py::test_"
_TAIL = "tests/store/test_tail_memory.py::test_"
_MARKS = "tests/store/test_marks_file.py::test_"
_RAFT = "tests/sequencer/test_raft_dir.py::test_"
PLACES = (
    ("logs.8", keep_what_was_cut, _TAIL + "a_log_that_was_cut_is_not_read_as_it_was"),
    ("logs.9", keep_every_byte, _TAIL + "the_oldest_of_all_logs_goes_first"),
    (
        "logs.11",
        keep_bytes_of_what_is_given_up,
        _STORE + "unmerged_bytes_are_read_as_they_were_written_whatever_was_done",
    ),
    ("logs.15", mark_what_is_written, _STORE + "marks_do_not_vouch_for_bytes_that_are_not_durable"),
    (
        "logs.15",
        take_damaged_marks_for_torn_ones,
        _MARKS + "a_damaged_record_before_others_is_no_torn_tail",
    ),
    (
        "logs.15",
        replace_marks_before_they_are_durable,
        _MARKS + "a_loss_of_power_leaves_what_was_synced_before",
    ),
    ("logs.11", believe_memory_always, _STORE + "a_mismatch_is_read_again_from_the_file"),
    (
        "raft.42",
        begin_without_raft_files,
        _RAFT + "an_empty_directory_beside_an_old_one_is_refused",
    ),
    ("raft.44", trust_older_raft_files, _RAFT + "older_raft_files_count_for_nothing"),
    ("raft.43", count_what_is_being_copied, _RAFT + "a_move_that_was_interrupted_is_begun_again"),
)
"""Rule, bug, and the test that finds it."""
