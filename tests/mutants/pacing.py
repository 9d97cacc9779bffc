"""Planted bugs in what clients may do to each other: by long requests, races, transactional ids and
odd batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, cast
from unittest.mock import patch

from msgspec import structs

from samelog.format import compression
from samelog.format.steps import StepWork, finished
from samelog.http import application, routes
from samelog.kafka import registry
from samelog.kafka.apis import group_answers
from samelog.mirror import copying
from samelog.placement.topics import PlannedTable
from samelog.runtime import slices
from samelog.sequencer.admin import handlers
from samelog.sequencer.merge import merging
from samelog.sequencer.raft import proposer
from samelog.sequencer.state.tables import transactions
from samelog.sequencer.state.tables.transactions import InitProducer
from samelog.wire import conversion, plain


@contextmanager
def one_long_slice() -> Iterator[None]:
    """Long work ends before others have a turn."""
    with patch.object(slices.Slices, "is_over", new=property(lambda _: False)):
        yield


@contextmanager
def first_come_first_served() -> Iterator[None]:
    """Who has many connections has many slices."""
    with patch.object(slices, "context_of", lambda _: copy_context()):
        yield


@contextmanager
def plan_each_topic_alone() -> Iterator[None]:
    """The topics of a request are planned as if none of the others came."""

    def add(self: PlannedTable, *_: Any) -> None:
        """Nothing transactions."""

    with patch.object(PlannedTable, "add", add):
        yield


@contextmanager
def fence_the_overdue() -> Iterator[None]:
    """A producer whose transaction timed out is fenced as if by a rival."""
    original = transactions._said_again

    def said_again(state: Any, command: Any) -> Any:
        return original(state, command) if command.bumps else None

    with patch.object(transactions, "_said_again", said_again):
        yield


@contextmanager
def let_anyone_take_it() -> Iterator[None]:
    """Each identity that asks for a transactional id is its owner."""

    def init(known: Any, command: Any, living: Any) -> Any:
        return original(known, structs.replace(command, owner=""), living)

    original = transactions._CHANGES[InitProducer]
    with patch.dict(cast(Any, transactions._CHANGES), {InitProducer: init}):
        yield


@contextmanager
def read_behind_the_first_frame() -> Iterator[None]:
    """What lies behind a frame is passed over, or read as another one."""
    with patch.object(compression, "_check_end", lambda *_: None):
        yield


@contextmanager
def bring_what_nodes_refuse() -> Iterator[None]:
    """A mirror looks into no batch: nodes refuse all that is in the session behind it."""
    with patch.object(copying, "sound_part", lambda data: (data, None)):
        yield


async def at_once(steps: StepWork[Any]) -> Any:
    """As `slices.paced`, without pauses."""
    return finished(steps)


@contextmanager
def decode_bodies_at_once() -> Iterator[None]:
    """The body of an HTTP request is decoded before others have a turn."""
    with patch.object(routes, "paced", at_once):
        yield


@contextmanager
def convert_bodies_at_once() -> Iterator[None]:
    """The values of a body are checked in one call, however many there are."""
    with patch.object(conversion, "PIECE", 1 << 30):
        yield


@contextmanager
def take_any_number_of_values() -> Iterator[None]:
    """The values of a body are not counted."""
    with patch.object(plain._JsonReader, "_count", lambda _: None):
        yield


@contextmanager
def scan_texts_of_any_length() -> Iterator[None]:
    """A text of megabytes is read in one step."""
    with patch.object(plain, "SCALAR_MAX", 1 << 30):
        yield


@contextmanager
def answer_the_table_at_once() -> Iterator[None]:
    """An administrative request reads all topics, groups and sessions in one turn."""
    with patch.object(handlers, "paced", at_once):
        yield


@contextmanager
def list_groups_at_once() -> Iterator[None]:
    """All groups are listed in one turn of the loop."""
    with patch.object(group_answers, "paced", at_once):
        yield


@contextmanager
def look_for_each_partition() -> Iterator[None]:
    """Each of thousands of new partitions is looked for on disk."""
    with patch.object(merging, "FEW", 1 << 30):
        yield


@contextmanager
def make_any_number_in_an_entry() -> Iterator[None]:
    """An entry makes as many partitions as fit into its bytes."""
    with patch.object(proposer, "ENTRY_PARTITIONS", 1 << 30):
        yield


@contextmanager
def close_after_each_answer() -> Iterator[None]:
    """A connection over HTTP is closed after each answer, as if too many were open."""
    with patch.object(application.HttpApplication, "_is_crowded", property(lambda _: True)):
        yield


@contextmanager
def never_slow_down() -> Iterator[None]:
    """Long work that never ends has as much of the loop as any other."""
    with patch.object(slices, "LONG_PAUSE_S", slices.PAUSE_S):
        yield


@contextmanager
def write_long_audit_lines_at_once() -> Iterator[None]:
    """The audit line of a long request is made in one turn of the loop."""
    with patch.object(registry, "paced", at_once):
        yield


_AUDIT = "tests/kafka/test_audit.py::"
_TURNS = "tests/http/test_turns.py::"
_CREATION = "tests/sequencer/test_creation_turns.py::"
_TRANSACTIONS = "tests/sequencer/test_transaction_state.py::"
_COPYING = "tests/mirror/test_copying.py::"
_TOGETHER = "tests/kafka/test_creating_together.py::"
_SLICES = "tests/runtime/test_slices.py::"
PACING = (
    ("turns.5", one_long_slice, _SLICES + "test_no_turn_has_more_than_a_slice"),
    (
        "turns.5",
        first_come_first_served,
        _SLICES + "test_clients_have_slices_in_turn_however_many_connections_they_have",
    ),
    (
        "kafka.8",
        plan_each_topic_alone,
        _TOGETHER + "test_a_request_is_one_entry_and_its_topics_are_spread",
    ),
    (
        "transactions.10",
        fence_the_overdue,
        _TRANSACTIONS + "test_a_producer_whose_transaction_timed_out_aborts_and_goes_on",
    ),
    (
        "transactions.11",
        let_anyone_take_it,
        _TRANSACTIONS
        + "test_a_transactional_id_belongs_to_whoever_used_it_first_until_it_is_forgotten",
    ),
    (
        "mirrors.16",
        bring_what_nodes_refuse,
        _COPYING + "test_what_is_before_a_batch_that_cannot_be_held_is_mirrored_and_a_gap_leads_on",
    ),
    ("turns.9", decode_bodies_at_once, _TURNS + "test_no_body_is_decoded_in_a_long_turn"),
    ("turns.9", convert_bodies_at_once, _TURNS + "test_no_body_is_decoded_in_a_long_turn"),
    ("turns.9", take_any_number_of_values, _TURNS + "test_values_are_counted"),
    (
        "turns.9",
        scan_texts_of_any_length,
        _TURNS + "test_a_step_scans_a_bounded_part_of_a_body[one-text]",
    ),
    (
        "turns.10",
        answer_the_table_at_once,
        _TURNS + "test_no_request_of_the_table_takes_a_long_turn",
    ),
    (
        "turns.10",
        list_groups_at_once,
        "tests/kafka/test_turns.py::test_many_groups_take_no_long_turn",
    ),
    ("turns.11", look_for_each_partition, _CREATION + "test_no_creation_is_applied_in_a_long_turn"),
    (
        "turns.11",
        make_any_number_in_an_entry,
        _CREATION + "test_entries_are_bounded_by_the_partitions_that_they_make",
    ),
    (
        "turns.12",
        close_after_each_answer,
        _TURNS + "test_requests_without_a_pause_take_no_long_turn",
    ),
    ("turns.12", never_slow_down, _SLICES + "test_work_that_never_ends_has_a_fifth_of_the_loop"),
    (
        "turns.12",
        write_long_audit_lines_at_once,
        _AUDIT + "test_the_line_of_a_long_request_takes_no_long_turn_though_its_client_closes",
    ),
    ("logs.10", read_behind_the_first_frame, "tests/format/test_oddities.py::test_what_is_odd"),
)
