"""What is left of groups on a disk, and what becomes of it."""

from __future__ import annotations

import asyncio
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


def test_what_is_ending_removes_its_files_itself(tmp_path: Path) -> None:
    """While a replica waits until the disk knows that it ends, the table may be confirmed."""
    fs, files, raft = OsFileSystem(), tmp_path / "groups" / "1", tmp_path / "raft"
    files.mkdir(parents=True)
    raft.mkdir()
    SeatFile(fs, str(raft), 1).write(ReplicaRecord(FORMAT_VERSION, 1, 0))
    table = Placement()
    apply_change(table, PlaceGroups(1, (NewGroup(1, (2,), 2),)))

    async def caught_up() -> None:
        pass

    given = SimpleNamespace(fs=fs, config=SimpleNamespace(data=str(tmp_path)))
    host = SimpleNamespace(cluster=SimpleNamespace(placement=table), catch_up=caught_up)
    member = SimpleNamespace(
        directory=SimpleNamespace(record=SimpleNamespace(number=0)),
        raft_log=SimpleNamespace(directory=str(raft)),
    )
    keeper = ReplicaKeeper(
        cast(Any, given),
        cast(Any, host),
        cast(Any, member),
        on_table=lambda: None,
        begin=lambda number: None,
        on_over=lambda replica: None,
    )
    keeper._ending.add(1)
    asyncio.run(keeper._confirm_table())
    assert files.is_dir()
    keeper._ending.clear()
    keeper._confirmed_at = None
    asyncio.run(keeper._confirm_table())
    assert not files.exists()
