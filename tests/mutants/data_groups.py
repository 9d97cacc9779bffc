"""Planted bugs in data groups: quiet ones, replicas that may have forgotten, who hears what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.config.values import parse_address
from samelog.consensus import quiet
from samelog.consensus.core import Core, Leadership
from samelog.replicator.known_nodes import KnownNodes
from samelog.replicator.push.client import PushClient
from samelog.sequencer import recovery
from samelog.sequencer.data_groups import ending, seats, upkeep
from samelog.sequencer.data_groups.contents import Contents
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.leaders import KnownLeaders
from samelog.sequencer.data_groups.log_ends import LogEnds
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.data_groups.working import Working
from samelog.sequencer.events import Ends
from samelog.sequencer.raft.closing import RunCloser
from samelog.sequencer.raft.group import RaftGroup
from samelog.sequencer.state.tables.session_index import SessionIndex
from samelog.sequencer.state.tables.sessions import (
    OpenPlacedInput,
    Run,
    Session,
    SessionsTable,
)
from samelog.sequencer.state.tables.stages import StagesTable
from samelog.wire.bounds import Holder, RunEnd
from samelog.wire.member_beats import MemberBeats, Silence
from samelog.wire.push.effects import InputName, InputState
from samelog.wire.push.inputs import RunInputs
from samelog.wire.push.receiver import PushReceiver


@contextmanager
def rest_with_a_follower_away() -> Iterator[None]:
    """A leader rests though a follower has not answered."""
    with patch.object(quiet, "_knows_all", lambda core, progress: True):
        yield


@contextmanager
def rest_with_less() -> Iterator[None]:
    """A follower rests by its leader's word, whatever it has."""

    def rest(core: Core, message: Any) -> None:
        if core.patience.heard is not None:
            core.patience.rests = True
            core.election_deadline = quiet.NEVER

    with patch.object(quiet, "follow", rest):
        yield


@contextmanager
def compare_group_0_only() -> Iterator[None]:
    """Members that meet compare the ends of their logs of group 0, and of no data group."""
    with patch.object(LogEnds, "told", lambda self, to: ()):
        yield


@contextmanager
def forget_who_led() -> Iterator[None]:
    """A follower compares nothing with what its former leader says of itself."""
    with patch.object(KnownLeaders, "get", lambda self, group: None):
        yield


@contextmanager
def wake_without_a_deadline() -> Iterator[None]:
    """A leader that wakes need not prove that a majority answers."""
    original = quiet.wake

    def wake(core: Core) -> None:
        original(core)
        if core.leadership is not None:
            core.leadership.quorum_deadline = quiet.NEVER

    with patch.object(quiet, "wake", wake):
        yield


@contextmanager
def forget_who_was_heard() -> Iterator[None]:
    """A follower that wakes takes its leader for silent since it rests."""
    original = quiet.wake

    def wake(core: Core) -> None:
        heard, core.patience.heard = core.patience.heard, None
        original(core)
        core.patience.heard = heard

    with patch.object(quiet, "wake", wake):
        yield


@contextmanager
def rest_at_once() -> Iterator[None]:
    """A leader rests with what it has, committed or not."""

    def begin(core: Core, lead: Leadership) -> bool:
        if core.patience.heard is None:
            return False
        core.patience.rests = True
        lead.heartbeat_deadline = lead.quorum_deadline = quiet.NEVER
        return True

    with patch.object(quiet, "begin", begin):
        yield


@contextmanager
def away_at_once() -> Iterator[None]:
    """Who has not answered the last heartbeat is away."""
    with patch.object(quiet, "AWAY", 0):
        yield


@contextmanager
def away_since_it_was_heard() -> Iterator[None]:
    """Who had nothing to say, because its group rested, is away."""

    def is_away(core: Core, lead: Leadership, peer: int) -> bool:
        silent_s = core.now - lead.progress[peer].last_active
        return silent_s >= quiet.AWAY * core.config.election_timeout_s

    with patch.object(quiet, "_is_away", is_away):
        yield


