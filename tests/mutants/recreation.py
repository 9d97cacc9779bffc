"""Planted bugs in what becomes of bytes when their topic is deleted and created again."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.admin.known_schemas import KnownSchemas
from samelog.config.tables.client import OnRecreate
from samelog.format.directory_files import PartitionFile, RunFile, TopicFile
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.client import PushClient, _Release
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.progress import SessionProgress
from samelog.replicator.push.recreation import Recreation
from samelog.replicator.push.release import Removal
from samelog.replicator.push.served_session import PushSession
from samelog.sequencer.cluster.hold_reports import HoldReports
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.merge import merging
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.node import Node
from samelog.sequencer.raft.replica import Replica
from samelog.store.disk.files import OsFileSystem
from samelog.store.merged.log import MergedLog
from samelog.store.session.directory import RunExists, SessionDirectory
from samelog.subscriber.cursor import CHUNK_BYTES, Cursor
from samelog.subscriber.engine import Engine
from samelog.wire.bounds import Ack
from samelog.wire.push.effects import Reached, ShippedInput
from samelog.wire.push.inputs import RunInputs, places_of
from samelog.wire.push.layout import Layout, WirePlace


@contextmanager
def believe_unbound_handles() -> Iterator[None]:
    """Positions count for an input before it is known which topic the node has opened."""

    def acknowledged(self: RunInputs, shipped: ShippedInput, message: Ack) -> None:
        self._effects.append(Reached(0, shipped.name, places_of(message)))

    with patch.object(RunInputs, "acknowledged", acknowledged):
        yield


@contextmanager
def forget_unmerged_bytes() -> Iterator[None]:
    """A publisher takes all its bytes for merged when their topic was deleted."""
    with patch.object(Recreation, "_first_unmerged", lambda self, name: None):
        yield


@contextmanager
def ask_for_topics_without_records() -> Iterator[None]:
    """A publisher asks for the next topic of a name before it has bytes for it."""

    def may_ship(self: LocalSession, name: InputName, run: int) -> bool:
        shipping = self.shipping(name)
        return not shipping.holds(run) and run >= shipping.begin[0]

    with patch.object(LocalSession, "_may_ship", may_ship):
        yield


@contextmanager
def create_known_topics() -> Iterator[None]:
    """A publisher that asks again how many partitions a topic has creates the topic."""
    with patch.object(PushClient, "is_known", lambda self, topic: False):
        yield


@contextmanager
def count_from_the_start_of_files() -> Iterator[None]:
    """What the new topic's nodes report is taken for positions in the files."""

    def local(self: Layout, place: WirePlace) -> SessionPosition:
        return SessionPosition(self.begin[0], *place)

    with patch.object(Layout, "local", local):
        yield


@contextmanager
def confuse_former_topics() -> Iterator[None]:
    """A publisher takes reports about a deleted topic for reports about the next one."""
    with patch.object(LocalSession, "is_former", lambda self, name, topic_id: False):
        yield


@contextmanager
def keep_inputs_that_a_snapshot_lacks() -> Iterator[None]:
    """A node keeps the logs of deleted topics open when it installs a snapshot."""
    with patch.object(Replica, "_lost_inputs", lambda self, newer: []):
        yield


@contextmanager
def plan_again_at_once() -> Iterator[None]:
    """A rejected entry makes the leader forget what is in flight."""
    with patch.object(Planner, "drain", Planner.reset):
        yield


@contextmanager
def stop_before_the_last_record() -> Iterator[None]:
    """A reader of a marked copy stops without looking for more records."""
    with patch.object(Engine, "_fill", lambda self, cursor, limit_bytes: False):
        yield


@contextmanager
def leave_with_the_first_mark() -> Iterator[None]:
    """A reader leaves a deleted topic when one of its copies is marked."""

    def is_over(self: Engine, copies: Collection[Cursor]) -> bool:
        return not any(self._fill(each, CHUNK_BYTES) for each in copies)

    with patch.object(Engine, "_is_over", is_over):
        yield


