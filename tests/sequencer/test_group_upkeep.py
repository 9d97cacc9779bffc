"""What the leader of a data group knows of its replicas before one of them goes."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.consensus import ProgressState
from samelog.placement.tasks import PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.sequencer.data_groups.upkeep import ROUND_S, DataGroupUpkeep
from samelog.sequencer.raft.views import NodeView
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from tests.sequencer.test_ending import TOPIC, data_group, group_0

OWN, BACK, NEW = 0, 1, 2


class World:
    """A leader with two others: one that came back just now, and one that is there all the time."""

    def __init__(self) -> None:
        self.now, self.end = 0.0, 1000
        self.progress = {
            number: SimpleNamespace(state=ProgressState.REPLICATE, match=50) for number in (1, 2)
        }
        self.views: defaultdict[int, NodeView] = defaultdict(NodeView)
        own = [PlacedReplica(n, n + 5, votes=True, is_whole=True) for n in (OWN, BACK, NEW)]
        partitions = {7: SimpleNamespace(number=7, next_offset=self.end)}
        raft = SimpleNamespace(
            counts=lambda number: True, progress=self.progress.get, last_index=50
        )
        replica: Any = SimpleNamespace(
            raft=SimpleNamespace(
                group=SimpleNamespace(raft=raft), coordinator=SimpleNamespace(views=self.views)
            ),
            logs=SimpleNamespace(
                machine=SimpleNamespace(
                    state=SimpleNamespace(
                        placement=SimpleNamespace(own=own),
                        partitions=SimpleNamespace(by_number=partitions),
                        has_here=lambda number: True,
                    )
                )
            ),
        )
        self.partition, unused = partitions[7], SimpleNamespace()
        anything: Any = unused
        clock: Any = SimpleNamespace(now=lambda: self.now)
        presence: Any = SimpleNamespace(number=OWN, is_there=lambda number: True)
        self.upkeep = DataGroupUpkeep(
            replica,
            anything,
            clock=clock,
            presence=presence,
            lives=anything,
            cluster=anything,
            contents=anything,
        )

    def merged(self, node: int, offset: int) -> None:
        self.views[node].merged_durable[7] = offset

    @property
    def healthy(self) -> list[int]:
        return self.upkeep._healthy()


@pytest.mark.parametrize(
    ("task", "heirs"),
    [
        (PlacementTask(1, TaskKind.DRAIN, 3, gets=1, loses=2, state=TaskState.CANCELLING), []),
        (PlacementTask(1, TaskKind.DRAIN, 3, gets=1, loses=2), [1]),
        (PlacementTask(1, TaskKind.BALANCE, 3, gets=2, loses=1), []),
        (PlacementTask(1, TaskKind.BALANCE, 4, gets=2, loses=1), [1]),
        (PlacementTask(1, TaskKind.LEAD, 3, gets=1), [1]),
        (PlacementTask(1, TaskKind.MOVE_PARTITION, 3, loses=1, partition=7, target=4), [1]),
    ],
)
def test_leadership_is_not_given_to_whom_a_task_takes_the_replica_from(
    task: PlacementTask, heirs: list[int]
) -> None:
    """Found by the simulator: it went to and fro between two members for ever, as the one that was
    to go was the one that should lead.
    """
    world = World()
    state = SimpleNamespace(placement=SimpleNamespace(tasks={1: task}))
    world.upkeep._cluster = lambda: state  # type: ignore[assignment, return-value]
    world.upkeep._group = lambda: PlacedGroup(3, 2, (), 1, ())
    wanted = world.upkeep.wanted()
    assert [each for each in wanted.leaders if each not in wanted.going] == heirs


def test_who_was_away_for_long_is_no_whole_copy() -> None:
    world = World()
    world.merged(NEW, 1000)
    world.merged(BACK, 10)
    assert world.healthy == [OWN, NEW]
    world.merged(BACK, 1000)
    world.progress[BACK].match = 50
    assert world.healthy == [OWN, BACK, NEW]


def test_under_steady_load_all_are_whole_at_the_same_time() -> None:
    world, at_once = World(), 0
    for step in range(100):
        world.now += 1.0
        world.partition.next_offset += 500
        for node in (BACK, NEW):  # a little behind, always
            world.merged(node, world.partition.next_offset - 300 - node)
        if step % 2:
            world.upkeep._is_near(PlacedReplica(BACK, 6, votes=True))
        at_once += world.healthy == [OWN, BACK, NEW]
    assert at_once > 100 * (1 - 2 / ROUND_S) - 5


def test_only_what_group_0_has_made_and_deleted_is_let_go_of() -> None:
    """A member's copy of group 0 may lag: what is not in it may be new."""
    clusters, group, anything = [StateMachine()], data_group(), SimpleNamespace()
    replica: Any = SimpleNamespace(
        raft=SimpleNamespace(group=anything, coordinator=anything),
        logs=SimpleNamespace(machine=group),
    )
    others: Any = anything
    upkeep = DataGroupUpkeep(
        replica,
        lambda: PlacedGroup(1, 1, (), 0, ()),
        clock=others,
        presence=others,
        lives=others,
        cluster=lambda: clusters[-1].state,
        contents=lambda: (),
    )
    assert upkeep._behind_topics() == [], "it is not made yet, as far as is known"
    clusters.append(group_0())
    assert upkeep._behind_topics() == []
    clusters[-1].apply(DeleteTopicCommand(TOPIC))
    assert upkeep._behind_topics() == [DeleteTopicCommand(TOPIC)]
