"""Planted bugs in what Kafka clients may do to each other: by long requests, races, transactional
ids and odd batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, cast
from unittest.mock import patch

from msgspec import structs

from samelog.format import compression
from samelog.mirror import copying
from samelog.runtime import slices
from samelog.sequencer.admin.placement import PlacementPlan
from samelog.sequencer.state.transactions import changes
from samelog.sequencer.state.transactions.commands import InitProducer


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

    def note(self: PlacementPlan, *_: Any) -> None:
        """Nothing changes."""

    with patch.object(PlacementPlan, "_note", note):
        yield


@contextmanager
def fence_the_overdue() -> Iterator[None]:
    """A producer whose transaction timed out is fenced as if by a rival."""
    original = changes._said_again

    def said_again(state: Any, command: Any) -> Any:
        return original(state, command) if command.bumps else None

    with patch.object(changes, "_said_again", said_again):
        yield


@contextmanager
def let_anyone_take_it() -> Iterator[None]:
    """Each identity that asks for a transactional id is its owner."""

    def init(state: Any, command: Any) -> Any:
        return original(state, structs.replace(command, owner=""))

    original = changes._CHANGES[InitProducer]
    with patch.dict(cast(Any, changes._CHANGES), {InitProducer: init}):
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


_TRANSACTIONS = "tests/sequencer/test_transaction_state.py::"
_COPYING = "tests/mirror/test_copying.py::"
_TOGETHER = "tests/kafka/test_creating_together.py::"
_SLICES = "tests/runtime/test_slices.py::"
PACING = (
    (360, one_long_slice, _SLICES + "test_no_turn_has_more_than_a_slice"),
    (
        360,
        first_come_first_served,
        _SLICES + "test_clients_have_slices_in_turn_however_many_connections_they_have",
    ),
    (
        361,
        plan_each_topic_alone,
        _TOGETHER + "test_a_request_is_one_entry_and_its_topics_are_spread",
    ),
    (
        362,
        fence_the_overdue,
        _TRANSACTIONS + "test_a_producer_whose_transaction_timed_out_aborts_and_goes_on",
    ),
    (
        363,
        let_anyone_take_it,
        _TRANSACTIONS
        + "test_a_transactional_id_belongs_to_whoever_used_it_first_until_it_is_forgotten",
    ),
    (
        365,
        bring_what_nodes_refuse,
        _COPYING + "test_what_is_before_a_batch_that_cannot_be_held_is_mirrored_and_a_gap_leads_on",
    ),
    (364, read_behind_the_first_frame, "tests/format/test_oddities.py::test_what_is_odd"),
)
