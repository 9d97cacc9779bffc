"""Planted bugs that a test of the usual kind must find, each with that test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import starmap
from typing import Any
from unittest.mock import patch

from samelog.config.authorisation import Rights
from samelog.consensus import GroupMessages
from samelog.kafka import record_check
from samelog.kafka.apis.fetch import FetchWork
from samelog.kafka.groups.outbox import Outbox
from samelog.replicator import turns
from samelog.runtime import inotify
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.ingest.node_sessions import RunKeeper
from samelog.sequencer.merge import dedup, planner
from samelog.sequencer.merge.dedup import Judgement
from samelog.sequencer.merge.drafts import Draft
from samelog.sequencer.merge.in_flight import InFlight
from samelog.sequencer.merge.merger import PartitionMerger
from samelog.sequencer.merge.planner import Planner
from samelog.sequencer.peer_events import PeerEvents
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state import machine
from samelog.sequencer.state.instructions import Merge, Verdict, VoidRecordsCommand
from samelog.sequencer.state.tables import producers
from samelog.sequencer.state.tables.groups import CommitOffsets
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    Expire,
    OpenRunCommand,
    RetireSessionCommand,
    Session,
)
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand, Topic
from samelog.sequencer.state.types import State
from tests.mutants.archiving import ARCHIVING
from tests.mutants.asking import ASKING
from tests.mutants.clocks import CLOCKS
from tests.mutants.colocation import COLOCATION
from tests.mutants.committing import COMMITTING
from tests.mutants.compacting import COMPACTING
from tests.mutants.confirmation import CONFIRMATION
from tests.mutants.converting import CONVERTING
from tests.mutants.data_groups import DATA_GROUPS
from tests.mutants.deciding import DECIDING
from tests.mutants.default_groups import DEFAULT_GROUPS
from tests.mutants.defaults import DEFAULTS
from tests.mutants.elections import PATIENCE
from tests.mutants.enforcing import ENFORCING
from tests.mutants.forgetting import FORGETTING
from tests.mutants.granting import GRANTING
from tests.mutants.hosts import HOSTS
from tests.mutants.idle_sessions import IDLE_SESSIONS
from tests.mutants.in_use import IN_USE
from tests.mutants.judging import JUDGING
from tests.mutants.keeping import KEEPING, keep_leading
from tests.mutants.keys import KEYS
from tests.mutants.leaving import LEAVING
from tests.mutants.limits import LIMITS
from tests.mutants.linger import LINGER
from tests.mutants.links import LINKS
from tests.mutants.long_batches import LONG_BATCHES
from tests.mutants.looking import LOOKING
from tests.mutants.mirroring import MIRRORING
from tests.mutants.native_groups import NATIVE_GROUPS
from tests.mutants.one_round import ONE_ROUND
from tests.mutants.pacing import PACING
from tests.mutants.packing import PACKING
from tests.mutants.passing import PASSING
from tests.mutants.places import PLACES
from tests.mutants.placing import PLACING
from tests.mutants.progress import PROGRESS
from tests.mutants.promises import PROMISES
from tests.mutants.publisher_damage import PUBLISHER_DAMAGE
from tests.mutants.push_sessions import PUSH_SESSIONS
from tests.mutants.recovering import RECOVERING
from tests.mutants.recreation import RECREATION
from tests.mutants.removing import REMOVING
from tests.mutants.repairing import REPAIRING
from tests.mutants.replaying import REPLAYING
from tests.mutants.resets import RESETS, forget_dedup_at_resets
from tests.mutants.resting import RESTING
from tests.mutants.run_ends import RUN_ENDS
from tests.mutants.scarcity import SCARCITY
from tests.mutants.session_quotas import SESSION_QUOTAS
from tests.mutants.sharing import SHARING
from tests.mutants.sites import SITES
from tests.mutants.spanning import SPANNING
from tests.mutants.starting import STARTING
from tests.mutants.state_topics import STATE_TOPICS
from tests.mutants.telling import TELLING, believe_any_checksum
from tests.mutants.text_values import TEXT_VALUES
from tests.mutants.topic_changes import TOPIC_CHANGES
from tests.mutants.typed import TYPED
from tests.mutants.upgrading import UPGRADING
from tests.mutants.waiting import WAITING

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def skip_what_is_missing() -> Iterator[None]:
    """A range whose bytes are not here is left out of the merged log."""
    original = PartitionMerger._output

    def output(self: PartitionMerger, merge: Merge, part: Any) -> bytearray | None:
        return original(self, merge, part) or bytearray()

    with patch.object(PartitionMerger, "_output", output):
        yield


@contextmanager
def no_void_batches() -> Iterator[None]:
    """Offsets that were given up are waited for all the same."""
    with patch.object(PartitionMerger, "_fill", lambda self, void: 0):
        yield


@contextmanager
def void_anything() -> Iterator[None]:
    """Any offsets can be given up, planned or not, and twice."""

    def void(state: State, command: VoidRecordsCommand) -> VoidRecordsCommand:
        partition = state.partitions.by_number[command.partition]
        partition.voids = (*partition.voids, command)
        return command

    with patch.dict(machine.APPLY, {VoidRecordsCommand: void}):
        yield


@contextmanager
def take_twins_whole() -> Iterator[None]:
    """A batch that straddles the watermark is taken as it is."""
    original = dedup.judge_ids

    def judge(watermark: int | None, first: int, records: int) -> Judgement:
        judged = original(watermark, first, records)
        return Judgement(Verdict.TAKE) if judged.verdict is Verdict.SLICE else judged

    with patch.object(planner, "judge_ids", judge):
        yield


@contextmanager
def topics_are_their_names() -> Iterator[None]:
    """A topic made again goes on where the one of that name was."""
    gone: dict[str, Topic] = {}
    delete, create = machine.APPLY[DeleteTopicCommand], machine.APPLY[CreateTopicCommand]

    def note(state: State, command: Any) -> Any:
        found: Any = delete(state, command)
        gone[found.name] = found
        return found

    def revive(state: State, command: CreateTopicCommand) -> Any:
        made: Any = create(state, command)
        if command.name in gone:
            made.partition_numbers = gone[command.name].partition_numbers
        return made

    with patch.dict(machine.APPLY, {DeleteTopicCommand: note, CreateTopicCommand: revive}):
        yield


@contextmanager
def expire_what_is_used() -> Iterator[None]:
    """What is in use again when its expiry is applied is forgotten all the same."""

    def forget(state: State, command: Expire) -> list[Any]:
        for producer, _ in command.producers:
            state.producers.batches.pop(producer, None)
        names = [name for name, _ in command.sessions if name != "nobody"]
        sessions = state.sessions
        since = {name: sessions.by_name[name].idle_since_ms for name in names}
        return [entry for name in names for entry in sessions.forget_runs(name, since[name])]

    with patch.dict(machine.APPLY, {Expire: forget}):
        yield


@contextmanager
def expire_open_runs() -> Iterator[None]:
    """A session expires though its publisher may come back with records."""
    original = machine.APPLY[OpenRunCommand]

    def open_run(state: State, command: OpenRunCommand) -> Any:
        run = original(state, command)
        state.sessions.by_name[command.session].idle_since_ms = 0
        return run

    def note(self: SessionIndex, session: Session) -> None:
        listed(self, session)
        self.ended[session.name] = None

    listed = SessionIndex.note
    with (
        patch.dict(machine.APPLY, {OpenRunCommand: open_run}),
        patch.object(SessionIndex, "note", note),
    ):
        yield


@contextmanager
def retire_without_a_fence() -> Iterator[None]:
    """The old directory of a session that was retired is let in again."""
    original = machine.APPLY[RetireSessionCommand]

    def retire(state: State, command: RetireSessionCommand) -> Any:
        found = original(state, command)
        if isinstance(found, Session):
            found.fenced_ids.clear()
        return found

    with patch.dict(machine.APPLY, {RetireSessionCommand: retire}):
        yield


@contextmanager
def resume_behind_what_is_committed() -> Iterator[None]:
    """A node that lost session bytes does not ask for those that it has yet to merge."""
    with patch.object(Replica, "needed", lambda self, entry: entry.place):
        yield


@contextmanager
def take_retries() -> Iterator[None]:
    """A batch that a producer sends again is merged again."""

    def judge(remembered: Sequence[Any], batch: Any) -> Judgement:
        return Judgement(Verdict.TAKE)

    with patch.object(dedup, "judge_sequence", judge):
        yield


@contextmanager
def remember_one_batch() -> Iterator[None]:
    """Only the newest batch of a producer is known again."""
    with patch.object(producers, "BATCHES_REMEMBERED", 1):
        yield


@contextmanager
def leave_runs_of_the_gone_open() -> Iterator[None]:
    """What a node took before it was gone for long is merged when it comes back."""
    with patch.object(RunKeeper, "tick", lambda self, now, *, is_leader: None):
        yield


@contextmanager
def out_of_range_unasked() -> Iterator[None]:
    """A node that lags answers that an offset does not exist, without asking the leader."""
    original = FetchWork._check_offset

    def look(self: FetchWork, read: Any) -> None:
        self._is_confirmed = True
        original(self, read)

    with patch.object(FetchWork, "_check_offset", look):
        yield


@contextmanager
def append_time_by_the_clock() -> Iterator[None]:
    """Append times follow the leader's clock, also backwards."""
    original = Planner._draft

    def make(self: Planner, partition: int, now_ms: int) -> Draft:
        draft = original(self, partition, now_ms)
        draft.append_ms = now_ms
        return draft

    with patch.object(Planner, "_draft", make):
        yield


