"""Which replica of a data group a directory has, and whether that counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.placement.changes import PlaceGroups, apply_change
from samelog.placement.values import NewGroup, PlacedGroup, PlacedReplica, Placement
from samelog.sequencer.cluster.node_dir import NodeRecord
from samelog.sequencer.data_groups.keeping import ReplicaKeeper
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


def record(*, suspicion: str = "", suspicions: int = 0) -> NodeRecord:
    return NodeRecord(2, "c", "n", 1, OWN, suspicion=suspicion, suspicions=suspicions)


def test_a_replica_that_was_made_for_this_directory_counts_at_once() -> None:
    known = begun(None, REPLICA, Placement(), record(), sure_after=0)
    assert known == ReplicaRecord(1, 9, 0)
    seat = seat_of(GROUP, known, record())
    assert (seat.group, seat.replica, seat.may_vote) == (5, 9, True)
    assert seat.founders == (0, OWN)


def test_a_replica_that_another_directory_may_have_had_does_not() -> None:
    table = Placement(let_in_at={OWN: 6})
    known = begun(None, REPLICA, table, record(), sure_after=0)
    assert known.trusted == NEVER
    assert not seat_of(GROUP, known, record()).may_vote
    later = PlacedReplica(OWN, 9, made_at=7)
    assert begun(None, later, table, record(), sure_after=0).trusted == 0


def test_a_suspect_member_has_suspect_replicas() -> None:
    suspect = record(suspicion="a copy", suspicions=1)
    assert not seat_of(
        GROUP, begun(None, REPLICA, Placement(), suspect, sure_after=0), suspect
    ).may_vote
    before = ReplicaRecord(1, 9, 0)
    assert begun(before, REPLICA, Placement(), suspect, sure_after=0) is before
    assert not seat_of(GROUP, before, suspect).may_vote
    let_in = record(suspicions=1)
    assert not seat_of(GROUP, before, let_in).may_vote, "group 0 does not speak for group 5"
    assert seat_of(GROUP, ReplicaRecord(1, 9, 1), let_in).may_vote


def test_a_table_that_was_empty_when_it_was_confirmed_has_given_no_older_replica(
    tmp_path: Path,
) -> None:
    """Version 0 was taken for none: the member's first replica never counted, and a group of which
    it was the only one had no leader (worlds of converting groups, seeds 275, 297 and 303).
    """
    (tmp_path / "raft").mkdir()
    fs, table = OsFileSystem(), Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (OWN,), OWN),)))
    replica = table.groups[1].replicas[0]
    given: Any = SimpleNamespace(fs=fs, config=SimpleNamespace(data=str(tmp_path)))
    host: Any = SimpleNamespace(cluster=SimpleNamespace(placement=table, started={}))
    member: Any = SimpleNamespace(
        directory=SimpleNamespace(record=record(suspicions=1)),
        raft_log=SimpleNamespace(directory=str(tmp_path / "raft")),
    )
    nothing: Any = None
    keeper = ReplicaKeeper(given, host, member, on_table=nothing, begin=nothing, on_over=nothing)
    for confirmed_at, trusted in ((table.version, NEVER), (None, NEVER), (0, 1)):
        keeper._confirmed_at = confirmed_at
        keeper._claim(1, replica)
        known = SeatFile(fs, str(tmp_path / "raft"), 1).read()
        assert known is not None
        assert known.trusted == trusted, confirmed_at
        fs.remove_tree(str(tmp_path / "raft" / "1"))


def test_who_counts_again_without_being_let_in_is_sure_of_nothing_from_before() -> None:
    """Two of three were suspect: all voters agreed, so nobody was let in, and the table knows of no
    other directory. One that was emptied took its replicas for new, and had a vote.
    """
    counts_again, table = record(suspicions=1), Placement(version=6)
    known = begun(None, REPLICA, table, counts_again, sure_after=6)
    assert known.trusted == NEVER
    assert not seat_of(GROUP, known, counts_again).may_vote
    later = PlacedReplica(OWN, 9, made_at=7)
    assert begun(None, later, table, counts_again, sure_after=6).trusted == 1


def test_records_are_forgotten_only_of_who_has_ended() -> None:
    runs, ended = ReplicaRecord(1, 9, 0), ReplicaRecord(1, 9, 0, is_ended=True)
    assert [has_ended(runs, replica) for replica in (8, 9, 10)] == [True, False, False]
    assert [has_ended(ended, replica) for replica in (8, 9, 10)] == [True, True, False]
    assert not has_ended(None, 9), "who has lost its replica.json is still known by its records"


def test_another_replica_of_the_group_is_not_begun_over_it() -> None:
    with pytest.raises(RaftStoreError, match="replica 3 was here, and the table says 9"):
        begun(ReplicaRecord(1, 3, 0), REPLICA, Placement(), record(), sure_after=0)


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
    assert begun(known, later, Placement(), record(), sure_after=0) == ReplicaRecord(1, 10, 0)
    assert not is_stale(ReplicaRecord(1, 9, 0), REPLICA)
    assert not is_stale(None, REPLICA)


def test_the_file_is_kept_and_checked(tmp_path: Path) -> None:
    file = SeatFile(OsFileSystem(), str(tmp_path), 5)
    assert file.read() is None
    file.write(ReplicaRecord(1, 9, 0))
    assert file.read() == ReplicaRecord(1, 9, 0)
    path = tmp_path / "5" / "replica.json"
    path.write_bytes(path.read_bytes().replace(b"9", b"8", 1))
    with pytest.raises(RaftStoreError, match="unreadable"):
        file.read()
