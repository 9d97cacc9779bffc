"""Every sealed segment has a SHA-256 in the log-history; every archived one a file everywhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

from samelog.admin.answers import LogFile, NodeState
from samelog.admin.requests import LogHistory
from samelog.format.steps import finished
from samelog.sequencer.node import Node
from tests.archiver.test_truncation import archive, sizes, write
from tests.sequencer.cluster import RunWith, Session, make_node, until


def history(node: Node) -> tuple[LogFile, ...]:
    return finished(node.care.archive.log_history.page(LogHistory("t"))).files


def files_of(node: Node) -> list[Path]:
    return list(Path(node.member.config.data, "digests").iterdir())


def digest(node: Node, base: int) -> str:
    path = Path(node.logs.merging.partitions[1].log.path, f"{base:020d}.log")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_sealed_segments_have_one_and_keep_it(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        await write(nodes, Session("a"), 5)
        await node.care.archive.digests.complete(node.logs.merging.partitions[1])
        found = history(node)
        assert len(found) == 5
        assert [each.sha256 for each in found[:-1]] == [digest(node, base) for base in range(4)]
        assert found[-1].sha256 == ""
        known = [each.sha256 for each in found[:-1]]
        await archive(nodes, 2)
        assert [each.sha256 for each in history(node)[:-1]][2:] == known[2:]
        await node.stop()
        nodes[0] = again = make_node(tmp_path, 1, 0, bootstrap=False)
        await again.start()
        await until(lambda: again.member.status.state is NodeState.LIVE, "back")
        assert [each.sha256 for each in history(again)[:-1]][2:] == known[2:]

    run_with(tmp_path, 1, body)


def test_what_is_lost_of_them_is_made_again(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = nodes[0]
        await write(nodes, Session("a"), 5)
        partition = node.logs.merging.partitions[1]
        await node.care.archive.digests.complete(partition)
        (file,) = files_of(node)
        before = file.read_bytes()
        file.write_bytes(before[:200])
        node.care.archive.digests._ends.clear()
        await node.care.archive.digests.complete(partition)
        assert file.read_bytes() == before

    run_with(tmp_path, 1, body)


def test_a_node_that_skipped_what_was_archived_has_its_files_too(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await write(nodes, session, 2)
        away = nodes[2]
        await away.stop()
        rest = nodes[:2]
        await write(rest, session, 6)
        await archive(rest, 6)
        nodes[2] = back = make_node(tmp_path, 3, 2, bootstrap=False)
        await back.start()
        await until(lambda: back.member.status.state is NodeState.LIVE, "back")
        await until(lambda: sizes(back) == sizes(rest[0]), "the same files")
        assert [size for _, size in sizes(back)[:6]] == [0] * 6
        await back.care.archive.digests.complete(back.logs.merging.partitions[1])
        await until(lambda: not back.care.archive.history.lacks(1), "history")
        held = [each.first_offset for each in history(back) if each.sha256]
        assert held == list(range(7))

    run_with(tmp_path, 3, body)