@contextmanager
def rest_with_work_left() -> Iterator[None]:
    """A replica rests though something is under way."""
    original = Working._let_rest

    def let_rest(self: Any, replica: Any, now: float) -> None:
        original(self, _Idle(replica), now)

    with patch.object(Working, "_let_rest", let_rest):
        yield


class _Idle:
    """A replica that says that it has nothing to do."""

    is_busy = False

    def __init__(self, replica: Any) -> None:
        self._replica = replica

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)


@contextmanager
def rest_after_tidying() -> Iterator[None]:
    """What tidying up has begun is cut off."""
    original = Working._let_rest

    def let_rest(self: Any, replica: Any, now: float) -> None:
        with patch.object(replica, "tidy", lambda: True):
            original(self, replica, now)

    with patch.object(Working, "_let_rest", let_rest):
        yield


@contextmanager
def forget_what_is_due() -> Iterator[None]:
    """Who rests is not looked at again."""
    with patch("samelog.sequencer.data_groups.working.heapq.heappush", lambda heap, item: None):
        yield


@contextmanager
def moved_in_unseen() -> Iterator[None]:
    """A group that gets another partition by the table is not concerned."""
    original = Contents._follow_partitions

    def follow(self: Contents, table: Any) -> set[int]:
        original(self, table)
        return set()

    with patch.object(Contents, "_follow_partitions", follow):
        yield


@contextmanager
def settings_wake_nobody() -> Iterator[None]:
    """A topic has other settings, and its groups go on resting."""
    with patch.object(DataGroups, "topic_changed", lambda self, topic_id: None):
        yield


@contextmanager
def damage_in_silence() -> Iterator[None]:
    """A replica that cannot begin is only in the log of the program."""
    with patch.object(DataGroups, "troubles", ()):
        yield


@contextmanager
def silence_wakes_nobody() -> Iterator[None]:
    """A member that is silent for long is taken to live."""
    nobody = Silence(frozenset(), frozenset())
    with patch.object(MemberBeats, "silent", lambda self, now, patience_s: nobody):
        yield


@contextmanager
def another_life_rests_on() -> Iterator[None]:
    """What rested with a member rests with its next life."""
    nobody = Silence(frozenset(), frozenset())
    with patch.object(MemberBeats, "lost", lambda self, number: nobody):
        yield


@contextmanager
def wake_in_silence() -> Iterator[None]:
    """A replica that is woken by another life of a member does not say so."""

    def peer_restarted(self: RaftGroup, number: int) -> None:
        self.raft.wake(self._clock.now())
        self.raft.peer_restarted(number)

    with patch.object(RaftGroup, "peer_restarted", peer_restarted):
        yield


@contextmanager
def trust_every_directory() -> Iterator[None]:
    """A replica counts in whatever directory it begins."""
    original = seats.begun

    def begun(known: Any, replica: Any, table: Any, record: Any, **more: Any) -> Any:
        found = original(known, replica, table, record, **more)
        return seats.ReplicaRecord(found.format_version, found.replica, record.suspicions.times)

    with patch.object(seats, "begun", begun):
        yield


@contextmanager
def let_in_by_group_0() -> Iterator[None]:
    """A replica counts again as soon as its member does."""
    original = seats.seat_of

    def seat_of(group: Any, known: Any, record: Any) -> Any:
        trusted = seats.ReplicaRecord(1, known.replica, record.suspicions.times)
        return original(group, trusted if record.may_vote else known, record)

    with patch.object(seats, "seat_of", seat_of):
        yield


@contextmanager
def hear_any_replica() -> Iterator[None]:
    """Messages reach the replica that is here, whichever they are for."""
    with patch.object(
        DataGroups,
        "_addressed",
        lambda self, node, group, sender, receiver: self.replicas.get(group),
    ):
        yield


@contextmanager
def group_0_takes_all() -> Iterator[None]:
    """Group 0 archives partitions that are in data groups."""
    with patch("samelog.sequencer.state.units.logs.elsewhere", lambda state, number: None):
        yield


@contextmanager
def close_with_open_parts() -> Iterator[None]:
    """A run is closed though data groups may still have some of it to merge."""

    def merged(self: RunCloser, session: Session, ends: Ends) -> bool:
        placed = self._machine.state.placement.partitions
        return all(
            each.partition in placed
            for each in self._machine.state.sessions.inputs_of(session.name)
        )

    with patch.object(RunCloser, "_wholly_merged", merged):
        yield


