"""Planted bugs in records that nodes check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.publisher.staged_checks import StagedChecks
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.push.refused import RefusedRecords
from samelog.sequencer.judging import libraries
from samelog.sequencer.judging.process import ProcessJudge, WorkerGone, _Worker
from samelog.sequencer.judging.worker import JudgeAnswer, JudgeTask
from samelog.sequencer.merge.bookings import Bookings
from samelog.sequencer.merge.filters import CannotJudge, GivenBatch
from samelog.sequencer.refusing import schema_filter, stage_checks
from samelog.sequencer.refusing.schema_filter import SchemaFilter
from samelog.sequencer.refusing.stage_checks import Ranges, StageChecks
from samelog.sequencer.refusing.verdicts import By, Verdicts
from samelog.sequencer.state.tables.sessions import SessionsTable
from samelog.sequencer.state.units import merges
from samelog.spark.payload import framed_values, typed_values
from samelog.spark.plan import conditions
from samelog.typed import judging
from samelog.typed.framing import Frames
from samelog.typed.judging import FITS, BatchMisfits, Terms
from samelog.typed.schema import NobodyAnswers
from samelog.typed.values.codec import Unfit
from samelog.wire.push.receiver import PushReceiver


@contextmanager
def merge_what_nobody_checked() -> Iterator[None]:
    """Any instruction counts for a topic that nodes check, by whatever version."""
    with patch.object(merges, "why_unchecked", lambda state, partition, command: None):
        yield


@contextmanager
def plan_before_the_verdict() -> Iterator[None]:
    """What is not checked yet is planned."""
    original = SchemaFilter.staying

    def staying(
        self: SchemaFilter, draft: Any, given: GivenBatch, runs: Sequence[int]
    ) -> Sequence[int] | None:
        try:
            return original(self, draft, given, runs)
        except CannotJudge:
            return runs

    with patch.object(SchemaFilter, "staying", staying):
        yield


@contextmanager
def stage_what_nobody_checks() -> Iterator[None]:
    """What is staged for a topic that nodes check is published as it is."""

    async def why_unfit(self: StageChecks, ranges: Ranges) -> str:
        return ""

    with patch.object(StageChecks, "why_unfit", why_unfit):
        yield


@contextmanager
def stage_without_marks() -> Iterator[None]:
    """A staged record without a mark is judged by the newest version, and read by one that is set
    before it is merged.
    """

    def terms(oldest: int, *, needs_mark: bool) -> Terms:
        return Terms(oldest)

    with patch.object(stage_checks, "Terms", terms):
        yield


@contextmanager
def accept_any_version() -> Iterator[None]:
    """Old versions count for new records, whatever the topic says."""

    def oldest(settings: Mapping[str, str], newest: int) -> int:
        return 1

    with patch.object(schema_filter, "oldest_accepted", oldest):
        yield


@contextmanager
def judge_by_an_older_setting() -> Iterator[None]:
    """A verdict counts though fewer versions are accepted by now."""
    original = Verdicts.find

    def find(self: Verdicts, number: int, by: By, batch: bytes) -> BatchMisfits | None:
        return original(self, number, by, batch) or original(self, number, (by[0], 1), batch)

    with patch.object(Verdicts, "find", find):
        yield


@contextmanager
def refuse_by_what_was_heard() -> Iterator[None]:
    """A record is refused by the version that a data group has heard of, though there is a newer
    one.
    """

    async def is_current(self: SchemaFilter, topic_id: str, by: By) -> bool:
        return True

    with patch.object(SchemaFilter, "_is_current", is_current):
        yield


@contextmanager
def check_with_whoever_lacks_it() -> Iterator[None]:
    """Nodes are to check records though one of them could not."""
    with patch.object(libraries, "why_not_checked", lambda presence, state, formats: ""):
        yield


@contextmanager
def stage_rows_unmarked() -> Iterator[None]:
    """A writer stages records for a topic that nodes check as it is given them."""
    with patch.object(StagedChecks, "marked", lambda self, values, headers: None):
        yield


@contextmanager
def judge_any_mark_by_the_newest() -> Iterator[None]:
    """A mark that is no version counts as none."""
    with patch.object(judging, "_marks", lambda columns, schemas: {}):
        yield


@contextmanager
def take_the_crc_for_the_batch() -> Iterator[None]:
    """A verdict counts for other bytes of the same CRC and length."""

    def find(self: Verdicts, number: int, by: By, batch: bytes) -> BatchMisfits | None:
        known = self._known.get((number, by, batch[17:21], len(batch)))
        return None if known is None else known[1]

    with patch.object(Verdicts, "find", find):
        yield


@contextmanager
def learn_what_was_refused() -> Iterator[None]:
    """A refused batch teaches its sequence, and begins its transaction."""
    with patch.object(Bookings, "undo", lambda self: None):
        yield


@contextmanager
def merge_the_rest_of_a_clients_batch() -> Iterator[None]:
    """Of a Kafka client's batch the records that fit are merged, and it sends them again."""
    with patch.object(SchemaFilter, "_is_whole", lambda self, given: False):
        yield


