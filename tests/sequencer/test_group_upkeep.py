"""What the leader of a data group knows of its replicas before one of them goes."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.archiver.compaction import CompactCommand, Compactions
from samelog.consensus import ProgressState
from samelog.format.compaction import CompactedSegment
from samelog.format.segment import SealedSegment
from samelog.placement.tasks import PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedGroup, PlacedReplica
from samelog.sequencer.data_groups.upkeep import ROUND_S, DataGroupUpkeep
from samelog.sequencer.raft.views import KeptFiles, NodeView
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.placement import SetReplicas
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from tests.sequencer.test_ending import TOPIC, data_group, group_0

OWN, BACK, NEW = 0, 1, 2


def compacted_segment(base: int, stop: int, number: int) -> CompactedSegment:
    """One that a compaction wrote."""
    return CompactedSegment(SealedSegment(base, 9, stop, 0, 0, 0, 0, 0, 0), number, 0, 0, b"")


class World:
    """A leader with two others: one that came back just now, and one that is there all the time."""

    def __init__(self) -> None:
        self.now, self.end, self.is_coming = 0.0, 1000, False
        self.progress = {
            number: SimpleNamespace(state=ProgressState.REPLICATE, match=50) for number in (1, 2)
        }
        self.keyed: dict[int, KeyedPartition] = {}
        self.views: defaultdict[int, NodeView] = defaultdict(NodeView)
        own = [PlacedReplica(n, n + 5, votes=True, is_whole=True) for n in (OWN, BACK, NEW)]
        partitions = {7: Partition(7, "id", 0, next_offset=self.end)}
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
                        keys=SimpleNamespace(by_partition=self.keyed),
                        transfers=SimpleNamespace(is_coming=lambda number: self.is_coming),
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


def test_a_replica_that_does_not_know_what_was_archived_is_no_whole_copy() -> None:
    """Found by the simulator: a drain removed the only replica that knew it, and the partition
    never moved again.
    """
    world = World()
    new = PlacedReplica(BACK, 9, votes=False)
    world.partition.start_segment = 500
    for node in (BACK, NEW):
        world.merged(node, 1000)
    for node in (OWN, NEW):
        world.views[node].files[7] = KeptFiles(archived=500)
    assert not world.upkeep._is_whole(new)
    assert world.healthy == [OWN, NEW]
    world.views[BACK].files[7] = KeptFiles(archived=500)
    world.views[OWN].files[7] = KeptFiles(archived=499)
    assert world.upkeep._is_whole(new)
    assert world.healthy == [BACK, NEW], "a leader may have gone on behind it"


def test_a_replica_that_lacks_compacted_segments_is_no_whole_copy() -> None:
    """Found by the simulator: no member had the segments that a group was to have, as the only one
    that wrote them was drained.
    """
    world = World()
    segments = [compacted_segment(0, 500, 4), compacted_segment(500, 900, 3)]
    world.partition.compacted = Compactions(4, segments=segments)
    for node, compaction in ((OWN, 4), (BACK, 3), (NEW, 4)):
        world.merged(node, 1000)
        world.views[node].files[7] = KeptFiles(compacted=compaction)
    assert world.healthy == [OWN, NEW]
    world.views[BACK].files[7] = KeptFiles(compacted=4)
    assert world.healthy == [OWN, BACK, NEW]


def test_a_replica_that_lacks_keys_of_archived_records_is_no_whole_copy() -> None:
    world = World()
    world.partition.log_start = 300
    world.keyed[7] = KeyedPartition()
    for node, indexed in ((OWN, 400), (BACK, 299), (NEW, 300)):
        world.merged(node, 1000)
        world.views[node].files[7] = KeptFiles(indexed=indexed)
    assert world.healthy == [OWN, NEW]
    world.keyed[7].floor = 300
    assert world.healthy == [OWN, BACK, NEW], "those keys do not count any more"


def test_who_votes_now_decides_what_is_compacted() -> None:
    """Else the one voter that a replica is taken from decides on segments that the other lacks."""
    machine = data_group()
    order = CompactCommand(1, 1, 0, 9, 0, 1, bytes(16), [OWN], 0)
    known = machine.state.partitions.by_number[1]
    known.compacted = Compactions(1, order)
    replicas = [PlacedReplica(OWN, 5, votes=True), PlacedReplica(BACK, 6, votes=False)]
    machine.apply(SetReplicas(3, 1, 0, "", replicas))
    assert known.compactions.order == order
    replicas[1] = PlacedReplica(BACK, 6, votes=True)
    machine.apply(SetReplicas(3, 1, 1, "", replicas))
    assert known.compactions.order is None


def test_what_was_archived_comes_with_a_partition_when_it_is_open() -> None:
    world = World()
    world.partition.start_segment, world.is_coming = 500, True
    for node in (BACK, NEW):
        world.merged(node, 1000)
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
