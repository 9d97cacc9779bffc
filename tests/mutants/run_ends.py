"""Planted bugs in how runs end that have bytes in several data groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.replicator.push.progress import SessionProgress
from samelog.sequencer.data_groups import ending, passing
from samelog.sequencer.data_groups.intake import RoutedIntake
from samelog.sequencer.raft.closing import RunCloser
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.sessions import OpenPlacedInput, Run, Session, SessionsTable
from samelog.wire.push import inputs
from samelog.wire.push.inputs import RunInputs
from samelog.wire.push.sender import PushSender


@contextmanager
def one_group_holds_up_all() -> Iterator[None]:
    """Group 0 closes a run only once every data group has closed its part."""
    with patch.object(RunCloser, "_may_come_later", lambda *_: False):
        yield


@contextmanager
def wait_for_no_group() -> Iterator[None]:
    """Group 0 closes runs whose ends only the groups know, too."""
    with patch.object(RunCloser, "_may_come_later", lambda *_: True):
        yield


@contextmanager
def take_a_newer_run_first() -> Iterator[None]:
    """A data group begins a run though a part of an older one is yet to come to it."""
    original = SessionsTable.begin_run

    def begin_run(self: SessionsTable, command: OpenPlacedInput) -> Run | Rejection:
        return original(self, replace(command, after=-1))

    with patch.object(SessionsTable, "begin_run", begin_run):
        yield


@contextmanager
def forget_what_comes_with_a_partition() -> Iterator[None]:
    """A part that comes with a partition that is on its way counts as another group's."""

    def is_for(cluster: Any, group: int, partition: int) -> bool:
        is_in: bool = cluster.placement.group_of(partition) == group
        return is_in

    with patch.object(ending, "_is_for", is_for):
        yield


@contextmanager
def move_before_parts_come() -> Iterator[None]:
    """A partition is sealed for another group though parts of runs are yet to come to it."""
    with patch.object(passing, "parts_to_come", lambda *_: False):
        yield


@contextmanager
def move_in_between() -> Iterator[None]:
    """A partition is moved to a group that has yet to get parts of older runs of its sessions."""
    with patch.object(passing, "come_in_between", lambda *_: False):
        yield


@contextmanager
def drop_what_is_yet_to_come() -> Iterator[None]:
    """A publisher ships nothing more of a run that group 0 has closed."""

    def trail(self: PushSender, *_: object) -> Any:
        return self.inputs.leave_run()

    with patch.object(PushSender, "_trail", trail):
        yield


@contextmanager
def wait_for_every_group() -> Iterator[None]:
    """A publisher ends a run only once every group has taken all of it."""
    with patch.object(RunInputs, "is_held_up", lambda *_, **__: False):
        yield


@contextmanager
def acknowledge_what_is_named() -> Iterator[None]:
    """What is yet to come to data groups of a closed run counts as acknowledged."""
    original = SessionProgress.close_part

    def close_part(self: SessionProgress, *given: Any) -> None:
        original(self, *given[:3])

    with patch.object(SessionProgress, "close_part", close_part):
        yield


@contextmanager
def forget_runs_with_parts() -> Iterator[None]:
    """A session with parts that are yet to come is forgotten like any other."""
    with patch.object(Session, "has_parts_to_come", False):
        yield


@contextmanager
def wait_for_what_was_retired() -> Iterator[None]:
    """Parts of a retired directory are yet to come as before."""

    def retire(self: Session) -> None:
        if not self.retired:
            self.retired = True
            self.fenced_ids.append(self.session_id)

    with patch.object(Session, "retire", retire):
        yield


@contextmanager
def say_nothing_of_older_parts() -> Iterator[None]:
    """A group does not report a part that it has closed once a newer run has begun there."""
    original = ending.closed

    def closed(state: Any, cluster: Any, sessions: Any) -> Iterator[tuple[str, str]]:
        for name, run_id in original(state, cluster, sessions):
            if state.sessions.by_name[name].runs[-1].run_id == run_id:
                yield name, run_id

    with (
        patch.object(ending, "closed", closed),
        patch("tests.sequencer.test_ending.closed", closed),
    ):
        yield


@contextmanager
def ask_what_does_not_answer() -> Iterator[None]:
    """Each request waits for a group that has not answered the one before."""
    with patch.object(RoutedIntake, "_check_turn", lambda *_: None):
        yield


@contextmanager
def name_ends_that_are_not_known() -> Iterator[None]:
    """A publisher names the ends of files that it has not read to their ends."""
    with patch.object(inputs, "_has_unknown", lambda shipped: False):
        yield


_RUNS = "tests/sequencer/test_ending.py::test_"
_PASSES = "tests/placement/test_passing.py::test_"
_PARTS = "tests/sequencer/test_closed_parts.py::test_"
_INPUTS = "tests/wire/test_push_inputs.py::test_"
_PROGRESS = "tests/replicator/test_push_progress.py::test_"
_TRAILS = "tests/replicator/test_scenarios.py::test_scenario[push_sender_trails]"

RUN_ENDS = tuple(
    ("sessions.60", plant, test)
    for plant, test in (
        (one_group_holds_up_all, _RUNS + "no_group_holds_up_a_newer_run"),
        (wait_for_no_group, _RUNS + "what_only_its_group_knows_is_waited_for[end0-None]"),
        (
            take_a_newer_run_first,
            _RUNS + "a_group_takes_an_older_run_first_and_holds_up_no_other_group",
        ),
        (
            forget_what_comes_with_a_partition,
            _RUNS + "what_comes_with_a_partition_is_taken_first_too",
        ),
        (move_before_parts_come, _PASSES + "a_partition_is_sealed_once_all_parts_are_there"),
        (move_in_between, _PASSES + "a_group_that_lacks_parts_takes_no_partition_of_the_session"),
        (
            ask_what_does_not_answer,
            _PARTS + "a_group_that_does_not_answer_holds_up_no_other_request",
        ),
        (drop_what_is_yet_to_come, _TRAILS),
        (
            name_ends_that_are_not_known,
            _INPUTS + "a_run_does_not_end_before_its_ends_are_known[files0]",
        ),
        (wait_for_every_group, _TRAILS),
        (
            acknowledge_what_is_named,
            _PROGRESS + "what_is_named_and_not_there_is_not_acknowledged",
        ),
        (forget_runs_with_parts, _RUNS + "a_run_with_parts_to_come_is_not_forgotten"),
        (wait_for_what_was_retired, _RUNS + "what_a_retired_directory_has_does_not_come"),
        (
            say_nothing_of_older_parts,
            _RUNS + "a_part_that_was_to_come_is_told_until_group_0_knows",
        ),
    )
)
"""Rule, bug, and the test that finds it."""