@contextmanager
def forget_what_was_refused() -> Iterator[None]:
    """Nobody remembers what was refused."""
    with patch.object(SessionsTable, "note_refused", lambda self, refused: None):
        yield


@contextmanager
def refuse_without_end() -> Iterator[None]:
    """What a publisher does not keep grows for ever."""
    with patch.object(schema_filter, "REFUSED_MOST", 1 << 30):
        yield


@contextmanager
def acknowledge_what_is_not_told() -> Iterator[None]:
    """A publisher is told nothing of what is refused, and acknowledged all of it."""
    with patch.object(PushReceiver, "records_refused", lambda self, number, batches: None):
        yield


@contextmanager
def keep_every_time() -> Iterator[None]:
    """Every node's word is kept, as if it were another record."""
    original = RefusedRecords.keep

    def keep(self: RefusedRecords, *given: Any) -> Any:
        self._look().clear()
        return original(self, *given)

    with patch.object(RefusedRecords, "keep", keep):
        yield


@contextmanager
def receive_before_refused_records_are_kept() -> Iterator[None]:
    """A publisher takes a position from a node before it has kept the refused records below it."""
    never = property(lambda self: False, lambda self, value: None)
    with patch.object(PushConversation, "_is_keeping", never, create=True):
        yield


@contextmanager
def take_what_killed_the_worker() -> Iterator[None]:
    """What the process that checks has ended over counts as checked."""
    original = _Worker.ask

    def ask(self: _Worker, task: JudgeTask, stall_s: float) -> JudgeAnswer:
        try:
            return original(self, task, stall_s)
        except (WorkerGone, OSError):
            return JudgeAnswer([FITS] * len(task.batches))

    with patch.object(_Worker, "ask", ask):
        yield


@contextmanager
def ask_the_dead() -> Iterator[None]:
    """A process that has ended is asked for ever."""
    with patch.object(ProcessJudge, "_end", lambda self: None):
        yield


@contextmanager
def guess_when_the_registry_is_away() -> Iterator[None]:
    """A value whose schema nobody says now is one that does not fit."""
    original = Frames.record

    def record(self: Frames, value: bytes) -> Mapping[str, Any]:
        try:
            return original(self, value)
        except NobodyAnswers as error:
            raise Unfit("", str(error), value) from error

    with patch.object(Frames, "record", record):
        yield


@contextmanager
def cut_what_a_column_cannot_hold() -> Iterator[None]:
    """Spark has whatever Arrow makes of a field of another type."""
    with patch.object(framed_values, "_cell", lambda cell, kind: cell):
        yield


@contextmanager
def read_by_what_was_known() -> Iterator[None]:
    """Spark's tasks ask once which versions there are, and never again."""
    with patch.object(typed_values, "covers", lambda newest, complete, records: True):
        yield


@contextmanager
def push_texts_unescaped() -> Iterator[None]:
    """Nodes take % and _ in the text of a filter of Spark for any signs."""

    def like(column: str, pattern: str, text: str) -> str:
        return f"{column} LIKE '{pattern.format(text.replace(chr(39), chr(39) * 2))}'"

    with patch.object(conditions, "_like", like):
        yield


