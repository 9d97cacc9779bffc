"""What is left of groups on a disk, and what becomes of it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from samelog.placement.changes import PlaceGroups, apply_change
from samelog.placement.values import NewGroup, Placement
from samelog.sequencer.data_groups.keeping import ReplicaKeeper
from samelog.sequencer.data_groups.leftovers import Leftovers, groups_on_disk, leftovers
from samelog.sequencer.data_groups.seats import FORMAT_VERSION, ReplicaRecord, SeatFile
from samelog.sequencer.node import Node
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.cluster import RunWith, make_node, until
from tests.sequencer.test_data_groups import led, make_groups


def test_only_groups_that_ended_are_gone() -> None:
    table = Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (0,), 0),) * 3))
    del table.groups[2]
    assert leftovers(table, [1, 2, 3, 4]) == Leftovers(gone=(2,), unknown=(4,))
    assert leftovers(table, []) == Leftovers()


def test_nothing_is_on_an_empty_disk(tmp_path: Path) -> None:
    fs = OsFileSystem()
    assert groups_on_disk(fs, str(tmp_path)) == set()
    (tmp_path / "groups" / "3").mkdir(parents=True)
    (tmp_path / "groups" / "note").touch()
    assert groups_on_disk(fs, str(tmp_path)) == {3}


def test_files_of_unknown_groups_are_kept_and_shown(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await make_groups(nodes, [0])
        await until(lambda: led(nodes, 1) == [nodes[0]], "a leader")
        await nodes[0].stop()
        data = Path(nodes[0].member.raft_log.directory).parent
        (data / "groups" / "7").mkdir()
        nodes[0] = make_node(tmp_path, 1, 0)
        await nodes[0].start()
        await until(lambda: 7 in nodes[0].data_groups.damaged, "it is shown")
        assert (data / "groups" / "7").exists()
        await until(lambda: led(nodes, 1) == [nodes[0]], "what is known is there")

    run_with(tmp_path, 1, body)


def keeper_of(data: Path, table: Placement) -> ReplicaKeeper:
    """The replicas of member 0, by a table."""

    async def nothing_to_do() -> None:
        pass

    given = SimpleNamespace(fs=OsFileSystem(), config=SimpleNamespace(data=str(data)))
    host = SimpleNamespace(
        cluster=SimpleNamespace(
            placement=table, topics=SimpleNamespace(by_id={"t": None}), next_partition=9
        ),
        catch_up=nothing_to_do,
        keep_commit=nothing_to_do,
    )
    member = SimpleNamespace(
        directory=SimpleNamespace(
            record=SimpleNamespace(number=0), has_confirmed=lambda version: None
        ),
        raft_log=SimpleNamespace(directory=str(data / "raft")),
    )
    return ReplicaKeeper(
        cast(Any, given),
        cast(Any, host),
        cast(Any, member),
        on_table=lambda: None,
        begin=lambda number: None,
        on_over=lambda replica: None,
    )


def test_a_replica_of_a_group_that_ended_ends_though_it_holds_a_partition(tmp_path: Path) -> None:
    """An old copy of a directory came back, and its replica of a group still had the partition that
    had since moved elsewhere: the replica stood for election for ever (world 43506012).
    """
    table, ended = Placement(), list[int]()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (0,), 0),) * 2))
    del table.groups[2]
    keeper = keeper_of(tmp_path, table)
    topic = SimpleNamespace(topic_id="t", partition_numbers=[8])
    state = SimpleNamespace(partitions={8: topic}, topics=SimpleNamespace(by_id={"t": topic}))
    logs = SimpleNamespace(machine=SimpleNamespace(state=state))

    async def end(number: int) -> None:
        ended.append(number)

    for number, replica in (1, table.groups[1].replicas[0].replica), (2, 2), (3, 3):
        keeper.replicas[number] = cast(
            Any,
            SimpleNamespace(
                number=number,
                replica=replica,
                group_replica=SimpleNamespace(logs=logs),
                let_clients_go=lambda: None,
                end=partial(end, number),
            ),
        )
    asyncio.run(keeper._end_old())
    assert ended == [2], "group 1 continues, and no table has ever named group 3"


def test_what_is_ending_removes_its_files_itself(tmp_path: Path) -> None:
    """While a replica waits until the disk knows that it ends, the table may be confirmed."""
    fs, files, raft = OsFileSystem(), tmp_path / "groups" / "1", tmp_path / "raft"
    files.mkdir(parents=True)
    raft.mkdir()
    SeatFile(fs, str(raft), 1).write(ReplicaRecord(FORMAT_VERSION, 1, 0))
    table = Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (2,), 2),)))
    keeper = keeper_of(tmp_path, table)
    keeper._ending.add(1)
    asyncio.run(keeper._confirm_table())
    assert files.is_dir()
    keeper._ending.clear()
    keeper._confirmed_at = None
    asyncio.run(keeper._confirm_table())
    assert not files.exists()


def test_an_end_that_a_crash_cut_short_behind_its_files_is_finished(tmp_path: Path) -> None:
    """The member died between the removal of a replica's files and the note of its end. Each start
    then failed for want of the files (world 890000330).
    """
    raft, seat = tmp_path / "raft", SeatFile(OsFileSystem(), str(tmp_path / "raft"), 1)
    raft.mkdir()
    seat.write(ReplicaRecord(FORMAT_VERSION, 1, 0))
    table = Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (2,), 2),)))
    asyncio.run(keeper_of(tmp_path, table)._confirm_table())
    known = seat.read()
    assert known is not None
    assert known.is_ended
