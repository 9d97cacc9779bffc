"""What is copied before it is archived, by whom, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from samelog.admin.answers import CopyProgress
from samelog.archiver.command import ArchiveCommand
from samelog.archiver.copies import required
from samelog.archiver.copies.copying import read_manifest
from samelog.archiver.copies.manifests import CopiedLog, CopyFault, CopyJob, Manifest, SourceFault
from samelog.archiver.copies.process import ProcessCopier
from samelog.archiver.copies.required import CopyQueue
from samelog.archiver.copies.targets import open_target
from samelog.config.tables.node import ArchiveConfig
from samelog.runtime.clock import SystemClock
from samelog.sequencer.admin.status import trouble
from samelog.sequencer.node import Node
from tests.archiver.test_archive_rounds import alter, policy_of
from tests.archiver.test_truncation import is_archived, sizes, write
from tests.sequencer.cluster import RunWith, Session, leader_of, until


def job(base: int, *, partition: int = 0) -> CopyJob:
    """A job that nobody carries out for real."""
    place = CopiedLog("c", "t", "f" * 32, partition)
    ends = base, base + 1, 10, 0, 1, 2
    return CopyJob("u", f"{partition}/{base}", place, *ends, ("segments",))


def manifest(done: CopyJob) -> Manifest:
    return Manifest(
        log=done.log,
        first_offset=done.base,
        next_offset=done.next_offset,
        size=done.size,
        sha256="00" * 32,
        first_ms=0,
        last_ms=0,
        begin_checksum=1,
        end_checksum=2,
        copied_ms=3,
        files={},
    )


class FakeCopier:
    """Does as it is told."""

    def __init__(self) -> None:
        self.faults: dict[str, CopyFault] = {}
        self.asked: list[str] = []
        self.flows = asyncio.Event()
        self.flows.set()
        self.is_closed = False

    async def copy(self, wanted: CopyJob, progress: Callable[[int], None]) -> Manifest:
        self.asked.append(wanted.path)
        self.is_closed = False
        progress(4)
        await self.flows.wait()
        if wanted.path in self.faults:
            raise self.faults[wanted.path]
        return manifest(wanted)

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried again at once."""
    monkeypatch.setattr(required, "RETRY_S", 0.01)
    monkeypatch.setattr(required, "RETRY_MOST_S", 0.02)


def with_queue(
    body: Callable[[CopyQueue, FakeCopier], Awaitable[None]],
    on_copied: Callable[[], None] = lambda: None,
) -> None:
    """Run a test beside a queue that works."""

    async def main() -> None:
        copier = FakeCopier()
        queue = CopyQueue(copier, SystemClock(), random.Random(1), on_copied=on_copied)
        working = asyncio.create_task(queue.run())
        try:
            await body(queue, copier)
            assert not working.done()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        assert copier.is_closed

    asyncio.run(main())


def test_jobs_are_done_in_order_and_found() -> None:
    news: list[str] = []

    async def body(queue: CopyQueue, copier: FakeCopier) -> None:
        jobs = [job(0), job(1), job(2)]
        queue.replace_jobs(jobs)
        assert queue.copy_of(jobs[0]) is None
        await until(lambda: all(map(queue.copy_of, jobs)), "all copied")
        assert copier.asked == ["0/0", "0/1", "0/2"]
        assert (len(news), queue.state("u")) == (3, CopyProgress("u", 3, 0))
        queue.replace_jobs(jobs[1:])
        assert queue.copy_of(jobs[0]) is None  # archived: nobody asks any more
        await until(lambda: copier.is_closed, "let go of")
        assert len(copier.asked) == 3

    with_queue(body, lambda: news.append(""))


def test_what_is_not_wanted_any_more_is_given_up() -> None:
    async def body(queue: CopyQueue, copier: FakeCopier) -> None:
        copier.flows.clear()
        queue.replace_jobs([job(0), job(1)])
        await until(lambda: queue.state("u").done_bytes == 4, "begun")
        queue.replace_jobs([job(1)])
        copier.flows.set()
        await until(lambda: queue.copy_of(job(1)) is not None, "the other one")
        assert queue.copy_of(job(0)) is None
        queue.replace_jobs([])
        assert queue.copy_of(job(1)) is None

    with_queue(body)


def test_a_target_that_fails_is_tried_again_and_holds_all_back() -> None:
    async def body(queue: CopyQueue, copier: FakeCopier) -> None:
        copier.faults["0/0"] = CopyFault("nobody there")
        queue.replace_jobs([job(0), job(0, partition=1)])
        await until(lambda: len(copier.asked) > 3, "tried again")
        assert set(copier.asked) == {"0/0"}
        assert queue.trouble == queue.state("u").problem == "nobody there"
        copier.faults.clear()
        await until(lambda: queue.copy_of(job(0, partition=1)) is not None, "copied")
        assert (queue.copy_of(job(0)) is not None, queue.trouble) == (True, "")

    with_queue(body)


def test_a_segment_that_fails_holds_its_partition_back() -> None:
    async def body(queue: CopyQueue, copier: FakeCopier) -> None:
        copier.faults["0/0"] = SourceFault("rotten")
        other = job(0, partition=1)
        queue.replace_jobs([job(0), job(1), other])
        await until(lambda: queue.copy_of(other) is not None, "the other partition goes on")
        assert queue.copy_of(job(1)) is None
        assert queue.trouble == "rotten"
        queue.replace_jobs([other])
        assert queue.trouble == ""

    with_queue(body)


