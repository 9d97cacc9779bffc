"""Planted bugs in what becomes of schemas, and of records that have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from samelog.sequencer.state import schema_state, setting_state
from samelog.sequencer.state.schema_commands import SetSchemaCommand
from samelog.sequencer.state.schemas import Schemas, SchemaVersion
from samelog.sequencer.state.types import State, Topic
from samelog.typed import reading, resolution
from samelog.typed.filters.operands import Operand


@contextmanager
def set_behind_any_version() -> Iterator[None]:
    """A version follows whatever is the newest, not the one that its author saw."""
    original = setting_state.CHANGES[SetSchemaCommand]

    def set_schema(state: State, command: SetSchemaCommand) -> setting_state.Problem:
        newest = len(state.topics[command.topic_id].schemas)
        return original(state, msgspec.structs.replace(command, follows=newest))

    with patch.dict(setting_state.CHANGES, {SetSchemaCommand: set_schema}):
        yield


@contextmanager
def judge_no_compatibility() -> Iterator[None]:
    """A version is taken though it is not compatible with the newest one."""
    with patch.object(schema_state, "problems_between", lambda mode, new, old: []):
        yield


@contextmanager
def forget_shared_texts() -> Iterator[None]:
    """A topic that is deleted takes its schemas' texts along, though another topic has them too."""

    def forget(self: Schemas, versions: Sequence[SchemaVersion]) -> None:
        for version in versions:
            self.texts.pop(version.fingerprint, None)

    with patch.object(Schemas, "forget", forget):
        yield


@contextmanager
def begin_logs_without_a_version() -> Iterator[None]:
    """No version is in force in a partition that is new, or begins anew."""
    original = State.add_partition

    def add_partition(self: State, topic: Topic) -> None:
        original(self, topic)
        self.partitions[topic.partition_numbers[-1]].schema_since.clear()

    with patch.object(State, "add_partition", add_partition):
        yield


@contextmanager
def overrule_marks() -> Iterator[None]:
    """A record has the version that was in force where it was merged, whatever its mark says."""
    with patch.object(reading, "_marks", lambda records: {}):
        yield


@contextmanager
def read_what_is_incompatible() -> Iterator[None]:
    """A value of a version that cannot be read as the reader's is made to fit."""
    with patch.object(resolution, "problems_reading", lambda reader, writer: []):
        yield


@contextmanager
def compare_nan_as_arrow_does() -> Iterator[None]:
    """In filters NaN is unequal to itself, and above nothing."""
    with patch.object(Operand, "is_float", False):
        yield


_STATE, _VERSIONS = "tests/sequencer/test_schema_state.py::", "tests/typed/test_versions.py::"
_FILTERS = "tests/typed/test_filters.py::"

TYPED = (
    (
        96,
        set_behind_any_version,
        _STATE + "test_a_version_is_set_against_the_one_that_was_seen",
    ),
    (96, judge_no_compatibility, _STATE + "test_compatibility_is_judged_as_the_topic_says"),
    (
        96,
        forget_shared_texts,
        _STATE + "test_equal_texts_are_kept_once_and_as_long_as_a_topic_has_them",
    ),
    (
        97,
        begin_logs_without_a_version,
        _STATE + "test_resets_keep_all_versions_and_records_of_the_new_log_have_the_newest",
    ),
    (97, overrule_marks, _VERSIONS + "test_the_mark_decides_and_not_the_time_of_merging"),
    (
        97,
        read_what_is_incompatible,
        _VERSIONS + "test_a_step_that_is_compatible_need_not_be_after_two",
    ),
    (
        98,
        compare_nan_as_arrow_does,
        _FILTERS + "test_every_value_compares_with_every_literal_as_in_duckdb",
    ),
)
"""Rule, bug, and the test that finds it."""
