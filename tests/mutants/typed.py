"""Planted bugs in what becomes of schemas, and of records that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa

from samelog.admin.known_schemas import KnownSchemas, TopicSchemas
from samelog.config.authorisation import Rights
from samelog.format.arrow import to_arrow
from samelog.publisher import typed_rows as publisher_rows
from samelog.publisher.appender import Appender
from samelog.publisher.lanes import RunPart
from samelog.replicator.pull.served_rows import RowStream
from samelog.sequencer.filtering import view_stream
from samelog.sequencer.filtering.pieces import RowFilters
from samelog.sequencer.state import machine
from samelog.sequencer.state.command_base import WhyNot
from samelog.sequencer.state.tables.schemas import SchemasTable, SchemaVersion, SetSchemaCommand
from samelog.sequencer.state.types import State
from samelog.sequencer.state.units import schemas, topics, views
from samelog.store.merged import partition_file
from samelog.subscriber import tail_reader
from samelog.subscriber import typed_rows as subscriber_rows
from samelog.subscriber.cursor import Cursor
from samelog.subscriber.engine import Engine
from samelog.subscriber.handling import Handling
from samelog.typed import judging, reading, resolution
from samelog.typed.filters import passing
from samelog.typed.filters.operands import Operand
from samelog.typed.filters.passing import Passing
from samelog.typed.filters.selection import Selection
from samelog.typed.versions import mark, number_in


@contextmanager
def set_behind_any_version() -> Iterator[None]:
    """A version follows whatever is the newest, not the one that its author saw."""
    original = machine.CHANGES[SetSchemaCommand]

    def set_schema(state: State, command: SetSchemaCommand) -> WhyNot:
        newest = len(state.topics.by_id[command.topic_id].schemas)
        return original(state, msgspec.structs.replace(command, follows=newest))

    with patch.dict(machine.CHANGES, {SetSchemaCommand: set_schema}):
        yield


@contextmanager
def judge_no_compatibility() -> Iterator[None]:
    """A version is taken though it is not compatible with the newest one."""
    with patch.object(schemas, "problems_between", lambda mode, new, old: []):
        yield


@contextmanager
def forget_shared_texts() -> Iterator[None]:
    """A topic that is deleted takes its schemas' texts along, though another topic has them too."""

    def forget(self: SchemasTable, versions: Sequence[SchemaVersion]) -> None:
        for version in versions:
            self.texts.pop(version.fingerprint, None)

    with patch.object(SchemasTable, "forget", forget):
        yield


@contextmanager
def begin_logs_without_a_version() -> Iterator[None]:
    """No version is in force in a partition that is new, or restarts."""
    with patch.object(State, "_begin_versions", lambda self, topic, numbers: None):
        yield


@contextmanager
def overrule_marks() -> Iterator[None]:
    """A record has the version that was in force where it was merged, whatever its mark says."""
    with patch.object(reading, "marks_of", lambda records: {}):
        yield


@contextmanager
def read_what_is_incompatible() -> Iterator[None]:
    """A value of a version that cannot be read as the reader's is made to fit."""
    with patch.object(resolution, "problems_reading", lambda reader, writer: []):
        yield


@contextmanager
def pass_over_what_cannot_be_read() -> Iterator[None]:
    """A subscriber goes on behind a record that it could not read, and raised an error for."""
    with patch.object(Cursor, "put_back", lambda self, offset: None):
        yield


@contextmanager
def mark_all_with_the_first_version() -> Iterator[None]:
    """A publisher marks its rows with version 1, whatever version they were encoded with."""
    with patch.object(publisher_rows, "mark", lambda version, fingerprint: mark(1, fingerprint)):
        yield


@contextmanager
def follow_the_number_of_a_mark() -> Iterator[None]:
    """A marked record has the version of that number, whichever schema its mark says."""
    by_number = "marked_version", lambda value, schemas: number_in(value)
    with patch.object(reading, *by_number), patch.object(judging, *by_number):
        yield


@contextmanager
def stay_with_a_deleted_schema() -> Iterator[None]:
    """A publisher stays with its version when the sidecar learns that the topic was deleted."""
    with patch.object(KnownSchemas, "is_gone", lambda self, topic, topic_id: False):
        yield


@contextmanager
def read_by_the_schema_of_a_name() -> Iterator[None]:
    """A subscriber reads a topic that was created again as the version of the deleted topic."""
    original = subscriber_rows.RowReader._reader

    def reader(
        self: subscriber_rows.RowReader, topic: str, known: TopicSchemas, columns: pa.Schema
    ) -> tuple[reading.TypedReader, Selection]:
        chosen = self._chosen.get(topic)
        if chosen is not None:
            self._chosen[topic] = known.topic_id, *chosen[1:]
        return original(self, topic, known, columns)

    with patch.object(subscriber_rows.RowReader, "_reader", reader):
        yield