@contextmanager
def commit_offsets_one_by_one() -> Iterator[None]:
    """Every commit of a consumer takes an entry of its own."""

    def commits(self: Outbox, count: int) -> list[Any]:
        alone: list[Any] = []
        self.propose(CommitOffsets(alone))
        return alone

    with patch.object(Outbox, "_commits_with_room", commits):
        yield


@contextmanager
def take_any_records() -> Iterator[None]:
    """What is inside a batch of a Kafka client is not looked at."""
    with (
        patch.object(record_check, "_check_codec", lambda *batch: None),
        patch.object(record_check, "_check_header", lambda *header: None),
    ):
        yield


@contextmanager
def lead_without_intake() -> Iterator[None]:
    """A leader whose disk takes nothing in goes on leading."""
    with keep_leading(Changes):
        yield


@contextmanager
def turns_without_end() -> Iterator[None]:
    """Bulk work goes on until there is none left, whatever else waits for the loop."""
    with patch.object(turns, "TURN_S", float("inf")):
        yield


@contextmanager
def lose_overflows() -> Iterator[None]:
    """That events were lost is not told."""
    original = inotify.parse_events

    def parse(data: bytes) -> list[inotify.Event]:
        return [event for event in original(data) if event.mask != inotify.Mask.OVERFLOW]

    with patch.object(inotify, "parse_events", parse):
        yield


