"""Files of merged logs that somebody removes or cuts under a running node come back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samelog.admin.answers import NodeState
from samelog.format.file_names import segment_bases
from samelog.sequencer.admin import status
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from tests.sequencer.cluster import RunWith, Session, batch, make_node, merged, offset, until

BATCH = batch(b"x" * 40_000)
"""Two of them fill a segment."""


async def write(nodes: list[Node], session: Session, count: int) -> None:
    """Send so many batches of one record, each merged by itself everywhere."""
    if not nodes[0].raft.replica.machine.state.topics.by_id:
        settings = {"segment.bytes": "65536"}
        await nodes[0].raft.proposer.propose(CreateTopicCommand("0" * 32, "t", 1, settings, 1))
    for _ in range(count):
        goal = offset(nodes[0]) + 1
        await session.send(nodes, BATCH)
        await until(lambda goal=goal: all(offset(node) == goal for node in nodes), "merged")  # type: ignore[misc]


def files(node: Node) -> list[Path]:
    """Its segments."""
    place = Path(node.logs.merging.partitions[1].log.path)
    bases = segment_bases(path.name for path in place.iterdir())
    return [place / f"{base:020d}.log" for base in bases]


def contents(node: Node) -> list[bytes]:
    return [path.read_bytes() for path in files(node)]


def events(node: Node) -> list[str]:
    return [
        each.text
        for each in node.raft.replica.machine.state.events.remembered
        if each.kind == "file-lost"
    ]


async def check_whole(nodes: list[Node], before: list[bytes], session: Session) -> None:
    """All files are there again, as the others have them, and it goes on, also after a start."""
    assert contents(nodes[0]) == before
    assert list(nodes[0].care.file_guard.troubles) == []
    await until(lambda: len(events(nodes[0])) == 1, "an event")
    await write(nodes, session, 2)
    assert merged(nodes[0]) == merged(nodes[-1])


@pytest.mark.parametrize("at", [0, 2, -1], ids=["first", "middle", "growing"])
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_a_removed_file_comes_back(
    tmp_path: Path, at: int, is_open: bool, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session, node = Session("a"), nodes[0]
        await write(nodes, session, 5)
        before, path = contents(node), files(node)[at]
        log = node.logs.merging.partitions[1].log
        base = int(path.stem)
        if is_open:
            log.read(base, 0, 100)
        elif at != -1:
            await until(lambda: log.durable_offset == 5, "synced")
            log.look_at_file_again(base)
        path.unlink()
        await node.care.file_guard.look()
        how = "open" if is_open or at == -1 else "from rt-sequencer"
        await until(lambda: len(events(node)) == 1, "an event")
        assert how in events(node)[0]
        assert "was removed" in events(node)[0]
        await check_whole(nodes, before, session)

    run_with(tmp_path, 3, body)


def test_what_is_still_open_comes_back_where_there_is_no_peer(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session, node = Session("a"), nodes[0]
        await write(nodes, session, 3)
        before = contents(node)
        files(node)[-1].unlink()
        await session.send(nodes, BATCH)  # more is merged into what has no name
        await node.care.file_guard.look()
        await until(lambda: offset(node) == 4, "merged")
        assert contents(node)[:2] == before[:2]
        assert b"".join(contents(node)) == merged(node)
        await node.stop()
        nodes[0] = again = make_node(tmp_path, 1, 0, bootstrap=False)
        await again.start()
        await until(lambda: again.member.status.state is NodeState.LIVE, "back")
        assert offset(again) == 4

    run_with(tmp_path, 1, body)


@pytest.mark.parametrize("at", [0, -1], ids=["sealed", "growing"])
def test_a_file_that_was_cut_comes_back(tmp_path: Path, at: int, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session, node = Session("a"), nodes[0]
        await write(nodes, session, 4)
        before, path = contents(node), files(node)[at]
        await until(lambda: node.logs.merging.partitions[1].log.durable_offset == 4, "synced")
        node.logs.merging.save_marks(1)
        os.truncate(path, 1000)
        await node.care.file_guard.look()
        await until(lambda: offset(node) == 4, "copied again")
        assert contents(node) == before
        aside = [each for each in path.parent.iterdir() if "quarantined" in each.name]
        assert [each.stat().st_size for each in aside] == [1000]
        await check_whole(nodes, before, session)

    run_with(tmp_path, 3, body)


def test_a_directory_that_was_removed_comes_back(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session, node = Session("a"), nodes[0]
        await write(nodes, session, 4)
        before = contents(node)
        place = files(node)[0].parent
        place.rename(tmp_path / "away")
        await node.care.file_guard.look()
        await until(lambda: offset(node) == 4, "copied again")
        await check_whole(nodes, before, session)

    run_with(tmp_path, 3, body)


def test_it_is_said_while_nobody_has_it(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session, node = Session("a"), nodes[0]
        await write(nodes, session, 3)
        log, path = node.logs.merging.partitions[1].log, files(node)[0]
        await until(lambda: log.durable_offset == 3, "synced")
        log.look_at_file_again(0)
        path.rename(tmp_path / "kept")
        await node.care.file_guard.look()
        assert f"{path} was removed" in status.trouble(node)
        (tmp_path / "kept").rename(path)
        await node.care.file_guard.look()
        assert status.trouble(node) == ""

    run_with(tmp_path, 1, body)