@contextmanager
def mark_before_the_last_sync() -> Iterator[None]:
    """A copy is marked as deleted while bytes of it are not synced."""
    with patch.object(MergedLog, "dirty", lambda self: False):
        yield


@contextmanager
def decide_at_one_member() -> Iterator[None]:
    """Members know of holds only from publishers that are connected to them."""
    with patch.object(Presence, "told_holds", lambda self, number, session, parts: None):
        yield


@contextmanager
def report_holds_once() -> Iterator[None]:
    """A report of held bytes that finds no room in a member's queue is not repeated."""
    with patch.object(HoldReports, "repeat", lambda self: None):
        yield


@contextmanager
def decide_on_all_that_is_held() -> Iterator[None]:
    """A decision concerns all that is held when it arrives."""
    original = Recreation.decide

    def decide(self: Recreation, decision: OnRecreate, topic_ids: Container[str]) -> None:
        original(self, decision, {each.topic_id for each in self.held.values()})

    with patch.object(Recreation, "decide", decide):
        yield


@contextmanager
def wait_for_the_writers_next_run() -> Iterator[None]:
    """No run is begun for held records while the writer holds the lock."""
    original = SessionDirectory.begin_run

    def begin(self: SessionDirectory, number: int, **known: Any) -> RunFile:
        if known.get("end") is not None and not self.is_locked:
            raise RunExists("the writer is there")
        return original(self, number, **known)

    with patch.object(SessionDirectory, "begin_run", begin):
        yield


@contextmanager
def hide_what_no_topic_takes() -> Iterator[None]:
    """Records that were continued and that no topic takes are not reported as held."""
    with patch.object(Recreation, "note_unknown", lambda *_: None):
        yield


@contextmanager
def lose_what_no_run_took() -> Iterator[None]:
    """Bytes that a closed run did not take are reported as lost."""
    with patch.object(PushClient, "_is_untouched", lambda *_: False):
        yield


@contextmanager
def carry_what_a_forgotten_run_took() -> Iterator[None]:
    """A closed run without an end is believed to have taken nothing."""
    with patch.object(PushClient, "_is_untouched", lambda *_: True):
        yield


@contextmanager
def carry_what_is_invalid() -> Iterator[None]:
    """A later run carries bytes that a node has found invalid."""
    with patch.object(SessionProgress, "is_invalid", lambda *_: False):
        yield


@contextmanager
def ship_before_the_carrying_run_is_noted() -> Iterator[None]:
    """Later bytes are shipped although it is not noted which run carries those before them."""
    with patch.object(LocalSession, "withhold", lambda *_, **__: None):
        yield


@contextmanager
def keep_ends_of_deleted_topics() -> Iterator[None]:
    """A closed run is compared with its end in a topic that was deleted since."""
    with patch.object(SessionProgress, "forget_end", lambda *_: None):
        yield


@contextmanager
def carry_from_any_directory() -> Iterator[None]:
    """A directory that was put back from a copy ships what another run has carried."""
    with patch.object(Recreation, "_may_be_taken", lambda *_: False):
        yield


@contextmanager
def carry_ids_above_theirs() -> Iterator[None]:
    """A run carries records whose dedup ids are below its base."""
    with patch.object(Recreation, "_takes", lambda *_: True):
        yield


@contextmanager
def look_once_for_finished_runs() -> Iterator[None]:
    """Runs that are over because of a removal are not looked for."""
    original = PushClient._removed

    def removed(self: PushClient, removal: Removal) -> None:
        original(self, removal)
        self._release_wanted = _Release.NOTHING

    with patch.object(PushClient, "_removed", removed):
        yield


@contextmanager
def forget_what_was_carried() -> Iterator[None]:
    """Positions of a finished run are forgotten although they count for the run that carries it."""
    original = SessionProgress.forget_run

    def forget(self: SessionProgress, run: int, carried: Container[object] = ()) -> None:
        del carried
        original(self, run)

    with patch.object(SessionProgress, "forget_run", forget):
        yield