@contextmanager
def any_number_in_flight() -> Iterator[None]:
    """Instructions are proposed without waiting for any."""
    with patch.object(InFlight, "has_room", property(lambda self: True)):
        yield


@contextmanager
def count_entries_only() -> Iterator[None]:
    """The entries in flight may name any number of bytes."""

    def has_room(self: InFlight) -> bool:
        return not self.is_draining and len([*self.indexes]) < self._limits.in_flight_entries

    with patch.object(InFlight, "has_room", property(has_room)):
        yield


@contextmanager
def plan_behind_a_rejection() -> Iterator[None]:
    """A rejected entry changes nothing for what is planned next."""
    with patch.object(Planner, "drain", lambda self: None):
        yield


@contextmanager
def keep_speculation_under_load() -> Iterator[None]:
    """Speculation lasts until nothing at all is in flight."""

    def applied(self: InFlight, index: int) -> bool:
        self._entries[index] = self._entries[index][0], []
        return original(self, index)

    original = InFlight.applied
    with patch.object(InFlight, "applied", applied):
        yield


@contextmanager
def ask_no_rights() -> Iterator[None]:
    """Whoever may push a session may write to any topic in it."""
    with patch.object(Rights, "may_publish", lambda self, identity, session, topic: True):
        yield


@contextmanager
def messages_of_any_group() -> Iterator[None]:
    """Raft messages are taken whatever group they are for."""

    def on_raft(self: PeerEvents, node: int, parts: Sequence[GroupMessages]) -> None:
        for part in parts:
            self._node.raft.group.receive(node, part.messages)

    with patch.object(PeerEvents, "on_raft", on_raft):
        yield


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted bug, the rule it breaks, and the test that finds it."""

    rule: str
    mutant: Mutant
    test: str


_KAFKA, _SEQUENCER = "tests/kafka/", "tests/sequencer/"
_NODE, _FETCHING = _SEQUENCER + "test_node.py::", _KAFKA + "test_fetching.py::"

PLANTED = (
    *starmap(
        Planted,
        (
            *ARCHIVING,
            *DECIDING,
            *FORGETTING,
            *CONFIRMATION,
            *CONVERTING,
            *LINGER,
            *GRANTING,
            *KEYS,
            *LEAVING,
            *PACING,
            *LINKS,
            *LONG_BATCHES,
            *LOOKING,
            *RECREATION,
            *WAITING,
            *ASKING,
            *LIMITS,
            *TEXT_VALUES,
            *ONE_ROUND,
            *PACKING,
            *PASSING,
            *PATIENCE,
            *ENFORCING,
            *IDLE_SESSIONS,
            *IN_USE,
            *JUDGING,
            *PROGRESS,
            *PROMISES,
            *PUBLISHER_DAMAGE,
            *PUSH_SESSIONS,
            *RUN_ENDS,
            *PLACES,
            *PLACING,
            *SCARCITY,
            *COLOCATION,
            *DEFAULTS,
            *DEFAULT_GROUPS,
            *HOSTS,
            *CLOCKS,
            *KEEPING,
            *DATA_GROUPS,
            *RECOVERING,
            *REMOVING,
            *REPAIRING,
            *REPLAYING,
            *STARTING,
            *RESETS,
            *RESTING,
            *SESSION_QUOTAS,
            *SHARING,
            *SITES,
            *SPANNING,
            *STATE_TOPICS,
            *TELLING,
            *MIRRORING,
            *NATIVE_GROUPS,
            *TOPIC_CHANGES,
            *TYPED,
            *COMMITTING,
            *COMPACTING,
            *UPGRADING,
        ),
    ),
    Planted(
        "merge.1",
        skip_what_is_missing,
        _SEQUENCER + "test_merger.py::test_missing_bytes_stall_and_go_on_when_they_come",
    ),
    Planted(
        "merge.2",
        no_void_batches,
        _SEQUENCER + "test_merger.py::test_void_batches_stand_for_what_nobody_has",
    ),
    Planted(
        "merge.2",
        void_anything,
        _SEQUENCER + "test_state.py::test_records_that_are_void_or_not_planned_are_not_given_up",
    ),
    Planted(
        "merge.4",
        believe_any_checksum,
        _SEQUENCER + "test_coordinator.py::test_a_checksum_is_recorded_once_a_majority_reports_it",
    ),
    Planted(
        "merge.5",
        take_twins_whole,
        _SEQUENCER + "test_planner.py::test_twins_merge_each_id_once_in_order",
    ),
    Planted(
        "readers.1",
        topics_are_their_names,
        _SEQUENCER + "test_state.py::test_a_recreated_topic_shares_nothing",
    ),
    Planted(
        "sessions.5",
        expire_what_is_used,
        _SEQUENCER + "test_state.py::test_what_was_used_meanwhile_does_not_expire",
    ),
    Planted(
        "sessions.5",
        expire_open_runs,
        _SEQUENCER
        + "test_expiry.py::test_sessions_expire_behind_their_last_run_and_never_with_one_open",
    ),
    Planted(
        "sessions.5",
        retire_without_a_fence,
        _SEQUENCER
        + "test_state.py::test_a_retired_session_goes_to_a_new_directory_and_fences_the_old",
    ),
    Planted(
        "raft.2",
        resume_behind_what_is_committed,
        _NODE + "test_a_publisher_is_asked_again_for_committed_bytes_that_nobody_has",
    ),
    Planted(
        "merge.7", take_retries, _SEQUENCER + "test_planner.py::test_a_producers_retry_is_skipped"
    ),
    Planted(
        "merge.7",
        remember_one_batch,
        _SEQUENCER + "test_state.py::test_only_five_batches_are_remembered",
    ),
    Planted(
        "sessions.6",
        leave_runs_of_the_gone_open,
        _SEQUENCER
        + "test_node_sessions.py::test_the_leader_ends_the_run_of_a_node_that_is_gone_for_long",
    ),
    Planted(
        "merge.5",
        forget_dedup_at_resets,
        _SEQUENCER + "test_reset_state.py::test_dedup_is_remembered_and_offsets_are_not",
    ),
    Planted(
        "kafka.1",
        out_of_range_unasked,
        _FETCHING
        + "test_an_offset_that_a_node_lacks_is_not_out_of_range_before_the_leader_says_so",
    ),
    Planted(
        "merge.8",
        append_time_by_the_clock,
        _SEQUENCER + "test_planner.py::test_append_time_never_falls_whatever_the_clock_says",
    ),
    Planted(
        "kafka.2",
        commit_offsets_one_by_one,
        _KAFKA + "groups/test_offsets.py::test_commits_of_one_round_share_a_command",
    ),
    Planted(
        "logs.3",
        take_any_records,
        _KAFKA + "test_record_check.py::test_a_bad_one_is_refused_with_kafkas_code",
    ),
    Planted(
        "merge.9",
        lead_without_intake,
        _SEQUENCER + "test_changes.py::test_a_leader_that_takes_nothing_in_lets_another_lead",
    ),
    Planted(
        "turns.1",
        turns_without_end,
        "tests/replicator/test_small_parts.py::test_a_turn_is_bounded_and_goes_on_in_the_next",
    ),
    Planted(
        "logs.4", lose_overflows, "tests/runtime/test_inotify.py::test_an_overflow_is_an_event"
    ),
    Planted(
        "merge.10",
        any_number_in_flight,
        _SEQUENCER + "test_planner.py::test_eight_small_entries_may_be_in_flight",
    ),
    Planted(
        "merge.10",
        count_entries_only,
        _SEQUENCER + "test_planner.py::test_entries_in_flight_are_bounded_by_their_bytes",
    ),
    Planted(
        "merge.14",
        plan_behind_a_rejection,
        _SEQUENCER + "test_planner.py::test_nothing_is_planned_behind_a_rejection",
    ),
    Planted(
        "merge.16",
        keep_speculation_under_load,
        _SEQUENCER + "test_planner.py::test_speculation_ends_with_the_last_entry_in_flight_that"
        "_concerns_it",
    ),
    Planted(
        "operations.1",
        ask_no_rights,
        "tests/replicator/test_push_server.py::test_rights_are_asked_for_session_topic_and_dedup_id",
    ),
    Planted(
        "raft.4",
        messages_of_any_group,
        "tests/sequencer/test_peer_events.py::test_each_group_hears_what_is_for_it",
    ),
)
