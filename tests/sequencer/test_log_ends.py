"""What two members compare of the data groups that they share."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from samelog.consensus import Entry, HardState
from samelog.consensus.wal import SnapshotMark
from samelog.placement.values import PlacedGroup, PlacedReplica, Placement
from samelog.sequencer.cluster.lives import Acknowledged
from samelog.sequencer.data_groups.leaders import KnownLeaders, Led
from samelog.sequencer.data_groups.log_ends import LogEnds
from samelog.sequencer.data_groups.seats import FORMAT_VERSION, ReplicaRecord, SeatFile
from samelog.sequencer.raft.member_log import MemberLog
from samelog.store.disk.files import OsFileSystem
from samelog.wire.bounds import ReplicaEnd

OWN, OTHER, REPLICA = 0, 1, 5
_REPLICAS = PlacedReplica(0, REPLICA), PlacedReplica(1, 6), PlacedReplica(2, 8)
GROUP = PlacedGroup(7, 3, _REPLICAS, preferred=0, founders=(0, 1, 2))
TABLE = Placement(groups={7: GROUP})


class World:
    """The log of a member, and what is known beside it."""

    def __init__(self, path: Path) -> None:
        self.log = MemberLog.open(OsFileSystem(), str(path / "raft"), cluster="c", node=OWN)
        suspicions = SimpleNamespace(times=0)
        self.record = SimpleNamespace(suspicions=suspicions, doubtful=False)
        self.replicas: dict[int, Any] = {}
        directory = SimpleNamespace(record=self.record)
        member: Any = SimpleNamespace(raft_log=self.log, directory=directory)
        self.leaders = KnownLeaders()
        self.ends = LogEnds(OsFileSystem(), member, lambda: TABLE, self.replicas, self.leaders)

    def write(self, *records: Any, **more: Any) -> None:
        seat = ReplicaRecord(FORMAT_VERSION, REPLICA, trusted=0)
        SeatFile(OsFileSystem(), self.log.directory, 7).write(structs.replace(seat, **more))
        self.log.write(self.log.group((7, REPLICA)), list(records))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def running(*, leads: bool = False, match: int = 0, seat: int = 6) -> Any:
    """The parts of a running replica that are used."""
    progress = SimpleNamespace(match=match) if leads else None
    log = SimpleNamespace(term_at=lambda index: 4)
    saves = SimpleNamespace(on_disk=9, durable_term=4)
    core = SimpleNamespace(
        may_vote=True,
        is_doubtful=False,
        saves=saves,
        log=log,
        term=4,
        progress=lambda member: progress,
    )
    sender = SimpleNamespace(replica=lambda member: seat)
    raft = SimpleNamespace(raft=core)
    return SimpleNamespace(number=7, replica=REPLICA, raft=raft, sender=sender)


def test_the_ends_of_replicas_that_have_yet_to_begin_are_told(world: World) -> None:
    world.write(Entry(1, 2, b""), Entry(2, 3, b""), HardState(4, None, 1))
    assert world.ends.told(OTHER) == (ReplicaEnd(7, REPLICA, 4, 2, 3),)
    assert world.ends.told(9) == (), "it has no replica of the group"


def test_a_snapshot_is_an_end(world: World) -> None:
    world.write(SnapshotMark(8, 3), HardState(4, None, 8))
    assert world.ends.told(OTHER) == (ReplicaEnd(7, REPLICA, 4, 8, 3),)


def test_what_knows_itself_that_it_may_have_forgotten_is_not_told(world: World) -> None:
    world.write(Entry(1, 2, b""), HardState(4, None, 1), trusted=-1)
    assert world.ends.told(OTHER) == ()
    world.write(is_ended=True)
    assert world.ends.told(OTHER) == ()
    world.write()
    world.record.doubtful = True
    assert world.ends.told(OTHER) == ()
    world.replicas[7] = running()
    assert world.ends.told(OTHER) == (ReplicaEnd(7, REPLICA, 4, 9, 4),)
    world.replicas[7].raft.raft.may_vote = False
    assert world.ends.told(OTHER) == ()


def test_a_follower_must_have_what_it_acknowledged(world: World) -> None:
    world.replicas[7] = running(leads=True, match=3)
    assert [*world.ends.acknowledged(OTHER)] == [Acknowledged(4, 3, 7, 6)]
    world.replicas[7] = running(leads=True)
    assert [*world.ends.acknowledged(OTHER)] == []


def test_a_former_leader_must_have_its_term(world: World) -> None:
    world.replicas[7] = running()
    world.leaders.note(7, Led(3, OTHER, 6))
    assert [*world.ends.acknowledged(OTHER)] == [Acknowledged(3, 0, 7, 6)]
    assert [*world.ends.acknowledged(2)] == []
    world.replicas[7] = running(seat=9)
    assert [*world.ends.acknowledged(OTHER)] == [], "it was another replica of that member"
    world.replicas[7] = running()
    world.leaders.note(7, Led(4, OTHER, 0))
    assert [*world.ends.acknowledged(OTHER)] == [], "by which replica is not known"
    world.leaders.forget(7)
    assert [*world.ends.acknowledged(OTHER)] == []
