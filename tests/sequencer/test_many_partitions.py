"""What one command or one second asks of thousands of logs never holds the loop: files are removed,
and marks are written, some in each turn.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from samelog.sequencer import group_replica
from samelog.sequencer.node import Node
from samelog.sequencer.raft.replica import Replica
from samelog.sequencer.state.tables.topics import CreateTopicCommand, DeleteTopicCommand
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.merged.log import MergedLog
from samelog.store.merged.topic_dirs import TopicDirs
from tests.sequencer.cluster import RunWith, Session, batch, taken, until

MANY = 20
SOME = 8
TOPIC = CreateTopicCommand("id", "many", MANY, {}, 0)


async def write_to_all(node: Node, name: str) -> Path:
    """One record into each partition of a new topic; the node's data directory."""
    await node.raft.proposer.propose(TOPIC)
    session = Session(name)
    await session.open_run(node)
    for partition in range(MANY):
        opened = await node.logs.intake.open_input(
            identity="samelog://publisher/x",
            session=session.name,
            run_id=session.run_id,
            topic=TOPIC.name,
            partition=partition,
        )
        await taken(node.logs.intake.append(opened.input, 0, 0, 0, batch(b"x")))
    there = node.logs.merging.partitions
    await until(lambda: sum(p.log.next_offset for p in there.values()) == MANY, "merged")
    return Path(next(iter(there.values())).log.path).parents[1]


def directories(data: Path) -> list[Path]:
    """Of the topic's partitions, merged and of the session."""
    return [*data.glob("merged/many-*"), *data.glob("sessions/*/many-*")]


def test_a_deleted_topic_goes_directory_by_directory(tmp_path: Path, run_with: RunWith) -> None:
    turns, removed = [0], []
    original = OsFileSystem.remove_tree

    async def count_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def remove_tree(fs: OsFileSystem, path: StrPath, *, is_durable: bool) -> None:
        removed.append(turns[0])
        original(fs, path, is_durable=is_durable)

    async def body(nodes: list[Node]) -> None:
        await write_to_all(nodes[0], "a")
        counting = asyncio.ensure_future(count_turns())
        with patch.object(OsFileSystem, "remove_tree", remove_tree):
            await nodes[0].raft.proposer.propose(DeleteTopicCommand("id"))
            await until(lambda: len(removed) == 2 * MANY, "all are removed")
        counting.cancel()
        assert len(set(removed)) == 2 * MANY

    run_with(tmp_path, 1, body)


def test_a_snapshot_waits_until_a_deleted_topic_is_gone(tmp_path: Path, run_with: RunWith) -> None:
    """Only its deletion tells a node that starts again what to remove."""
    left = []
    original = Replica.body

    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        data = await write_to_all(node, "a")

        def told(replica: Replica) -> bytes:
            left.append(len(directories(data)))
            return original(replica)

        with patch.object(Replica, "body", told):
            await node.raft.proposer.propose(DeleteTopicCommand("id"))
            await node.raft.snapshotter.take()
        assert set(left) == {0}

    run_with(tmp_path, 1, body)


def test_a_directory_that_cannot_be_removed_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, run_with: RunWith
) -> None:
    failed: list[str] = []
    original = OsFileSystem.remove_tree

    def remove_tree(fs: OsFileSystem, path: StrPath, *, is_durable: bool) -> None:
        if not failed:
            failed.append(os.fspath(path))
            raise DiskFault(os.fspath(path), "remove", errno.EIO)
        original(fs, path, is_durable=is_durable)

    async def body(nodes: list[Node]) -> None:
        data = await write_to_all(nodes[0], "a")
        with patch.object(OsFileSystem, "remove_tree", remove_tree):
            await nodes[0].raft.proposer.propose(DeleteTopicCommand("id"))
            await nodes[0].raft.replica.wait_tidied()
        assert list(map(os.path.exists, failed)) == [True]
        assert not list(directories(data))
        assert failed[0] in caplog.text

    run_with(tmp_path, 1, body)


def test_who_is_given_a_path_finds_nothing_of_before(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), str(tmp_path / "t-0")

    def make(topic_id: str) -> None:
        os.mkdir(path)
        Path(path, "whose").write_text(topic_id)

    dirs = TopicDirs(fs, lambda at: Path(at, "whose").read_text())
    make("old")
    dirs.remove_later(path, "old", 0)
    assert not dirs.is_there(path, "new", 0)
    dirs.make_way(path, "new", 0)
    assert os.listdir(tmp_path) == []
    make("new")
    assert not dirs.remove_next()
    assert dirs.is_there(path, "new", 0)


def test_marks_are_written_some_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    monkeypatch.setattr(group_replica, "MARKS_AT_ONCE", SOME)
    rounds: list[list[tuple[type, str]]] = []
    saving = [False]

    def note(kind: type, name: str) -> None:
        original = getattr(kind, name)

        def told(self: Any) -> None:
            if saving[0]:
                rounds[-1].append((kind, self.path))
            original(self)

        monkeypatch.setattr(kind, name, told)

    def save_marks(replica: group_replica.GroupReplica) -> None:
        rounds.append([])
        saving[0] = True
        save_some(replica)
        saving[0] = False

    save_some = group_replica.GroupReplica._save_marks
    monkeypatch.setattr(group_replica.GroupReplica, "_save_marks", save_marks)
    note(MergedLog, "save_marks")

    async def body(nodes: list[Node]) -> None:
        await write_to_all(nodes[0], "a")
        await nodes[0].logs.merging.sync()
        while len({saved for each in rounds for saved in each}) < MANY:
            nodes[0].group_replica.tick_slowly()
            await asyncio.sleep(0)
        assert all(len(each) <= SOME for each in rounds)

    run_with(tmp_path, 1, body)


def test_a_repeated_removal_of_an_older_topic_hides_no_directory(tmp_path: Path) -> None:
    """A restarted node applied the deletion of a topic again. It took the directory of the next
    topic for the old one's, so it held no bytes for an entry that it had acknowledged, and cut that
    entry: an acknowledged record was lost (world 124 of --recreating --converting).
    """
    fs, path = OsFileSystem(), str(tmp_path / "t-0")
    os.mkdir(path)
    Path(path, "whose").write_text("new")
    dirs = TopicDirs(fs, lambda at: Path(at, "whose").read_text())
    dirs.remove_later(path, "old", 0)
    assert dirs.is_there(path, "new", 0)
    assert dirs.remove_next()
    assert Path(path, "whose").read_text() == "new"