@contextmanager
def begin_runs_over_others() -> Iterator[None]:
    """The record of a new run replaces one that appears while it is written."""

    def create(self: OsFileSystem, path: str, data: bytes, *, temporary: str) -> bool:
        del temporary
        if self.exists(path):
            return False
        self.write_atomically(path, data)
        return True

    with patch.object(OsFileSystem, "create_atomically", create):
        yield


@contextmanager
def let_retired_sessions_stay() -> Iterator[None]:
    """A directory that is retired is refused when it opens a run, and not before."""
    with (
        patch.object(PushSession, "on_session_retired", lambda self, session_ids, why: None),
        patch.object(Intake, "check_session", lambda self, session, session_id: None),
    ):
        yield


@contextmanager
def let_readers_of_views_sleep() -> Iterator[None]:
    """Readers of a view that is dropped learn of it when its base grows."""
    with patch.object(Node, "views_dropped", lambda self, base_ids: None):
        yield


@contextmanager
def keep_schemas_of_deleted_topics() -> Iterator[None]:
    """A publisher encodes rows by the schema of a deleted topic."""
    with patch.object(KnownSchemas, "forget", lambda self, topic, topic_id: None):
        yield


@contextmanager
def take_any_stay_for_the_same() -> Iterator[None]:
    """A partition that comes back to a group owns the files of its earlier stay there."""
    with (
        patch.object(merging, "merged_owner", lambda log_id, came: log_id),
        patch.object(PartitionFile, "owner", property(lambda self: self.topic_id)),
    ):
        yield


@contextmanager
def take_any_input_for_the_same() -> Iterator[None]:
    """A session that comes back owns the files of its forgotten inputs."""
    with patch.object(TopicFile, "owner", property(lambda self: self.topic_id)):
        yield