_FILTER = "tests/judging/test_schema_filter.py::test_"
_LATE = "tests/judging/test_late_groups.py::test_"
_BYTES = "tests/typed/test_judging.py::test_"
_NODES = "tests/sequencer/test_schemas.py::test_"
_FRAMES = "tests/typed/test_framing.py::test_"
_SPARK = "tests/spark/test_registry_values.py::test_"
_PUSHED = "tests/spark/test_conditions.py::test_"
_READ = "tests/spark/test_typed_values.py::test_"
_STAGED = "tests/judging/test_stage_checks.py::test_"
_MARKED = "tests/publisher/test_staged_checks.py::test_"
_PROCESS = "tests/judging/test_process.py::test_"
_TOLD = "tests/wire/test_push_receiver.py::test_"
_CLIENT = "tests/replicator/test_push_client.py::test_"
_KEPT = "tests/replicator/test_refused.py::test_"
JUDGING = (
    (
        "typed.6",
        merge_what_nobody_checked,
        _FILTER + "an_instruction_that_names_no_version_is_rejected",
    ),
    ("typed.6", plan_before_the_verdict, _FILTER + "nothing_is_planned_before_it_is_checked"),
    (
        "typed.6",
        stage_what_nobody_checks,
        _STAGED + "the_first_record_that_does_not_fit_is_named",
    ),
    ("typed.11", accept_any_version, _FILTER + "old_versions_count_as_long_as_the_topic_says"),
    ("typed.11", judge_by_an_older_setting, _FILTER + "a_verdict_by_an_older_setting_is_none"),
    (
        "typed.12",
        stage_without_marks,
        _STAGED + "a_record_without_a_mark_may_be_of_any_version_by_then",
    ),
    ("typed.12", stage_rows_unmarked, _MARKED + "what_is_staged_says_its_version"),
    ("typed.13", check_with_whoever_lacks_it, _NODES + "nodes_check_only_what_every_member_can"),
    (
        "typed.14",
        guess_when_the_registry_is_away,
        _FRAMES + "a_registry_that_does_not_answer_is_no_misfit",
    ),
    ("typed.14", cut_what_a_column_cannot_hold, _SPARK + "what_a_column_cannot_hold_is_corrupt"),
    ("typed.17", push_texts_unescaped, _PUSHED + "a_condition_means_what_the_filter_does"),
    ("typed.15", read_by_what_was_known, _READ + "tasks_ask_again_when_newer_records_come"),
    (
        "typed.16",
        refuse_by_what_was_heard,
        _LATE + "nothing_is_refused_by_an_older_version_than_the_cluster_has",
    ),
    (
        "typed.7",
        judge_any_mark_by_the_newest,
        _BYTES + "a_mark_decides_and_one_that_is_no_version_does_not_fit",
    ),
    ("typed.7", take_the_crc_for_the_batch, _FILTER + "a_verdict_is_of_the_very_bytes"),
    ("typed.8", learn_what_was_refused, _FILTER + "a_refused_batch_begins_no_transaction"),
    (
        "typed.8",
        merge_the_rest_of_a_clients_batch,
        _FILTER + "a_kafka_clients_batch_is_refused_as_a_whole_and_teaches_no_sequence",
    ),
    ("typed.9", forget_what_was_refused, _FILTER + "what_is_refused_is_told_in_the_instruction"),
    (
        "typed.9",
        refuse_without_end,
        _FILTER + "more_is_refused_only_when_what_was_before_is_kept",
    ),
    (
        "typed.9",
        acknowledge_what_is_not_told,
        _TOLD + "what_is_refused_is_told_once_and_before_it_is_acknowledged",
    ),
    ("typed.9", keep_every_time, _KEPT + "what_is_refused_is_kept_once_whoever_tells_it"),
    (
        "typed.9",
        receive_before_refused_records_are_kept,
        _CLIENT + "refused_records_are_kept_before_later_messages_count_and_hold_up_no_loop",
    ),
    (
        "typed.10",
        take_what_killed_the_worker,
        _PROCESS + "one_that_was_killed_is_replaced_and_asked_again",
    ),
    ("typed.10", ask_the_dead, _PROCESS + "one_that_was_killed_is_replaced_and_asked_again"),
)