@contextmanager
def append_rows_before_the_one_that_is_refused() -> Iterator[None]:
    """Batches are built while those before them are written."""

    def build(self: Appender, by_run: Sequence[RunPart]) -> Iterator[Callable[[], None]]:
        for _, parts in by_run:
            for lane, part, numbers in parts:
                yield from self._lanes.writes(lane, part, numbers)

    with patch.object(Appender, "_build", build):
        yield


@contextmanager
def believe_lists_that_end_too_early() -> Iterator[None]:
    """A node that lags says which versions were in force, and that counts for all records."""
    with patch.object(subscriber_rows, "_covers", lambda known, partition, records: True):
        yield


@contextmanager
def copy_the_newest_version_alone() -> Iterator[None]:
    """A copy of a segment has the schema that was in force at its end, and none before."""
    original = State.schema_texts

    def schema_texts(self: State, topic_id: str, newest: int) -> tuple[str, ...]:
        return original(self, topic_id, newest)[-1:]

    with patch.object(State, "schema_texts", schema_texts):
        yield


@contextmanager
def go_on_behind_what_failed() -> Iterator[None]:
    """A handler's error ends the run, and the next one begins behind what it failed for."""
    with patch.object(Engine, "rewind", lambda self: None):
        yield


@contextmanager
def end_as_if_it_had_succeeded() -> Iterator[None]:
    """A subscriber that is closed between two tries goes on to what comes next."""
    original = Handling._deal_with

    def deal_with(self: Handling, item: Any, tend: Callable[[], None]) -> bool:
        original(self, item, tend)
        return True

    with patch.object(Handling, "_deal_with", deal_with):
        yield


@contextmanager
def compare_nan_as_arrow_does() -> Iterator[None]:
    """In filters NaN is unequal to itself, and above nothing."""
    with patch.object(Operand, "is_float", False):
        yield


@contextmanager
def take_rows_for_the_log() -> Iterator[None]:
    """A directory is opened whatever passed into it."""
    with (
        patch.object(partition_file, "check_kind", lambda directory, known, wanted: None),
        patch.object(tail_reader, "check_kind", lambda directory, known, wanted: None),
    ):
        yield


@contextmanager
def count_only_what_passed() -> Iterator[None]:
    """A piece ends with the last record that passes."""
    original = Passing.piece

    def piece(self: Passing, *args: Any) -> passing.PassedPiece:
        found = original(self, *args)
        data, last = found.data, found.next_offset
        records = to_arrow(data, 0, len(data), topic="", partition=0)["offset"]
        return found._replace(next_offset=records[-1].as_py() + 1 if len(records) else last)

    with patch.object(Passing, "piece", piece):
        yield


@contextmanager
def go_on_at_the_beginning() -> Iterator[None]:
    """Who comes again gets what passes from the start of the log on."""
    original = RowStream.begin

    def begin(self: RowStream, offset: int, place: tuple[int, int]) -> None:
        original(self, self.log.start_offset, place)

    with patch.object(RowStream, "begin", begin):
        yield


@contextmanager
def leave_out_what_cannot_be_read() -> Iterator[None]:
    """A record that cannot be read does not pass, whoever asks."""
    original = Passing.__init__

    def make(self: Passing, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "skips_unread": True})

    with patch.object(Passing, "__init__", make):
        yield


@contextmanager
def compute_for_each_reader() -> Iterator[None]:
    """Nothing that was computed is kept for the next one who asks for the same."""
    with patch.object(RowFilters, "kept", lambda self, source, offset: None):
        yield


@contextmanager
def compute_whatever_is_there() -> Iterator[None]:
    """Pieces are computed for a reader that takes none."""
    with patch.object(RowStream, "_waiting_bytes", lambda self: 0):
        yield


@contextmanager
def let_views_outlive_rights() -> Iterator[None]:
    """A view tells on when its owner may not read the base any more."""
    with patch.object(Rights, "may_subscribe", lambda self, identity, topic: True):
        yield


@contextmanager
def ask_views_for_anything() -> Iterator[None]:
    """A condition that is asked of a view may name columns that the view lacks."""
    with patch.object(view_stream, "Filter", lambda text, rows, records: None):
        yield


@contextmanager
def delete_what_views_need() -> Iterator[None]:
    """A topic goes though views stand on it."""
    with patch.object(topics, "why_not_dropped", lambda state, topic_id: None):
        yield


@contextmanager
def retype_what_views_need() -> Iterator[None]:
    """A version may lack what a view needs."""
    with patch.object(schemas, "why_not_changed", lambda state, topic, schema: None):
        yield


@contextmanager
def keep_the_log_of_a_view() -> Iterator[None]:
    """A view's log keeps its id, although its base's log was restarted."""
    with patch.object(views, "log_of_view", lambda topic_id, base: topic_id):
        yield


