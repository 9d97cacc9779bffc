"""Planted bugs in what becomes of damaged session files, at a publisher and at nodes."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from samelog.format import checked_json
from samelog.format.directory_files import RunFile
from samelog.format.errors import LogFormatError
from samelog.publisher.output import Output
from samelog.publisher.session_writer import SessionWriter
from samelog.publisher.staging import StagedWriter
from samelog.replicator.interfaces import InputName, RollByte, RunEnds
from samelog.replicator.push import session_damage, session_tail
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.session_damage import SessionDamage
from samelog.replicator.push.session_tail import RunTail
from samelog.sequencer.merge.session_store import SessionStore
from samelog.store.merged import partition_file
from samelog.store.session import backlog_mark, dead_runs
from samelog.store.session.log import InputLog
from samelog.store.session.recovery import RunRecovery
from samelog.wire.push.inputs import RunInputs
from samelog.wire.push.sender import PushSender


@contextmanager
def take_damage_for_a_torn_tail() -> Iterator[None]:
    """A dead run is cut where its first damaged batch begins."""
    with patch.object(dead_runs, "find_damage", lambda *_, **__: None):
        yield


@contextmanager
def stop_at_damage() -> Iterator[None]:
    """What is behind a damaged batch waits until the batch is mended."""
    with patch.object(session_tail, "find_damage", lambda *_, **__: None):
        yield


@contextmanager
def want_every_file_below() -> Iterator[None]:
    """A position that a node reports is used only if all files below it are there."""
    original = RunTail.raise_to

    def raise_to(self: RunTail, place: RollByte) -> None:
        for roll in range(self.end[0], place[0]):
            if roll not in self._names.sealed:
                self._file(roll)
        original(self, place)

    with patch.object(RunTail, "raise_to", raise_to):
        yield


@contextmanager
def send_the_rest_again() -> Iterator[None]:
    """The next part begins behind the damage, wherever the cluster's copy of the run ends."""

    def behind(tail: RunTail, end: RollByte) -> RollByte:
        return end if tail.damage is None else tail.damage.stop

    with patch.object(SessionDamage, "behind", staticmethod(behind)):
        yield


@contextmanager
def name_parts_by_chance() -> Iterator[None]:
    """The next part has another id in each copy of a session's directory."""
    with patch.object(session_damage, "_next_id", lambda *part: secrets.token_hex(16)):
        yield


@contextmanager
def let_newer_runs_pass() -> Iterator[None]:
    """A newer run is opened as soon as a part of a damaged run is closed."""

    def oldest(self: PushSender) -> object:
        runs = self._session.runs
        return next((known for known in runs if known.run_id not in self._closed), None)

    with patch.object(PushSender, "_oldest_open", oldest):
        yield


@contextmanager
def go_on_before_it_is_merged() -> Iterator[None]:
    """The next part begins though a majority has not merged the closed one durably."""
    with patch.object(PushClient, "_is_merged", lambda *_: True):
        yield


@contextmanager
def cut_damage_above_the_mark() -> Iterator[None]:
    """A node cuts its copy of a session where the first bad batch above the mark begins."""
    with patch.object(RunRecovery, "_has_evidence", lambda *_: False):
        yield


@contextmanager
def forget_damage_above_the_mark() -> Iterator[None]:
    """A restarted node takes damage above the mark for the loss of bytes that were not synced."""
    original = SessionStore._open_log

    def open_log(self: SessionStore, *made: Any, **how: Any) -> InputLog:
        self._lost_power = True
        return original(self, *made, **how)

    with patch.object(SessionStore, "_open_log", open_log):
        yield


@contextmanager
def mark_half_a_batch() -> Iterator[None]:
    """A mark of waiting bytes is the size of the file, even if its last batch is incomplete."""

    def heads(file: object, start: int, stop: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(start=start, size=stop - start)]

    with patch.object(backlog_mark, "batch_heads", heads):
        yield


@contextmanager
def read_the_first_text_only() -> Iterator[None]:
    """A small file counts as unreadable if its first text is damaged."""

    def texts(data: bytes) -> Iterator[bytes]:
        found = checked_json._CHECKSUM.search(data)
        yield data if found is None else data[: found.end()] + b"\n}\n"

    with patch.object(checked_json, "_texts", texts):
        yield


@contextmanager
def stop_at_an_unreadable_input() -> Iterator[None]:
    """A disk that cannot read one partition of a session stops the others."""

    def note_fault(self: LocalSession, where: object, error: LogFormatError | None) -> None:
        if error is not None:
            raise error

    with patch.object(LocalSession, "_note_fault", note_fault):
        yield


@contextmanager
def seal_behind_the_next_file() -> Iterator[None]:
    """A file is sealed after the next one was created, and the names are not synced between."""

    def roll(self: SessionWriter, output: Output) -> None:
        run, next_roll = self._current_run(), output.roll + 1
        self._fs.sync_directory(self._input_path(output))
        following = self._open_file(output, run, next_roll)
        self._seal(output)
        output.begin(following, next_roll)

    with patch.object(SessionWriter, "_roll", roll):
        yield


@contextmanager
def set_aside_despite_marks() -> Iterator[None]:
    """A damaged partition.json is not made again from the marks."""
    with patch.object(partition_file, "_from_marks", lambda *_: None):
        yield


@contextmanager
def go_on_behind_damage_in_a_stage() -> Iterator[None]:
    """What is intact behind damage in a stage's files is shipped as another run."""

    def goes_on(self: LocalSession, run: RunFile) -> bool:
        return self.is_current(run) and self.damage.is_found(run.run)

    with patch.object(LocalSession, "goes_on", goes_on):
        yield