_COPYING = "tests/subscriber/test_copying.py::"
_INPUTS = "tests/wire/test_push_inputs.py::"
_LEFT_OUT = "tests/replicator/test_left_out.py::"
_RELEASE = "tests/replicator/test_push_release.py::"
_TEST = "tests/replicator/test_recreation.py::"
_WAITING = "tests/replicator/test_waiting_records.py::"
_ENDED = "tests/sequencer/test_ended_readings.py::"
_HELD = "tests/sequencer/test_held_records.py::"
_STAYS = "tests/sequencer/test_second_stays.py::"
RECREATION = (
    (
        "sessions.32",
        believe_unbound_handles,
        _INPUTS + "test_positions_of_a_deleted_topic_are_not_taken_for_the_next_ones",
    ),
    (
        "logs.17",
        take_any_stay_for_the_same,
        _STAYS + "test_a_partition_that_came_back_keeps_its_log",
    ),
    (
        "logs.17",
        take_any_input_for_the_same,
        _STAYS + "test_a_session_that_was_forgotten_and_came_back_keeps_its_bytes",
    ),
    (
        "sessions.30",
        forget_unmerged_bytes,
        _TEST + "test_unmerged_records_and_all_behind_them_are_held",
    ),
    (
        "sessions.31",
        ask_for_topics_without_records,
        _TEST + "test_a_session_that_is_merged_goes_on_in_the_next_topic",
    ),
    (
        "sessions.31",
        create_known_topics,
        _TEST + "test_a_publisher_brings_no_deleted_topic_back_before_it_has_a_record_for_it",
    ),
    (
        "sessions.32",
        count_from_the_start_of_files,
        _TEST + "test_held_records_are_continued_or_discarded",
    ),
    (
        "sessions.40",
        decide_at_one_member,
        _HELD + "test_any_node_decides_for_a_publisher_at_another_one[ContinueSession]",
    ),
    (
        "sessions.40",
        decide_on_all_that_is_held,
        _TEST + "test_a_decision_that_comes_late_concerns_nothing",
    ),
    (
        "sessions.42",
        wait_for_the_writers_next_run,
        _TEST + "test_a_run_is_begun_for_held_records_if_no_other_can_take_them[True]",
    ),
    (
        "sessions.42",
        begin_runs_over_others,
        "tests/store/test_session_dir.py::test_two_processes_never_begin_one_run[True]",
    ),
    (
        "sessions.43",
        look_once_for_finished_runs,
        _TEST + "test_a_removal_is_followed_by_another_look",
    ),
    (
        "sessions.43",
        forget_what_was_carried,
        _RELEASE + "test_what_a_run_carried_stays_merged_when_an_earlier_run_is_gone",
    ),
    (
        "sessions.32",
        keep_ends_of_deleted_topics,
        _LEFT_OUT + "test_a_closed_run_goes_whose_topic_is_deleted_before_its_files_go",
    ),
    (
        "sessions.59",
        hide_what_no_topic_takes,
        _WAITING
        + "test_records_that_continue_and_that_no_topic_takes_are_reported_and_can_be_discarded",
    ),
    (
        "sessions.55",
        lose_what_no_run_took,
        _LEFT_OUT + "test_records_that_no_node_took_are_carried_by_a_later_run[1-False]",
    ),
    (
        "sessions.55",
        carry_what_a_forgotten_run_took,
        _LEFT_OUT + "test_what_a_forgotten_run_took_is_not_shipped_again",
    ),
    (
        "sessions.55",
        carry_what_is_invalid,
        _LEFT_OUT + "test_bytes_that_a_node_finds_invalid_are_carried_by_no_run[True]",
    ),
    (
        "sessions.55",
        ship_before_the_carrying_run_is_noted,
        _LEFT_OUT + "test_nothing_later_is_shipped_before_it_is_noted",
    ),
    (
        "sessions.55",
        carry_from_any_directory,
        _LEFT_OUT + "test_a_directory_that_was_put_back_ships_nothing_again[False]",
    ),
    (
        "sessions.55",
        carry_ids_above_theirs,
        _LEFT_OUT + "test_records_with_dedup_ids_wait_for_a_run_that_counts_from_below",
    ),
    (
        "readers.26",
        let_retired_sessions_stay,
        _ENDED + "test_a_connected_publisher_learns_that_it_is_retired[True]",
    ),
    (
        "readers.26",
        let_readers_of_views_sleep,
        _ENDED + "test_readers_of_a_view_are_woken_when_it_is_dropped",
    ),
    (
        "readers.26",
        keep_schemas_of_deleted_topics,
        "tests/publisher/test_rows.py::test_a_deleted_topics_schema_is_forgotten",
    ),
    (
        "readers.24",
        confuse_former_topics,
        "tests/replicator/test_scenarios.py::test_scenario[push_sender_gone]",
    ),
    (
        "raft.48",
        keep_inputs_that_a_snapshot_lacks,
        "tests/sequencer/test_installing.py::test_no_marks_are_saved_where_a_directory_is_gone",
    ),
    (
        "merge.14",
        plan_again_at_once,
        "tests/sequencer/test_coordinator.py::test_nothing_is_planned_twice_after_a_rejection",
    ),
    (
        "readers.25",
        stop_before_the_last_record,
        _COPYING + "test_records_that_come_with_the_mark_are_read_first",
    ),
    (
        "readers.25",
        mark_before_the_last_sync,
        "tests/replicator/test_copy_upkeep.py::test_a_copy_is_marked_as_deleted_once_it_is_synced",
    ),
    (
        "sessions.51",
        report_holds_once,
        "tests/sequencer/test_hold_reports.py::test_a_report_that_was_dropped_is_repeated",
    ),
    (
        "readers.28",
        leave_with_the_first_mark,
        _COPYING + "test_no_partition_is_left_while_another_node_may_send_more_of_it",
    ),
)
"""Rule, bug, and the test that finds it."""