_STATE, _VERSIONS = "tests/sequencer/test_schema_state.py::", "tests/typed/test_versions.py::"
_PUBLISHER, _SUBSCRIBER = "tests/publisher/test_rows.py::", "tests/subscriber/test_rows.py::"
_COPIES = "tests/archiver/test_copied_schemas.py::"
_HANDLING = "tests/subscriber/test_handling.py::"
_FILTERS = "tests/typed/test_filters.py::"
_PASSING, _VIEWS = "tests/typed/test_passing.py::", "tests/sequencer/test_views.py::"
_ROWS, _PIECES = "tests/replicator/test_pull_rows.py::", "tests/sequencer/test_row_filters.py::"

TYPED = (
    (
        "typed.1",
        set_behind_any_version,
        _STATE + "test_a_version_is_set_against_the_one_that_was_seen",
    ),
    ("typed.1", judge_no_compatibility, _STATE + "test_compatibility_is_judged_as_the_topic_says"),
    (
        "typed.1",
        forget_shared_texts,
        _STATE + "test_equal_texts_are_kept_once_and_as_long_as_a_topic_has_them",
    ),
    (
        "typed.2",
        begin_logs_without_a_version,
        _STATE + "test_resets_keep_all_versions_and_records_of_the_new_log_have_the_newest",
    ),
    ("typed.2", overrule_marks, _VERSIONS + "test_the_mark_decides_and_not_the_time_of_merging"),
    (
        "typed.2",
        read_what_is_incompatible,
        _VERSIONS + "test_a_step_that_is_compatible_need_not_be_after_two",
    ),
    (
        "typed.2",
        pass_over_what_cannot_be_read,
        _SUBSCRIBER + "test_a_record_that_cannot_be_read_ends_what_is_handed_out_before_it",
    ),
    (
        "typed.4",
        mark_all_with_the_first_version,
        _PUBLISHER + "test_a_publisher_stays_with_its_version_until_it_is_asked_for_another",
    ),
    (
        "typed.20",
        follow_the_number_of_a_mark,
        _VERSIONS
        + "test_a_record_of_a_schema_that_the_topic_does_not_have_is_never_read_by_another",
    ),
    (
        "typed.21",
        stay_with_a_deleted_schema,
        _PUBLISHER + "test_what_a_sidecar_forgets_its_publisher_forgets",
    ),
    (
        "typed.21",
        read_by_the_schema_of_a_name,
        _SUBSCRIBER + "test_a_topic_that_is_created_again_is_read_as_its_own_newest_version",
    ),
    (
        "typed.4",
        append_rows_before_the_one_that_is_refused,
        _PUBLISHER + "test_one_record_that_is_too_large_refuses_all_partitions",
    ),
    (
        "typed.5",
        believe_lists_that_end_too_early,
        _SUBSCRIBER + "test_what_is_in_force_is_asked_for_up_to_the_records",
    ),
    (
        "archive.5",
        copy_the_newest_version_alone,
        _COPIES + "test_a_segment_names_the_versions_up_to_the_one_in_force_at_its_end",
    ),
    (
        "readers.3",
        go_on_behind_what_failed,
        _HANDLING + "test_stopping_leaves_the_position_before_what_failed",
    ),
    (
        "readers.3",
        end_as_if_it_had_succeeded,
        _HANDLING + "test_closing_ends_retrying_and_what_failed_is_not_dealt_with",
    ),
    (
        "typed.3",
        compare_nan_as_arrow_does,
        _FILTERS + "test_every_value_compares_with_every_literal_as_in_duckdb",
    ),
    (
        "readers.5",
        take_rows_for_the_log,
        _ROWS + "test_a_directory_has_what_passed_one_filter_or_the_log",
    ),
    (
        "readers.6",
        count_only_what_passed,
        _PASSING + "test_every_offset_is_in_a_batch_and_rows_keep_theirs",
    ),
    ("readers.6", go_on_at_the_beginning, _ROWS + "test_what_passes_comes_and_goes_on_at_any_node"),
    (
        "readers.7",
        leave_out_what_cannot_be_read,
        _PASSING + "test_what_cannot_be_read_passes_as_it_is_and_is_named",
    ),
    ("readers.8", compute_for_each_reader, _PIECES + "test_equal_filters_are_computed_once"),
    (
        "readers.8",
        compute_whatever_is_there,
        _ROWS + "test_a_reader_that_takes_nothing_has_little_computed_for_it",
    ),
    (
        "readers.9",
        let_views_outlive_rights,
        _VIEWS + "test_a_view_has_no_more_rights_than_its_owner",
    ),
    (
        "readers.9",
        ask_views_for_anything,
        _VIEWS + "test_what_is_asked_of_a_view_names_its_columns_only",
    ),
    ("readers.10", delete_what_views_need, _VIEWS + "test_a_base_stays_what_its_views_need"),
    ("readers.10", retype_what_views_need, _VIEWS + "test_a_base_stays_what_its_views_need"),
    (
        "readers.10",
        keep_the_log_of_a_view,
        _VIEWS + "test_a_new_log_gives_its_views_another_one",
    ),
)
