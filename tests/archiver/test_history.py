"""The history of archived files, on whole nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import UNSET

from samelog.admin.requests import LogHistory
from samelog.archiver.history import PAGE_FILES, ArchiveHistory
from samelog.format.history import ArchivedFile, CopyNote
from samelog.format.steps import finished
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.store.disk.files import OsFileSystem
from tests.archiver.test_archive_rounds import policy_of
from tests.archiver.test_truncation import BATCH, archive, write
from tests.sequencer.cluster import RunWith, Session, leader_of, make_node, until


def history(node: Node) -> list[ArchivedFile]:
    return node.care.archive.history.read(1, 0, 99)


def test_every_node_writes_down_what_went_and_why(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        log = nodes[0].logs.merging.partitions[1].log
        digests = [hashlib.sha256(log.read(n, 0, len(BATCH))).digest() for n in range(3)]
        for node in nodes:
            policy_of(node, tmp_path / "policy.json", '{"time": 0, "limit": 125000}')
        await (await leader_of(nodes)).care.archive.rounds.round()
        await until(lambda: all(len(history(node)) == 3 for node in nodes), "written down")
        known = history(nodes[0])
        assert [history(node) for node in nodes] == [known] * 3
        assert [file.sha256 for file in known] == digests
        assert {(file.size, file.first_ms, file.last_ms) for file in known} == {(len(BATCH), 1, 1)}
        assert {file.reason for file in known} == {"limit"}
        assert all(0 < file.rolled_ms <= file.archived_ms for file in known)

    async def again(nodes: list[Node]) -> None:
        assert [len(history(node)) for node in nodes] == [3] * 3
        await archive(nodes, 5)
        assert [file.base for file in history(nodes[1])] == [0, 1, 2, 3, 4]

    run_with(tmp_path, 3, body)
    run_with(tmp_path, 3, again)


@pytest.mark.parametrize("lost", [1, 3])
def test_a_node_that_lost_some_of_it_asks_the_others(
    tmp_path: Path, lost: int, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        await archive(nodes, 4)
        for node in nodes:
            await node.raft.snapshotter.take()
        leader = await leader_of(nodes)
        at = next(n for n, node in enumerate(nodes) if node is not leader)
        known = history(leader)
        await nodes[at].stop()
        [file] = (tmp_path / "rt-sequencer-0").parent.glob(f"*-{at}/data/history/*")
        file.write_bytes(file.read_bytes()[: -128 * lost])
        nodes[at] = make_node(tmp_path, 3, at)
        await nodes[at].start()
        await until(lambda: history(nodes[at]) == known, "asked for")

    run_with(tmp_path, 3, body)


def test_pages_of_it_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    from samelog.archiver import log_history

    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        await archive(nodes, 3)
        page = finished(nodes[0].care.archive.log_history.page(LogHistory()))
        found, pages = list(page.files), 1
        while page.more:
            last = page.files[-1]
            place = last.topic, last.partition, last.next_offset
            request = LogHistory(UNSET, UNSET, *place)
            page = finished(nodes[0].care.archive.log_history.page(request))
            found, pages = found + list(page.files), pages + 1
        assert [file.first_offset for file in found] == [0, 1, 2, 3, 4, 5]
        assert [file.archived_ms for file in found] == [1, 1, 1, -1, -1, -1]
        assert pages == 3
        page = finished(nodes[0].care.archive.log_history.page(LogHistory("t", 7)))
        assert page.files == ()

    monkeypatch.setattr(log_history, "PAGE_FILES", 2)
    run_with(tmp_path, 1, body)


def archive_of(path: Path, targets: list[str], start_segment: int) -> ArchiveHistory:
    """One group's, of partition 1."""
    path.mkdir()
    state = State(copy_targets=targets)
    state.topics.by_id["id"] = Topic("id", "t", {}, 1, [1])
    state.partitions.by_number[1] = Partition(1, "id", 0, start_segment=start_segment)
    given = SimpleNamespace(
        fs=OsFileSystem(),
        config=SimpleNamespace(data=str(path)),
        machine=SimpleNamespace(state=state),
        cluster=None,
    )
    return ArchiveHistory(given)  # type: ignore[arg-type]


def test_the_name_of_a_new_history_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with the only copy of a partition lost its history with the power, and the partition
    never moved again.
    """
    file = ArchivedFile(0, 10, 5, 1, 2, 3, 4, b"s" * 32, "age", None)
    kept, synced = archive_of(tmp_path / "kept", [], 20), list[str]()
    monkeypatch.setattr(OsFileSystem, "sync_directory", lambda _, path: synced.append(path))
    kept._append(1, [file])
    assert synced == [str(tmp_path / "kept" / "history")]
    kept._append(1, [file._replace(base=10, next_offset=20)])
    assert len(synced) == 1
    assert not kept.lacks(1)
    kept.close()


def test_it_goes_along_to_another_group(tmp_path: Path) -> None:
    files = [
        ArchivedFile(
            base, base + 10, 5, 1, 2, 3, 4, b"s" * 32, "age", CopyNote(7, base // 10 % 2, 1)
        )
        for base in range(0, 10 * (PAGE_FILES + 2), 10)
    ]
    end = files[-1].next_offset
    source = archive_of(tmp_path / "source", ["a", "b"], end)
    target = archive_of(tmp_path / "target", ["b", "c", "a"], end)
    assert source.whole(1) is None, "it has yet to get some"
    source._append(1, files)
    records = source.whole(1)
    assert records is not None
    target.came(1, records, ["a", "b"])
    target.came(1, records, ["a", "b"])
    found = target.read(1, 0, 2 * PAGE_FILES)
    assert [each._replace(copy=None) for each in found] == [
        each._replace(copy=None) for each in files
    ]
    assert [each.copy and each.copy.target for each in found[:4]] == [2, 0, 2, 0]
    assert not target.lacks(1)
    empty = archive_of(tmp_path / "empty", [], 0)
    assert empty.whole(1) == b""