# --- the process that copies ----------------------------------------------------------------------


def hanging(tmp_path: Path) -> CopyJob:
    """A job that never ends: a named pipe that nobody reads is in the place of the copy."""
    wanted = replace(job(0), url=str(tmp_path), path=str(tmp_path / "source"))
    (tmp_path / "source").write_bytes(b"")
    place = tmp_path / wanted.log.file("segments", 0)
    place.parent.mkdir(parents=True)
    os.mkfifo(place.parent / f".{place.name}.tmp")
    return wanted


def test_a_node_that_stops_ends_the_process_that_copies(tmp_path: Path) -> None:
    async def main() -> None:
        copier = ProcessCopier()
        queue = CopyQueue(copier, SystemClock(), random.Random(1), on_copied=lambda: None)
        working = asyncio.create_task(queue.run())
        queue.replace_jobs([hanging(tmp_path)])
        await until(lambda: copier._process is not None, "a process")
        process = copier._process
        assert process is not None
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert await process.wait() != 0
        assert copier._process is None

    asyncio.run(main())


def test_a_target_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        copier = ProcessCopier(stall_s=2.0)
        wanted = hanging(tmp_path)
        with pytest.raises(CopyFault, match="has not answered for 2 s"):
            await copier.copy(wanted, lambda count: None)
        with pytest.raises(SourceFault, match="source"):
            await copier.copy(replace(wanted, base=1), lambda count: None)
        await copier.close()

    asyncio.run(main())


def test_a_process_that_ends_is_said_and_started_again(tmp_path: Path) -> None:
    async def main() -> None:
        copier = ProcessCopier()
        wanted = replace(job(0), url=str(tmp_path / "nothing"))
        with pytest.raises(CopyFault, match="mounted"):
            await copier.copy(wanted, lambda count: None)
        process = copier._process
        assert process is not None
        process.kill()
        await process.wait()
        with pytest.raises(CopyFault, match="the process that copies"):
            await copier.copy(wanted, lambda count: None)
        with pytest.raises(CopyFault, match="mounted"):
            await copier.copy(wanted, lambda count: None)
        await copier.close()

    asyncio.run(main())


# --- nodes ----------------------------------------------------------------------------------------


def test_only_what_is_copied_is_archived(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        leader = await leader_of(nodes)
        for node in nodes:
            policy_of(node, tmp_path / "policy.json", '{"time": 0, "limit": "64Ki"}')
        await alter(leader, archive_copy="segments")
        rounds, before = leader.care.archive.rounds, sizes(leader)
        await until(lambda: bool(rounds.plan().proposals), "a plan")
        assert leader.care.archive.copies.progress == ""
        await rounds.round()
        assert "t-0: to be copied, but copy_to is not configured here" in trouble(leader)
        target = tmp_path / "target"
        target.mkdir()
        config = replace_config(leader, str(target))
        assert config.copy_to == str(target)

        async def rounds_until_archived() -> None:
            while not all(is_archived(node, 5) for node in nodes):
                await rounds.round()
                await asyncio.sleep(0.05)

        assert [sizes(node) for node in nodes] == [before] * 3
        await asyncio.wait_for(rounds_until_archived(), 20)
        assert leader.care.archive.copies.trouble == ""
        place = CopiedLog(leader.member.config.cluster, "t", "0" * 32, 0)
        copies = [
            read_manifest(open_target(str(target)), place, place.manifest(n)) for n in range(5)
        ]
        for node in nodes:
            await until(lambda node=node: not node.care.archive.history.lacks(1), "history")  # type: ignore[misc]
            files = node.care.archive.history.read(1, 0, 9)
            assert [file.sha256.hex() for file in files] == [c.sha256 for c in copies if c]
            assert all(file.copy and file.copy.target == 0 for file in files)
            assert node.raft.replica.machine.state.copy_targets == [str(target)]
            await node.raft.snapshotter.take()

    async def again(nodes: list[Node]) -> None:
        for node in nodes:
            assert node.raft.replica.machine.state.copy_targets == [str(tmp_path / "target")]
            await until(lambda node=node: is_archived(node, 5), "still archived")  # type: ignore[misc]
            assert all(file.copy for file in node.care.archive.history.read(1, 0, 9))

    run_with(tmp_path, 3, body)
    run_with(tmp_path, 3, again)


def replace_config(node: Node, target: str) -> ArchiveConfig:
    """Let a running node copy to a target."""
    config = dataclasses.replace(node.member.config.archive, copy_to=target)
    node.care.archive.copies._config = config
    return config


def test_what_was_deleted_is_not_copied(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 4)
        [node] = nodes
        replace_config(node, str(tmp_path / "nowhere"))
        await alter(node, archive_copy="segments,parquet")
        await node.raft.proposer.propose(ArchiveCommand(1, 2, 0, 0, 1, "DeleteRecords"))

        def is_gone() -> bool:
            node.care.archive.rounds.start_soon()  # what is deleted may not be durable yet
            return node.raft.replica.machine.state.partitions.by_number[1].start_segment == 2

        await until(is_gone, "archived")
        assert [file.copy for file in node.care.archive.history.read(1, 0, 9)] == [None, None]

    run_with(tmp_path, 1, body)
