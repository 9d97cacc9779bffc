"""The history of archived files, on whole nodes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import UNSET

from samelog.admin.requests import LogHistory
from samelog.archiver.history import GIVE_UP_S, LOST, PAGE_FILES, ArchiveHistory
from samelog.format.history import ArchivedFile, CopyNote
from samelog.format.steps import finished
from samelog.placement.values import PartitionPass, PassStage
from samelog.runtime.clock import ManualClock
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.partitions import Partition
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.os_file import OsFile
from samelog.wire.peer_messages import HistoryAsked, HistoryTold
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


class Member:
    """One of a group of three, whose messages wait in `sent`; the first one leads."""

    def __init__(self, path: Path, number: int, clock: ManualClock, state: State) -> None:
        self.number, self.clock, self.connected = number, clock, [0, 1, 2]
        self.sent: list[tuple[int, HistoryAsked | HistoryTold]] = []
        self.leader, self.voters, self.is_leader = 0, {0, 1, 2}, number == 0
        given = SimpleNamespace(
            fs=OsFileSystem(),
            config=SimpleNamespace(data=str(path)),
            machine=SimpleNamespace(state=state),
            cluster=self,
            replication=self,
            clock=clock,
        )
        self.history = ArchiveHistory(given)  # type: ignore[arg-type]

    def peers(self) -> list[int]:
        """The others that are up."""
        return [number for number in self.connected if number != self.number]

    def send(self, number: int, message: HistoryAsked | HistoryTold) -> bool:
        """Keep a message until it is taken."""
        self.sent.append((number, message))
        return True

    def name(self, number: int) -> str:
        """A member's."""
        return f"rt{number}"


def state_of(targets: list[str], start_segment: int, partitions: int = 1) -> State:
    """Of which so much is archived, of each partition."""
    state = State(copy_targets=targets)
    numbers = list(range(1, partitions + 1))
    state.topics.by_id["id"] = Topic("id", "t", {}, 1, numbers)
    for number in numbers:
        known = Partition(number, "id", number - 1, start_segment=start_segment)
        state.partitions.by_number[number] = known
    return state


def archive_of(path: Path, targets: list[str], start_segment: int) -> ArchiveHistory:
    """One group's, of partition 1."""
    path.mkdir()
    return Member(path, 0, ManualClock(), state_of(targets, start_segment)).history


class Group:
    """Three members, with a second between two looks."""

    def __init__(self, path: Path, start_segment: int, partitions: int = 1) -> None:
        self.clock, self.members = ManualClock(), list[Member]()
        for number in range(3):
            (path / str(number)).mkdir(parents=True)
            state = state_of([], start_segment, partitions)
            self.members.append(Member(path / str(number), number, self.clock, state))

    def look(self, times: int = 1) -> None:
        """Let each ask, and be answered."""
        for _ in range(times):
            self.clock.advance(1.0)
            for member in self.members:
                if member.number in self.members[0].connected:
                    member.history.fetch_missing()
            self._deliver()

    def _deliver(self) -> None:
        while any(member.sent for member in self.members):
            for member in self.members:
                sent, member.sent = member.sent, []
                for to, message in sent:
                    history = self.members[to].history
                    if isinstance(message, HistoryAsked):
                        history.answer(member.number, message)
                    else:
                        history.answered(member.number, message)

    def away(self, number: int) -> None:
        """A member cannot be reached."""
        for member in self.members:
            member.connected = [each for each in (0, 1, 2) if each != number]

    def back(self) -> None:
        """All can be reached."""
        for member in self.members:
            member.connected = [0, 1, 2]

    def known(self, number: int) -> list[tuple[int, int, str]]:
        """What a member knows of partition 1."""
        files = self.members[number].history.read(1, 0, 99)
        return [(each.base, each.next_offset, each.reason) for each in files]


FILE = ArchivedFile(0, 10, 5, 1, 2, 3, 4, b"s" * 32, "age", None)


def test_each_partition_asks_every_peer(tmp_path: Path) -> None:
    """Found by reading: with as many partitions as peers, each of them asked one peer only."""
    group = Group(tmp_path, 10, partitions=2)
    for number in (1, 2):
        group.members[2].history._append(number, [FILE])
    group.look(2)
    for member in group.members:
        assert not any(member.history.lacks(number) for number in (1, 2))
        assert not member.history.is_lacking


def test_what_peers_told_is_durable_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Raft log does not repeat it, and the member that told it may be gone."""
    group, synced = Group(tmp_path, 10), list[int]()
    group.members[2].history._append(1, [FILE])
    told, datasync = group.members[0].history, OsFile.datasync

    def sync(file: OsFile) -> None:
        if file.path == told._paths[1]:
            synced.append(told.end(1))
        datasync(file)

    monkeypatch.setattr(OsFile, "datasync", sync)
    assert told.take_moved() == set()
    assert told.lacks(1)
    assert (told.take_moved(), told.end(1)) == ({1}, 0)
    group.look(2)
    assert synced == [0], "synced before it counts"
    assert (told.take_moved(), told.end(1)) == ({1}, 10)
    assert told.take_moved() == set()


def test_a_history_that_no_voter_has_is_given_up(tmp_path: Path) -> None:
    """A partition whose history was lost never moved to another group."""
    group = Group(tmp_path, 30)
    group.members[1].history._append(1, [FILE])
    group.look(9)
    lost = [(0, 10, "age"), (10, 30, LOST)]
    assert [group.known(number) for number in range(3)] == [lost] * 3
    assert group.members[0].history.whole(1) is not None
    assert not any(member.history.is_lacking for member in group.members)


def test_a_voter_that_may_have_a_history_is_waited_for(tmp_path: Path) -> None:
    group = Group(tmp_path, 30)
    group.members[2].history._append(1, [FILE._replace(next_offset=30)])
    group.away(2)
    group.look(int(GIVE_UP_S) - 2)
    assert group.known(0) == []
    [trouble] = group.members[0].history.troubles
    assert "partition 1 ends at 0" in trouble
    assert "start rt2" in trouble
    assert not list(group.members[1].history.troubles), "the leader says so"
    group.back()
    group.look(3)
    assert group.known(0) == [(0, 30, "age")] == group.known(1)[:1]
    assert not list(group.members[0].history.troubles)


def test_a_voter_that_stays_away_is_not_waited_for_without_end(tmp_path: Path) -> None:
    group = Group(tmp_path, 30)
    group.away(2)
    group.look(int(GIVE_UP_S) + 3)
    assert [group.known(number) for number in range(2)] == [[(0, 30, LOST)]] * 2


def test_a_voter_that_lags_does_not_say_that_it_lacks_anything(tmp_path: Path) -> None:
    """It has the segments, and will learn from its Raft log that they were archived."""
    group = Group(tmp_path, 30)
    partition = group.members[2].history._machine.state.partitions.by_number[1]
    partition.start_segment = 0  # type: ignore[misc]
    group.look(9)
    assert group.known(0) == []
    partition.start_segment = 30  # type: ignore[misc]
    group.members[2].history._append(1, [FILE._replace(next_offset=30)])
    group.look(3)
    assert group.known(0) == [(0, 30, "age")]


def test_the_history_of_a_partition_that_is_being_copied_is_not_given_up(tmp_path: Path) -> None:
    """It comes when the partition is opened."""
    group = Group(tmp_path, 30)
    for member in group.members:
        state = member.history._machine.state
        state.transfers.passing = PartitionPass(3, 1, PassStage.COPYING)  # type: ignore[attr-defined]
    group.look(9)
    assert group.known(0) == []
    assert not group.members[0].history.is_lacking


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