@contextmanager
def end_what_goes_on() -> Iterator[None]:
    """A data group ends its part of a run that is open in group 0."""
    with patch.object(ending, "_is_over", lambda known, run: True):
        yield


@contextmanager
def let_go_of_what_is_not_known() -> Iterator[None]:
    """A data group lets go of topics that its leader's copy of group 0 does not have, yet."""
    gone = lambda topic, cluster: topic.topic_id not in cluster.topics  # noqa: E731
    with patch.object(upkeep, "was_deleted", gone):
        yield


@contextmanager
def keep_what_is_forgotten() -> Iterator[None]:
    """A held run whose session group 0 does not know stays open."""
    original = ending._is_over
    is_over = lambda known, run: known is not None and original(known, run)  # noqa: E731
    with patch.object(ending, "_is_over", is_over):
        yield


@contextmanager
def give_up_new_runs() -> Iterator[None]:
    """Held runs are given up by what a leader knows of group 0 before it has caught up."""

    async def give_up(replica: Any, cluster: object, found: Mapping[str, str], _: object) -> None:
        for each in found.items():
            ending.give_up_held(replica, *each)

    with patch.object(ending, "give_up_forgotten", give_up):
        yield


@contextmanager
def give_up_unheld_runs() -> Iterator[None]:
    """Any run whose session group 0 does not know is taken for one that holds nothing."""
    with patch.object(Run, "is_held", property(lambda run: True)):
        yield


@contextmanager
def give_up_what_was_decided() -> Iterator[None]:
    """Held runs of a batch that was decided are given up where the group has lost its pin."""
    with patch.object(StagesTable, "has_in_a_unit", lambda self, session: False):
        yield


@contextmanager
def look_at_runs_once() -> Iterator[None]:
    """Runs in which nothing was to be told are not looked at again when they change."""
    with patch.object(ending.UnsettledRuns, "note", lambda self, session: None):
        yield


@contextmanager
def look_among_all_inputs() -> Iterator[None]:
    """The inputs of a session are looked for among those of all sessions."""

    def places_of(self: SessionIndex, session: str) -> dict[int, int]:
        found = [places for name, places in self._places.items() if name == session]
        return found[0] if found else {}

    with patch.object(SessionIndex, "places_of", places_of):
        yield


@contextmanager
def take_what_is_closed() -> Iterator[None]:
    """A node goes on taking bytes for what its group has closed and let go of."""
    with patch.object(PushReceiver, "part_closed", lambda self, session, run_id, ends: None):
        yield


@contextmanager
def begin_any_run() -> Iterator[None]:
    """A data group opens whichever run it is asked for."""

    def begin(self: SessionsTable, command: OpenPlacedInput) -> Run:
        session = self.by_name[command.session]
        run = session.begin(command, command.number, command.asked)
        self._begin_inputs(run, session)
        return run

    with patch.object(SessionsTable, "begin_run", begin):
        yield


@contextmanager
def go_by_what_is_told() -> Iterator[None]:
    """A client goes wherever it is told that a node is."""

    def learn(self: KnownNodes, holders: Iterable[Holder], met: object = ()) -> bool:
        told = {each.name: parse_address(each.address) for each in holders}
        self._told.update({name: where for name, where in told.items() if where})
        return True

    with patch.object(KnownNodes, "learn", learn):
        yield


@contextmanager
def leave_out_what_is_elsewhere() -> Iterator[None]:
    """The end of a run names what was sent to that node only."""
    original = RunInputs.ends

    def ends(self: RunInputs) -> tuple[RunEnd, ...]:
        away = {n for n, each in self._inputs.items() if each.state is InputState.ELSEWHERE}
        return tuple(end for end in original(self) if end[:2] not in away)

    with patch.object(RunInputs, "ends", ends):
        yield


@contextmanager
def all_must_refuse() -> Iterator[None]:
    """An input is left behind only if nodes refuse it that have not got its partition."""

    def is_given_up(self: PushClient, run: int, name: InputName) -> bool:
        talking = [link.conversation for link in self._links if link.conversation is not None]
        newest = self._session.runs[-1].run
        return newest > run and all(each.refuses(run, name) for each in talking)

    with patch.object(PushClient, "is_given_up", is_given_up):
        yield


