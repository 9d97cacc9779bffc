"""Planted bugs in placement: which member gets and loses what, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from samelog.kafka import broker
from samelog.kafka.apis import topic_admin
from samelog.placement import (
    changes,
    evening,
    guards,
    members,
    needs,
    operations,
    orders,
    reassigning,
    steps,
    topics,
    voters,
    wishes,
)
from samelog.placement.changes import PartitionMoved
from samelog.placement.domains import Domains
from samelog.placement.members import Availability, MemberStates
from samelog.placement.planner import PlacementPlanner
from samelog.placement.steps import TaskStep
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import Action, PartitionMove, PlacementTask, TaskState
from samelog.placement.values import PlacedGroup, Placement
from samelog.sequencer.admin import topics as admin_topics
from samelog.sequencer.cluster.changes import Changes
from samelog.sequencer.cluster.group_keeper import GroupKeeper
from samelog.sequencer.cluster.keeper_steps import WantedGroup
from samelog.sequencer.cluster.presence import Presence
from samelog.sequencer.data_groups import ending
from samelog.sequencer.data_groups.hosting import DataGroups
from samelog.sequencer.data_groups.keeping import ReplicaKeeper
from samelog.sequencer.data_groups.replica import DataReplica
from samelog.sequencer.data_groups.upkeep import DataGroupUpkeep
from samelog.sequencer.parts import PeerParts
from samelog.sequencer.state.machine import CHANGES
from samelog.sequencer.state.tables.placement import DropTopics


@contextmanager
def _guarded(guard: Callable[..., str]) -> Iterator[None]:
    """Planner and leaders of groups judge by another guard."""
    with (
        patch.object(steps, "refuse_removal", guard),
        patch.object(orders, "refuse_removal", guard),
    ):
        yield


@contextmanager
def remove_the_only_copy() -> Iterator[None]:
    """A replica is removed whatever is left of its group."""
    with _guarded(lambda *_: ""):
        yield


@contextmanager
def remove_one_copy_too_many() -> Iterator[None]:
    """A copy that can be reached goes as soon as all but one of the others are there."""
    original = guards.refuse_removal
    with _guarded(
        lambda group, member, healthy, copies: original(group, member, healthy, copies - 1)
    ):
        yield


@contextmanager
def answer_deletions_at_once() -> Iterator[None]:
    """A deletion is over when group 0 has it, though data groups have the topic."""

    async def until_dropped(*given: Any) -> dict[str, list[int]]:
        return {}

    with (
        patch.object(admin_topics, "until_dropped", until_dropped),
        patch.object(topic_admin, "until_dropped", until_dropped),
    ):
        yield


@contextmanager
def answer_creations_at_once() -> Iterator[None]:
    """A creation is over when group 0 has it, though no group has opened it."""

    async def until_open(*given: Any) -> list[int]:
        return []

    with (
        patch.object(admin_topics, "until_open", until_open),
        patch.object(broker, "until_open", until_open),
    ):
        yield


@contextmanager
def take_led_for_open() -> Iterator[None]:
    """A partition counts as open as soon as its group has a leader."""

    def is_open(self: DataGroups, group: int, partition: int) -> bool:
        return self.leader(group) is not None

    with patch.object(DataGroups, "_is_open", is_open):
        yield


@contextmanager
def announce_by_a_newer_table() -> Iterator[None]:
    """A leader says that all is open that group 0 has created, and has opened less."""

    def note(self: DataGroups, group: int, term: int, member: int, opened: int = 0) -> bool:
        opened = opened and self._host.cluster.partitions.next_number
        return original(self, group, term, member, opened)

    original = DataGroups._note_leader
    with patch.object(DataGroups, "_note_leader", note):
        yield


@contextmanager
def open_by_an_old_table() -> Iterator[None]:
    """A group forgets that it has dropped topics, so that an old leader opens them again."""
    with patch.dict(CHANGES, {DropTopics: lambda state, command: None}):
        yield


@contextmanager
def end_groups_that_owe() -> Iterator[None]:
    """A group ends with its last topic, whether it has dropped that or not."""
    with patch.object(PlacementTable, "is_owing", lambda self, group: False):
        yield


@contextmanager
def replace_in_maintenance() -> Iterator[None]:
    """Who is in maintenance is lost after the same time as anybody."""
    original = members.state_of

    def state_of(member: Any, *given: Any, **named: Any) -> Availability:
        state = original(member, *given, **named)
        if state is Availability.MAINTENANCE and member.silent_since_ms is not None:
            return Availability.LOST
        return state

    with patch.object(members, "state_of", state_of):
        yield


@contextmanager
def replace_despite_silent_majority() -> Iterator[None]:
    """However many members are silent, their copies are remade elsewhere."""
    with patch.object(MemberStates, "_many_silent", lambda *_: False):
        yield


@contextmanager
def replace_at_once() -> Iterator[None]:
    """A member that is silent is lost."""
    original = MemberStates.__getitem__

    def state(self: MemberStates, member: int) -> Availability:
        found = original(self, member)
        return Availability.LOST if found is Availability.SILENT else found

    with patch.object(MemberStates, "__getitem__", state):
        yield


@contextmanager
def begin_any_number() -> Iterator[None]:
    """Nobody counts the tasks of a member."""
    with patch.object(PlacementPlanner, "_touched", lambda *_: set()):
        yield


@contextmanager
def forget_who_has_the_group() -> Iterator[None]:
    """Nobody looks whether a group has a task already."""
    original = PlacementTable.follow

    def follow(self: PlacementTable, placement: Placement) -> None:
        original(self, placement)
        self.occupied.clear()

    with (
        patch.object(PlacementTable, "follow", follow),
        patch.object(changes, "_task_of", lambda *_: None),
    ):
        yield


@contextmanager
def keep_old_needs() -> Iterator[None]:
    """What was planned for a member begins whatever has become of the member."""
    with patch.object(MemberStates, "changed_since", lambda *_: set()):
        yield


@contextmanager
def begin_what_was_cancelled() -> Iterator[None]:
    """What an operator cancelled is still needed, and begins again."""
    original = changes._turn

    def turn(placement: Placement, change: changes.TurnTask) -> None:
        original(placement, replace(change, declines=False))

    with patch.dict(changes._APPLY, {changes.TurnTask: turn}):
        yield


@contextmanager
def leave_the_learner() -> Iterator[None]:
    """A task that is cancelled is over at once, and its new replica stays."""

    def undo(_table: object, _states: object, task: PlacementTask, _group: object) -> TaskStep:
        return TaskStep(change=changes.TurnTask(task.number, TaskState.CANCELLED))

    with patch.object(steps, "_undo", undo):
        yield


@contextmanager
def promote_what_is_not_whole() -> Iterator[None]:
    """A new replica votes before it has what the others have."""
    original = steps._carry_on

    def carry_on(table: Any, states: Any, task: Any, group: PlacedGroup) -> TaskStep:
        replicas = tuple(replace(each, is_whole=True) for each in group.replicas)
        return original(table, states, task, replace(group, replicas=replicas))

    with patch.object(steps, "_carry_on", carry_on):
        yield


@contextmanager
def remove_who_leads() -> Iterator[None]:
    """A leader is removed before somebody else leads: the group refuses that for ever."""
    original = steps._remove

    def remove(table: Any, states: Any, task: Any, member: int) -> TaskStep:
        step, group = original(table, states, task, member), table.groups[task.group]
        if step.order is None or step.order.action is not Action.LEAD:
            return step
        return TaskStep(steps._order(task, group, Action.REMOVE, group.replica_of(member)))

    with patch.object(steps, "_remove", remove):
        yield


@contextmanager
def drain_forgets_a_group() -> Iterator[None]:
    """Who is drained keeps the groups that it shall lead."""
    original = needs._leaving

    def leaving(look: Any, group: PlacedGroup) -> Any:
        need = original(look, group)
        return None if need is not None and need.loses == group.preferred else need

    judges = tuple(leaving if each is original else each for each in needs._JUDGES)
    with patch.object(needs, "_JUDGES", judges):
        yield


@contextmanager
def ignore_racks() -> Iterator[None]:
    """Members are chosen by what they hold, wherever they are."""
    with patch.object(Domains, "shared", lambda *_: (0, 0, 0)):
        yield


@contextmanager
def even_out_to_and_fro() -> Iterator[None]:
    """Two members are uneven as soon as one has a group more."""

    def way(counts: dict[int, int], find: evening.Find, _stuck: Any) -> list[evening.GroupMove]:
        fullest = max(counts, key=lambda each: (counts[each], -each))
        emptiest = min(counts, key=lambda each: (counts[each], each))
        group = find(fullest, emptiest, ())
        if counts[fullest] == counts[emptiest] or group is None:
            return []
        return [evening.GroupMove(group, fullest, emptiest)]

    with patch.object(evening, "_way", way):
        yield


@contextmanager
def put_all_into_one_group() -> Iterator[None]:
    """All partitions of a topic go into the group that had fewest."""
    with patch.object(topics, "cycle", lambda numbers: repeat(numbers[0])):
        yield


@contextmanager
def found_groups_on_the_silent() -> Iterator[None]:
    """Members that are away may be the majority of a new group."""

    def able(states: MemberStates, _domains: Domains, _copies: int) -> list[int]:
        return states.expected

    with patch.object(topics, "_able", able):
        yield


@contextmanager
def _moved(**believed: bool) -> Iterator[None]:
    """The mover takes something for done."""
    original = steps._move

    def move(table: Any, task: Any, moved: PartitionMove) -> TaskStep:
        return original(table, task, replace(moved, **believed))

    with patch.object(steps, "_move", move):
        yield


@contextmanager
def seal_before_it_is_copied() -> Iterator[None]:
    """A partition is sealed while its new group lacks some of it."""
    with _moved(is_copied=True):
        yield


@contextmanager
def drop_before_it_is_open() -> Iterator[None]:
    """The old group drops a partition before it is open in the new one."""
    with _moved(is_open=True):
        yield


@contextmanager
def cancel_without_forbidding() -> Iterator[None]:
    """A move is cancelled though the order to seal may be under way."""
    with _moved(is_forbidden=True):
        yield


@contextmanager
def founders_for_ever() -> Iterator[None]:
    """A founding member of a group restarts it with an empty replica."""
    with patch.object(PlacedGroup, "is_founder", lambda self, member: member in self.founders):
        yield


@contextmanager
def forget_the_newest_wish() -> Iterator[None]:
    """What was wanted while a partition moved is forgotten when that move ends."""
    with patch.object(wishes, "newer_wish", lambda placement, task: None):
        yield


@contextmanager
def keep_what_is_fulfilled() -> Iterator[None]:
    """A partition that is where it was wanted is taken to be on its way for ever."""
    with patch.object(wishes, "forget_if_fulfilled", lambda placement, partition: None):
        yield


@contextmanager
def leave_who_is_wanted_back() -> Iterator[None]:
    """A partition that moves away is taken to be where it is wanted still."""
    with patch.object(reassigning, "_leaves", lambda table, partition: False):
        yield


@contextmanager
def count_whoever_is_heard() -> Iterator[None]:
    """Who may have forgotten something is part of a majority, which never has a leader."""
    original = operations.recover

    def recover(table: Any, name: str, group: int, suspect: Any = ()) -> Any:
        return original(table, name, group)

    with patch.object(operations, "recover", recover):
        yield


@contextmanager
def give_to_who_leaves() -> Iterator[None]:
    """Who is to be replaced gets copies, and keeps what it has."""
    with patch.object(
        PlacementTable, "is_draining", lambda self, member: member in self.placement.draining
    ):
        yield


@contextmanager
def leave_tasks_of_others() -> Iterator[None]:
    """A leader of group 0 carries on only what began while it led."""
    original = PlacementPlanner._go_on

    def go_on(self: Any, states: Any, planned: Any, *given: Any) -> None:
        left = self.__dict__.setdefault("_left", frozenset(self._table.placement.tasks))
        original(self, states, planned, *given)
        planned.orders[:] = [each for each in planned.orders if each.task not in left]
        planned.changes[:] = [each for each in planned.changes if _task_of(each) not in left]

    with patch.object(PlacementPlanner, "_go_on", go_on):
        yield


def _task_of(change: Any) -> int:
    return int(change.task if isinstance(change, PartitionMoved) else change.number)


@contextmanager
def let_an_eighth_vote() -> Iterator[None]:
    """Every member becomes a voter of group 0, however many there are."""
    with patch.object(voters, "VOTERS_MOST", 64):
        yield


@contextmanager
def remove_what_is_ending() -> Iterator[None]:
    """What is left of a replica is removed while the replica ends."""
    with patch.object(ReplicaKeeper, "_is_here", lambda self, number: number in self.replicas):
        yield


@contextmanager
def keep_replicas_that_lag() -> Iterator[None]:
    """A replica of a group that has ended stays while it holds partitions."""
    original = ReplicaKeeper._is_over

    def is_over(self: ReplicaKeeper, replica: DataReplica) -> bool:
        partitions = replica.group_replica.logs.machine.state.partitions.by_number
        return original(self, replica) and not partitions

    with patch.object(ReplicaKeeper, "_is_over", is_over):
        yield


@contextmanager
def order_before_the_first_configuration() -> Iterator[None]:
    """A group that has yet to take its first configuration makes another one of nothing."""
    with patch.object(orders, "_is_void", lambda order, group: order.version != group.version):
        yield


@contextmanager
def leave_clients_at_what_ended() -> Iterator[None]:
    """Streams that are open at a replica that ends stay open, and nothing comes any more."""
    with patch.object(DataReplica, "let_clients_go", lambda self: None):
        yield


@contextmanager
def say_nothing_of_unused_runs() -> Iterator[None]:
    """A group of which a run that has ended used nothing says nothing of it."""
    with patch.object(ending, "begin_unused", lambda replica, cluster, session, run_id: None):
        yield


@contextmanager
def name_only_what_came() -> Iterator[None]:
    """What group 0 noted, and of which nothing came, is no part of what a group closes."""
    with patch.object(ending, "_unused", lambda state, cluster, session, run: ()):
        yield


@contextmanager
def found_groups_on_suspects() -> Iterator[None]:
    """A new group begins on whoever is up, also on who has yet to be let in."""
    with patch.object(
        PeerParts, "may_hold", lambda self, number, state, now: self.presence.is_there(number)
    ):
        yield


@contextmanager
def found_groups_before_the_cluster_is_known() -> Iterator[None]:
    """A new group begins on members that have yet to learn that the cluster has begun."""
    with patch.object(GroupKeeper, "has_entries", lambda self, number: True):
        yield


@contextmanager
def found_groups_on_open_connections() -> Iterator[None]:
    """A member counts as up as long as its connection looks open."""
    with patch.object(Presence, "is_heard", lambda self, number, now: self.is_there(number)):
        yield


@contextmanager
def begin_without_a_majority() -> Iterator[None]:
    """Whoever an operator names holds a new group, be they away."""
    with patch.object(topics, "_check_majority", lambda table, members: None):
        yield


@contextmanager
def remove_who_just_gets_a_replica() -> Iterator[None]:
    """A member is removed though what gives it a replica is in the log before its removal."""
    with patch.object(Changes, "_are_groups_placed", lambda self: False):
        yield


@contextmanager
def take_in_anew_who_has_the_only_copy() -> Iterator[None]:
    """A member gets another number, whatever nobody else has."""
    with patch.object(operations, "check_readmission", lambda table, name, *, has_all: None):
        yield


@contextmanager
def lead_again_before_it_goes() -> Iterator[None]:
    """Who hands leadership over as its replica is to go gets it back, as it should lead."""
    original = DataGroupUpkeep.wanted

    def wanted(self: DataGroupUpkeep) -> WantedGroup:
        return dataclasses.replace(original(self), going=frozenset())

    with patch.object(DataGroupUpkeep, "wanted", wanted):
        yield


_IN = "tests/placement/test_"
_WORLDS = _IN + "simulation.py::test_worlds_keep_their_promises"
_DEADLY = _IN + "simulation.py::test_leaders_of_group_0_die_in_every_phase_of_every_task"
_NOT_AGAIN = "planner.py::test_what_an_operator_cancelled_does_not_begin_again_by_itself"
_FORBIDS = "cancelling.py::test_a_move_that_is_cancelled_before_the_seal_forbids_it"
_BACK = "tests/sequencer/test_placing.py::test_a_replica_that_comes_back_waits_for_its_group"
_SENT = (
    "tests/sequencer/test_placing.py::test_who_reads_from_a_replica_that_ends_is_sent_to_the_others"
)
_RUNS = "tests/sequencer/test_ending.py::test_"
_UNUSED = _RUNS + "a_run_that_does_not_write_where_an_older_one_did_ends_there_too"
_NOTED = _RUNS + "a_part_names_what_was_noted_and_never_came"
_COUNTED = (
    "tests/sequencer/test_lives.py::test_groups_begin_on_members_that_are_up_count_and_take_in"
)
_HEARD = "tests/sequencer/test_presence.py::test_a_member_that_tells_nothing_is_not_heard"
_LISTED = "topics.py::test_a_list_of_members_needs_a_majority_that_may_begin"
_JUST = "tests/sequencer/test_changes.py::test_a_member_that_may_just_get_a_replica_is_not_removed"
_ANEW = "operations.py::test_who_has_the_only_copy_does_not_begin_anew_unless_it_lost_it"
_GOES = (
    "tests/sequencer/test_group_upkeep.py::"
    "test_leadership_is_not_given_to_whom_a_task_takes_the_replica_from"
)
_FIRST = "orders.py::test_a_group_without_a_configuration_takes_no_order"
_LAGGING = (
    "tests/sequencer/test_leftovers.py::"
    "test_a_replica_of_a_group_that_ended_ends_though_it_holds_a_partition"
)
_ENDING = "tests/sequencer/test_leftovers.py::test_what_is_ending_removes_its_files_itself"
_EIGHTH = "tests/sequencer/test_changes.py::test_members_beyond_seven_are_learners"
_EVEN = "topics.py::test_no_member_has_two_groups_more_than_another"
_AWAY = "topics.py::test_who_is_away_gets_a_new_group_only_as_a_minority"
_COUNTS = "recovering.py::test_who_counts_for_nothing_is_no_part_of_a_majority"
_LAST = "cancelling.py::test_where_a_partition_is_wanted_last_counts_though_another_move_ends"
_THERE = "cancelling.py::test_who_is_where_it_is_wanted_waits_for_nothing"
_WANTED = "cancelling.py::test_a_partition_that_is_wanted_back_comes_back"

_OPENINGS = "tests/sequencer/test_openings.py::"
_DELETIONS = "tests/sequencer/test_deletions.py::"

PLACING = (
    ("placement.2", remove_the_only_copy, _WORLDS),
    ("placement.2", remove_one_copy_too_many, _WORLDS),
    ("placement.2", promote_what_is_not_whole, _IN + "planner.py::test_a_task_goes_step_by_step"),
    ("placement.3", replace_in_maintenance, _WORLDS),
    (
        "placement.3",
        replace_despite_silent_majority,
        _IN + "planner.py::test_nobody_is_replaced_by_itself_while_a_third_is_silent",
    ),
    ("placement.3", replace_at_once, _WORLDS),
    ("placement.3", begin_any_number, _IN + "planner.py::test_a_member_has_so_many_tasks_at_once"),
    ("placement.3", forget_who_has_the_group, _WORLDS),
    ("placement.3", keep_old_needs, _WORLDS),
    ("placement.3", begin_what_was_cancelled, _IN + _NOT_AGAIN),
    ("placement.3", give_to_who_leaves, _DEADLY),
    ("placement.4", leave_tasks_of_others, _DEADLY),
    ("placement.4", leave_the_learner, _IN + "cancelling.py::test_a_new_replica_is_removed_again"),
    ("placement.4", remove_who_leads, _WORLDS),
    ("placement.4", drain_forgets_a_group, _WORLDS),
    ("placement.4", founders_for_ever, _BACK),
    (
        "placement.5",
        ignore_racks,
        _IN + "topics.py::test_copies_are_in_different_racks_and_then_sites",
    ),
    ("placement.5", even_out_to_and_fro, _WORLDS),
    (
        "placement.5",
        put_all_into_one_group,
        _IN + _EVEN,
    ),
    ("placement.5", found_groups_on_the_silent, _IN + _AWAY),
    ("placement.6", seal_before_it_is_copied, _WORLDS),
    ("placement.6", drop_before_it_is_open, _WORLDS),
    ("placement.6", cancel_without_forbidding, _IN + _FORBIDS),
    ("recovery.2", count_whoever_is_heard, _IN + _COUNTS),
    ("placement.11", forget_the_newest_wish, _IN + _LAST),
    ("placement.11", leave_who_is_wanted_back, _IN + _WANTED),
    ("placement.11", keep_what_is_fulfilled, _IN + _THERE),
    ("raft.33", let_an_eighth_vote, _EIGHTH),
    ("raft.34", remove_what_is_ending, _ENDING),
    ("placement.8", keep_replicas_that_lag, _LAGGING),
    ("raft.35", order_before_the_first_configuration, _IN + _FIRST),
    ("placement.13", leave_clients_at_what_ended, _SENT),
    ("sessions.11", say_nothing_of_unused_runs, _UNUSED),
    ("sessions.11", name_only_what_came, _NOTED),
    ("raft.36", found_groups_on_suspects, _COUNTED),
    ("raft.36", found_groups_before_the_cluster_is_known, _COUNTED),
    ("raft.36", begin_without_a_majority, _IN + _LISTED),
    ("raft.36", found_groups_on_open_connections, _HEARD),
    ("placement.14", remove_who_just_gets_a_replica, _JUST),
    ("placement.14", take_in_anew_who_has_the_only_copy, _IN + _ANEW),
    ("raft.37", lead_again_before_it_goes, _GOES),
    (
        "placement.23",
        answer_deletions_at_once,
        _DELETIONS + "test_a_group_without_a_majority_drops_the_topic_when_it_is_back",
    ),
    (
        "placement.23",
        open_by_an_old_table,
        _DELETIONS + "test_a_group_opens_nothing_by_a_table_that_is_older_than_what_it_dropped",
    ),
    (
        "placement.23",
        end_groups_that_owe,
        _IN + "planner.py::test_a_group_ends_once_it_has_dropped_its_topics",
    ),
    (
        "placement.28",
        answer_creations_at_once,
        _OPENINGS + "test_kafka_clients_are_answered_once_all_partitions_are_open",
    ),
    (
        "placement.28",
        take_led_for_open,
        _OPENINGS + "test_at_its_deadline_a_creation_says_what_has_no_leader_yet",
    ),
    (
        "placement.28",
        announce_by_a_newer_table,
        _OPENINGS + "test_a_leader_announces_only_what_is_in_the_table_that_it_went_by",
    ),
)
"""Rule, bug, and the test that finds it."""