@contextmanager
def remove_damaged_stages() -> Iterator[None]:
    """A writer whose files are damaged removes them when it is left."""
    never = property(lambda self: False, lambda self, value: None)
    with patch.object(StagedWriter, "_is_damaged", never, create=True):
        yield


@contextmanager
def go_on_behind_closed_runs() -> Iterator[None]:
    """Damage that is found behind the end of a closed run holds up the runs that follow."""
    original = PushClient.on_run_closed

    def close(
        self: PushClient, run: RunFile, ends: RunEnds, parts: Container[InputName] = ()
    ) -> None:
        original(self, run, ends, parts)
        self._session.damage.closed.clear()

    with patch.object(PushClient, "on_run_closed", close):
        yield


@contextmanager
def skip_damage_unnoted() -> Iterator[None]:
    """A part of a run begins behind damage that is not noted."""
    original = PushClient._go_on

    def go_on(self: PushClient) -> None:
        with patch.object(LocalSession, "has_unnoted_damage", lambda self, run: False):
            original(self)

    with patch.object(PushClient, "_go_on", go_on):
        yield


@contextmanager
def open_the_next_run_at_once() -> Iterator[None]:
    """A newer run is opened before damage is looked for where the last one was closed."""
    original = PushSender._run_closed

    def closed(self: PushSender, message: Any, now: float) -> None:
        original(self, message, now)
        self.session_changed(now)

    with patch.object(PushSender, "_run_closed", closed):
        yield


@contextmanager
def insist_on_damaged_bytes() -> Iterator[None]:
    """An end that was named stays, although damage is found in front of it."""
    with patch.object(RunInputs, "has_named_damage", False):
        yield


@contextmanager
def forget_damage_of_released_runs() -> Iterator[None]:
    """Damage is reported only by processes that ship the run that it is in."""
    with patch.object(SessionDamage, "recall", lambda self, names: None):
        yield


_PUBLISHER = "tests/publisher/test_damage.py::"
_STAGED = "tests/publisher/test_staged_damage.py::"
_TAIL = "tests/replicator/test_session_tail.py::"
_PUSH = "tests/replicator/test_push_damage.py::"

_WRITER = "tests/publisher/test_session_writer.py::"
_JSON = "tests/format/test_checked_json.py::"
_MARKS = "tests/replicator/test_backlog_marks.py::"
_INPUT_LOG = "tests/store/test_input_log.py::"
_STORE = "tests/sequencer/test_session_store.py::"

PUBLISHER_DAMAGE = (
    (
        "sessions.19",
        seal_behind_the_next_file,
        _WRITER + "test_a_power_failure_leaves_no_gap_in_a_run_that_nothing_shows",
    ),
    (
        "sessions.26",
        take_damage_for_a_torn_tail,
        _PUBLISHER + "test_an_intact_batch_behind_it_tells_damage_from_a_torn_tail",
    ),
    ("sessions.26", mark_half_a_batch, _MARKS + "test_a_mark_is_a_boundary_of_whole_batches"),
    ("sessions.26", stop_at_damage, _PUSH + "test_a_missing_file_and_a_cut_one"),
    (
        "sessions.28",
        cut_damage_above_the_mark,
        _INPUT_LOG + "test_files_behind_a_bad_one_above_the_mark_are_set_aside",
    ),
    (
        "sessions.28",
        forget_damage_above_the_mark,
        _STORE + "test_damage_above_the_mark_counts_unless_the_power_was_lost",
    ),
    (
        "sessions.29",
        set_aside_despite_marks,
        "tests/store/test_merged_log.py::test_a_damaged_partition_file_is_made_again_from_the_marks",
    ),
    (
        "sessions.29",
        read_the_first_text_only,
        _JSON + "test_a_turned_bit_changes_nothing_that_is_read",
    ),
    (
        "sessions.29",
        stop_at_an_unreadable_input,
        _PUSH + "test_an_input_that_cannot_be_read_stops_alone",
    ),
    ("sessions.27", send_the_rest_again, _PUSH + "test_a_node_that_has_damaged_bytes_spares_them"),
    (
        "sessions.27",
        name_parts_by_chance,
        _PUSH + "test_copies_of_a_damaged_directory_are_shipped_in_the_same_parts",
    ),
    (
        "sessions.27",
        want_every_file_below,
        _TAIL + "test_files_below_a_known_boundary_may_be_missing",
    ),
    ("sessions.27", let_newer_runs_pass, _PUSH + "test_the_order_of_runs_and_partitions_stays"),
    (
        "sessions.44",
        go_on_behind_damage_in_a_stage,
        _PUSH + "test_nothing_behind_damage_in_a_stage_is_shipped",
    ),
    ("sessions.44", remove_damaged_stages, _STAGED + "test_damage_ends_a_stage_at_once"),
    (
        "sessions.27",
        go_on_before_it_is_merged,
        _PUSH + "test_a_part_waits_until_the_last_one_is_merged",
    ),
    (
        "sessions.53",
        go_on_behind_closed_runs,
        _PUSH + "test_damage_behind_the_end_of_a_closed_run_holds_up_nothing",
    ),
    (
        "sessions.54",
        skip_damage_unnoted,
        _PUSH + "test_damage_that_is_found_while_a_part_waits_is_reported",
    ),
    (
        "sessions.54",
        open_the_next_run_at_once,
        "tests/replicator/test_named_damage.py::test_the_next_run_waits_for_damage_where_a_closed_part_ends",
    ),
    (
        "sessions.56",
        insist_on_damaged_bytes,
        "tests/replicator/test_named_damage.py::test_an_end_is_named_again_if_damage_is_found_in_front_of_it",
    ),
    (
        "sessions.57",
        forget_damage_of_released_runs,
        _PUBLISHER + "test_each_later_publisher_reports_a_loss_until_its_copy_is_removed",
    ),
)
"""Rule, bug, and the test that finds it."""