@contextmanager
def hear_by_the_table() -> Iterator[None]:
    """A replica takes for its own what is for the one that the table names by now."""

    def addressed(self: DataGroups, node: int, group: int, sender: int, receiver: int) -> Any:
        replica = self.replicas.get(group)
        own = None if replica is None else replica.sender.replica(self._presence.number)
        return replica if own == receiver else None

    with patch.object(DataGroups, "_addressed", addressed):
        yield


@contextmanager
def leave_no_tombstone() -> Iterator[None]:
    """Nothing tells that a replica has ended."""

    def bury(self: seats.SeatFile, record: seats.ReplicaRecord) -> None:
        self._fs.remove_tree(self._directory)

    with patch.object(seats.SeatFile, "bury", bury):
        yield


@contextmanager
def forget_whoever_is_there() -> Iterator[None]:
    """Records of replicas that go on are let go of with those of who has ended."""
    with patch.object(seats, "has_ended", lambda known, replica: replica <= known.replica):
        yield


@contextmanager
def take_voters_for_whole() -> Iterator[None]:
    """Whoever votes and is up has all records."""
    with patch.object(DataGroupUpkeep, "_is_near", lambda self, replica: True):
        yield


@contextmanager
def recover_group_0_alone() -> Iterator[None]:
    """A recovery restarts group 0, and forgets the data groups."""
    with patch.object(recovery, "_replicas", lambda fs, log: iter(())):
        yield


_QUIET = "tests/consensus/test_quiet.py::"
_BEATS = "tests/wire/test_member_beats.py::"
_SEATS = "tests/sequencer/test_seats.py::"
_WORKING = "tests/sequencer/test_working.py::"
_CONTENTS = "tests/sequencer/test_contents.py::"
_NODES = "tests/sequencer/test_data_groups.py::"
_ENDS = "tests/sequencer/test_log_ends.py::"
_ENDING = "tests/sequencer/test_ending.py::"
_FORGOTTEN = _ENDING + "test_a_held_run_that_group_0_has_forgotten_is_given_up"
_UPKEEP = "tests/sequencer/test_group_upkeep.py::"
_RECEIVER = "tests/wire/test_push_receiver.py::"

