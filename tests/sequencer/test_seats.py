"""Which replica of a data group a directory has, and whether that counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.placement.values import PlacedGroup, PlacedReplica, Placement
from samelog.sequencer.cluster.node_dir import NodeRecord, Suspicions
from samelog.sequencer.data_groups.seats import (
    NEVER,
    ReplicaRecord,
    SeatFile,
    begun,
    has_ended,
    is_stale,
    seat_of,
)
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.store.disk.files import OsFileSystem

OWN = 2
REPLICA = PlacedReplica(OWN, 9, made_at=4)
GROUP = PlacedGroup(5, 3, (PlacedReplica(0, 8, made_at=4), REPLICA), 0, (0, OWN), made_at=4)


def record(
    *, suspicion: str = "", suspicions: int = 0, sure_after: int | None = None
) -> NodeRecord:
    counted = Suspicions(suspicions, sure_after)
    return NodeRecord(2, "c", "n", 1, OWN, suspicion=suspicion, suspicions=counted)


def test_a_replica_that_was_made_for_this_directory_counts_at_once() -> None:
    known = begun(None, REPLICA, Placement(), record())
    assert known == ReplicaRecord(1, 9, 0)
    seat = seat_of(GROUP, known, record())
    assert (seat.group, seat.replica, seat.may_vote) == (5, 9, True)
    assert seat.founders == (0, OWN)


def test_a_replica_that_another_directory_may_have_had_does_not() -> None:
    table = Placement(let_in_at={OWN: 6})
    known = begun(None, REPLICA, table, record())
    assert known.trusted == NEVER
    assert not seat_of(GROUP, known, record()).may_vote
    later = PlacedReplica(OWN, 9, made_at=7)
    assert begun(None, later, table, record()).trusted == 0


def test_a_suspect_member_has_suspect_replicas() -> None:
    suspect = record(suspicion="a copy", suspicions=1)
    assert not seat_of(GROUP, begun(None, REPLICA, Placement(), suspect), suspect).may_vote
    before = ReplicaRecord(1, 9, 0)
    assert begun(before, REPLICA, Placement(), suspect) is before
    assert not seat_of(GROUP, before, suspect).may_vote
    let_in = record(suspicions=1)
    assert not seat_of(GROUP, before, let_in).may_vote, "group 0 does not speak for group 5"
    assert seat_of(GROUP, ReplicaRecord(1, 9, 1), let_in).may_vote


def test_who_counts_again_without_being_let_in_is_sure_of_nothing_from_before() -> None:
    """Two of three were suspect: all voters agreed, so nobody was let in, and the table knows of no
    other directory. One that was emptied took its replicas for new, and had a vote.
    """
    counts_again, table = record(suspicions=1, sure_after=6), Placement(version=6)
    known = begun(None, REPLICA, table, counts_again)
    assert known.trusted == NEVER
    assert not seat_of(GROUP, known, counts_again).may_vote
    later = PlacedReplica(OWN, 9, made_at=7)
    assert begun(None, later, table, counts_again).trusted == 1
    assert begun(None, later, table, record(suspicions=1)).trusted == NEVER, "nothing is confirmed"


def test_records_are_forgotten_only_of_who_has_ended() -> None:
    runs, ended = ReplicaRecord(1, 9, 0), ReplicaRecord(1, 9, 0, is_ended=True)
    assert [has_ended(runs, replica) for replica in (8, 9, 10)] == [True, False, False]
    assert [has_ended(ended, replica) for replica in (8, 9, 10)] == [True, True, False]
    assert not has_ended(None, 9), "who has lost its replica.json is still known by its records"


def test_another_replica_of_the_group_is_not_begun_over_it() -> None:
    with pytest.raises(RaftStoreError, match="replica 3 was here, and the table says 9"):
        begun(ReplicaRecord(1, 3, 0), REPLICA, Placement(), record())


def test_a_replica_that_has_ended_begins_no_more(tmp_path: Path) -> None:
    """Group 0 may forget here that it was to end."""
    file = SeatFile(OsFileSystem(), str(tmp_path), 5)
    file.write(ReplicaRecord(1, 9, 0))
    file.bury(ReplicaRecord(1, 9, 0))
    known = file.read()
    assert known == ReplicaRecord(1, 9, 0, is_ended=True)
    assert is_stale(known, REPLICA)
    later = PlacedReplica(OWN, 10, made_at=5)
    assert not is_stale(known, later)
    assert begun(known, later, Placement(), record()) == ReplicaRecord(1, 10, 0)
    assert not is_stale(ReplicaRecord(1, 9, 0), REPLICA)
    assert not is_stale(None, REPLICA)


def test_the_file_is_kept_and_checked(tmp_path: Path) -> None:
    file = SeatFile(OsFileSystem(), str(tmp_path), 5)
    assert file.read() is None
    file.write(ReplicaRecord(1, 9, 0))
    assert file.read() == ReplicaRecord(1, 9, 0)
    path = tmp_path / "5" / "replica.json"
    path.write_bytes(path.read_bytes().replace(b"9", b"8", 1))
    assert file.read() == ReplicaRecord(1, 9, 0)
    path.write_bytes(path.read_bytes().replace(b"9", b"8"))
    with pytest.raises(RaftStoreError, match="unreadable"):
        file.read()