DATA_GROUPS = (
    (
        "raft.25",
        rest_with_a_follower_away,
        _QUIET + "test_a_group_with_a_follower_that_is_away_rests_without_it_after_a_while",
    ),
    (
        "raft.25",
        rest_with_less,
        _QUIET + "test_who_lacks_something_does_not_rest_by_the_leaders_word",
    ),
    (
        "raft.25",
        rest_at_once,
        _QUIET + "test_a_group_with_a_follower_that_is_away_rests_without_it_after_a_while",
    ),
    (
        "raft.25",
        away_at_once,
        _QUIET + "test_a_group_with_a_follower_that_is_away_rests_without_it_after_a_while",
    ),
    (
        "raft.25",
        away_since_it_was_heard,
        _QUIET + "test_a_group_that_woke_does_not_take_for_away_who_had_nothing_to_say_for_long",
    ),
    ("raft.26", wake_without_a_deadline, _QUIET + "test_a_leader_that_wakes_proves_itself_anew"),
    (
        "raft.26",
        forget_who_was_heard,
        _QUIET + "test_a_follower_that_wakes_knows_that_its_leader_lives",
    ),
    ("raft.27", silence_wakes_nobody, _BEATS + "test_a_silent_leader_wakes_what_it_leads"),
    (
        "raft.27",
        another_life_rests_on,
        _BEATS + "test_another_life_of_a_member_wakes_all_that_rests_with_it",
    ),
    ("raft.27", wake_in_silence, _NODES + "test_a_replica_that_is_woken_says_so"),
    (
        "raft.28",
        trust_every_directory,
        _SEATS + "test_a_replica_that_another_directory_may_have_had_does_not",
    ),
    ("raft.28", let_in_by_group_0, _SEATS + "test_a_suspect_member_has_suspect_replicas"),
    ("raft.29", hear_any_replica, _NODES + "test_what_is_for_another_replica_is_not_heard"),
    (
        "sessions.9",
        close_with_open_parts,
        _ENDING + "test_a_run_is_open_until_all_groups_have_ended_it",
    ),
    (
        "sessions.9",
        look_at_runs_once,
        _ENDING + "test_only_sessions_are_looked_at_of_which_something_changed",
    ),
    (
        "sessions.50",
        look_among_all_inputs,
        _ENDING + "test_the_end_of_a_run_costs_the_same_with_any_number_of_other_sessions",
    ),
    ("sessions.58", keep_what_is_forgotten, _FORGOTTEN),
    ("sessions.58", give_up_unheld_runs, _FORGOTTEN),
    ("sessions.58", give_up_new_runs, _ENDING + "test_a_held_run_that_is_new_goes_on"),
    (
        "sessions.58",
        give_up_what_was_decided,
        _ENDING + "test_a_held_run_of_a_unit_that_group_0_has_yet_to_end_goes_on",
    ),
    ("sessions.9", end_what_goes_on, _ENDING + "test_what_is_open_in_group_0_goes_on"),
    (
        "sessions.9",
        leave_out_what_is_elsewhere,
        "tests/replicator/test_scenarios.py::test_scenario[push_sender_elsewhere]",
    ),
    (
        "sessions.9",
        all_must_refuse,
        "tests/replicator/test_given_up.py::test_who_has_not_the_partition_has_no_say[said2-True]",
    ),
    ("raft.29", hear_by_the_table, _NODES + "test_a_replica_hears_and_speaks_under_its_own_number"),
    (
        "raft.31",
        forget_whoever_is_there,
        _SEATS + "test_records_are_forgotten_only_of_who_has_ended",
    ),
    ("raft.31", leave_no_tombstone, _SEATS + "test_a_replica_that_has_ended_begins_no_more"),
    (
        "placement.2",
        take_voters_for_whole,
        _UPKEEP + "test_who_was_away_for_long_is_no_whole_copy",
    ),
    (
        "recovery.1",
        recover_group_0_alone,
        "tests/sequencer/test_recovery.py::test_a_node_with_data_groups_goes_on_with_them",
    ),
    (
        "sessions.10",
        take_what_is_closed,
        _RECEIVER + "test_nothing_more_is_taken_of_a_part_that_a_group_has_closed",
    ),
    ("sessions.10", begin_any_run, _ENDING + "test_a_run_that_was_closed_begins_no_more"),
    (
        "raft.30",
        go_by_what_is_told,
        "tests/replicator/test_known_nodes.py::test_a_configured_node_goes_by_its_configuration",
    ),
    (
        "placement.1",
        let_go_of_what_is_not_known,
        _UPKEEP + "test_only_what_group_0_has_made_and_deleted_is_let_go_of",
    ),
    (
        "placement.1",
        group_0_takes_all,
        _NODES + "test_group_0_changes_nothing_of_what_is_in_a_data_group",
    ),
    (
        "placement.9",
        rest_with_work_left,
        _WORKING + "test_who_has_nothing_to_do_rests_after_a_while",
    ),
    ("placement.9", rest_after_tidying, _WORKING + "test_what_tidying_leaves_is_done_first"),
    ("placement.9", forget_what_is_due, _WORKING + "test_who_has_something_due_is_looked_at_then"),
    (
        "placement.9",
        moved_in_unseen,
        _CONTENTS + "test_a_partition_that_moves_concerns_both_groups",
    ),
    (
        "placement.9",
        settings_wake_nobody,
        _NODES + "test_groups_without_work_run_nothing_and_begin_again",
    ),
    ("raft.32", damage_in_silence, _NODES + "test_a_replica_that_cannot_begin_is_shown"),
    (
        "raft.52",
        compare_group_0_only,
        _NODES + "test_a_member_that_forgot_in_one_group_is_suspect_in_all",
    ),
    ("raft.52", forget_who_led, _ENDS + "test_a_former_leader_must_have_its_term"),
)
"""Rule, bug, and the test that finds it."""
