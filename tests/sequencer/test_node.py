"""Whole nodes: intake to merged log, with the cluster's decisions in between."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import ssl
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from samelog.config.tables.node import ConnectionLimits
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from samelog.format import _kernels as kernels
from samelog.replicator.interfaces import RequestRefused
from samelog.runtime.errors import TlsFault
from samelog.runtime.network import tls
from samelog.runtime.network.transport import Server
from samelog.sequencer.admin.status import trouble
from samelog.sequencer.merge.merging import Merging
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.session.log import InputLog
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import (
    InLoop,
    RunWith,
    Session,
    batch,
    leader_of,
    make_node,
    merged,
    offset,
    taken,
    until,
)


def with_crc(data: bytes) -> bytes:
    """The same batch, with the CRC that belongs to its bytes."""
    return data[:17] + kernels.crc32c(data[21:]).to_bytes(4, "big") + data[21:]


@pytest.mark.parametrize("count", [1, 3])
def test_what_a_majority_has_is_merged_alike_everywhere(
    tmp_path: Path, count: int, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"1", b"2", b"3"))
        await session.send(nodes, batch(b"4"))
        await until(lambda: all(offset(node) == 4 for node in nodes), "4 records everywhere")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, count, body)


def test_limits_of_connections_are_the_configuration_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_loop: InLoop
) -> None:
    servers: list[Server] = []
    begin = Server.start

    async def start(self: Server, address: Address) -> None:
        servers.append(self)
        await begin(self, address)

    monkeypatch.setattr(Server, "start", start)

    async def main() -> None:
        node = make_node(tmp_path, 1, 0, limits=ConnectionLimits(handshakes=1))
        await node.start()
        assert servers[0].limits == ConnectionLimits(handshakes=1)
        more = ConnectionLimits(connections_per_identity=5)
        node.reconfigure(replace(node.member.config, limits=more), "")
        assert servers[0].limits == more
        await node.stop()

    in_loop(main())


def test_certificates_are_taken_when_what_hindered_has_passed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    run_with: RunWith,
) -> None:
    async def body(nodes: list[Node]) -> None:
        [node] = nodes

        def hinder(files: TlsFiles) -> ssl.SSLContext:
            raise TlsFault("no descriptor left")

        with monkeypatch.context() as hindered:
            hindered.setattr(tls, "server_context", hinder)
            os.utime(node.member.config.tls.cert)
            await until(lambda: "no descriptor left" in caplog.text, "it cannot be used")
        await until(lambda: "certificates reloaded" in caplog.text, "it is taken")

    with caplog.at_level(logging.INFO):
        run_with(tmp_path, 1, body)


def test_a_restart_gives_the_same_log(tmp_path: Path, run_with: RunWith) -> None:
    seen: list[bytes] = []

    async def first(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"1", b"2"))
        await until(lambda: all(offset(node) == 2 for node in nodes), "2 records everywhere")
        seen.append(merged(nodes[0]))

    async def second(nodes: list[Node]) -> None:
        assert [merged(node) for node in nodes] == seen * 3

    run_with(tmp_path, 3, first)
    run_with(tmp_path, 3, second)


def test_bytes_that_reached_one_node_only_are_merged(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        for node in nodes:
            await session.open(node)
        await session.send(nodes[:1], batch(b"only here"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "the record everywhere")

    run_with(tmp_path, 3, body)


def test_bytes_behind_a_sealed_file_that_reached_one_node_only_are_merged(
    tmp_path: Path, run_with: RunWith
) -> None:
    """The others stand at byte 0 of the next file: there is no batch before that in it."""

    async def body(nodes: list[Node]) -> None:
        session, first, second = Session("s"), batch(b"sealed"), batch(b"only here")
        await session.send(nodes, first)
        for node in nodes:
            number = (await session.open(node)).input
            node.logs.intake.seal(number, 0, 0, len(first))
        alone = next(node for node in nodes if not node.raft.group.is_leader)
        alone.logs.intake.append((await session.open(alone)).input, 0, 1, 0, second)
        await until(lambda: all(offset(node) == 2 for node in nodes), "merged everywhere")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, body)


def test_a_newer_run_ends_the_older_one(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        first, second = Session("a"), Session("a")
        second.session_id = first.session_id
        await first.send(nodes, batch(b"1"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "what no sender vouches for")
        await second.send(nodes, batch(b"2"), run=1)
        await until(lambda: all(offset(node) == 2 for node in nodes), "both runs")
        assert nodes[0].raft.replica.machine.state.sessions.run_of("a", first.run_id).closed  # type: ignore[union-attr]

    run_with(tmp_path, 3, body)


def test_a_run_opened_elsewhere_meanwhile_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    """This node hears that an older run is open when another node has opened this one already."""

    async def body(nodes: list[Node]) -> None:
        intake, session = nodes[0].logs.intake, Session("s")
        propose = intake._propose
        late = Rejection("RUN_OPEN", "an older run is open")

        async def propose_late(command: AnyCommand) -> object:
            monkeypatch.setattr(intake, "_propose", propose)
            await propose(command)
            return late

        monkeypatch.setattr(intake, "_propose", propose_late)
        await session.open(nodes[0])
        run = nodes[0].raft.replica.machine.state.sessions.open_run_of("s")
        assert run is not None
        assert run.run_id == session.run_id
        assert not intake.ended

    run_with(tmp_path, 1, body)


def test_a_run_opened_and_closed_elsewhere_meanwhile_ends_no_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    """This node hears that an older run is open when that, and the wanted one, are closed."""

    async def body(nodes: list[Node]) -> None:
        intake, session, newer = nodes[0].logs.intake, Session("s"), Session("s")
        newer.session_id = session.session_id
        propose = intake._propose

        async def propose_late(command: AnyCommand) -> object:
            monkeypatch.setattr(intake, "_propose", propose)
            await propose(command)
            await newer.open(nodes[0], run=1)
            return Rejection("RUN_OPEN", "an older run is open")

        monkeypatch.setattr(intake, "_propose", propose_late)
        await session.open_run(nodes[0])
        run = nodes[0].raft.replica.machine.state.sessions.open_run_of("s")
        assert run is not None
        assert run.run_id == newer.run_id
        assert not intake.ended

    run_with(tmp_path, 1, body)


def test_an_input_that_the_disk_has_no_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    """Nobody hears that this node holds anything of it, and the node lives on."""

    def fail(*args: object, **options: object) -> InputLog:
        raise NoSpace("marks", "write", errno.ENOSPC)

    async def body(nodes: list[Node]) -> None:
        intake, session = nodes[0].logs.intake, Session("s")
        with monkeypatch.context() as patch:
            patch.setattr(InputLog, "new", fail)
            with pytest.raises(RequestRefused, match="marks"):
                await session.open(nodes[0])
            (entry,) = nodes[0].raft.replica.machine.state.sessions.inputs_of("s")
            assert intake.vouched([entry.number]) == {entry.number: entry.place}
        assert intake.stopped is not None
        intake.room.set(1 << 30, promised_bytes=0, resume_at_bytes=1)
        await session.send(nodes, batch(b"1"))
        await until(lambda: offset(nodes[0]) == 1, "merged")

    run_with(tmp_path, 1, body)


def test_marks_that_find_no_room_are_logged_once_and_so_is_their_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_with: RunWith,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were logged each second."""
    caplog.set_level(logging.INFO, "samelog")

    def fail(*args: object) -> None:
        raise NoSpace("marks", "write", errno.ENOSPC)

    async def body(nodes: list[Node]) -> None:
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(Merging, "save_marks", fail)
                for _ in range(3):
                    nodes[0].group_replica.tick_slowly()
            for _ in range(3):
                nodes[0].group_replica.tick_slowly()

    run_with(tmp_path, 1, body)
    lines = [record.getMessage() for record in caplog.records]
    found = [line.split(" logs=")[0] for line in lines if "durable marks" in line]
    assert found == ["durable marks not saved", "durable marks saved again"] * 2


def test_what_is_before_a_bad_batch_is_taken(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        session, good, bad = Session("s"), batch(b"good"), bytearray(batch(b"bad"))
        bad[-1] ^= 1
        opened = await session.open(nodes[0])
        with pytest.raises(RequestRefused) as refused:
            nodes[0].logs.intake.append(opened.input, 0, 0, 0, good + bytes(bad) + good)
        assert refused.value.code is FaultCode.INVALID_BATCH
        with pytest.raises(RequestRefused):
            nodes[0].logs.intake.append(opened.input, 0, 0, len(good), bytes(bad))
        await until(lambda: offset(nodes[0]) == 1, "the good one is merged")

    run_with(tmp_path, 1, body)


def test_another_directory_of_the_same_session_is_refused(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").open(nodes[0])
        with pytest.raises(RequestRefused) as refused:
            await Session("a").open(nodes[0])
        assert refused.value.code is FaultCode.SESSION_CONFLICT

    run_with(tmp_path, 1, body)


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda data: data[:-1], FaultCode.INVALID_BATCH),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), FaultCode.INVALID_BATCH),
        (lambda data: data[:8] + b"\x7f\xff\xff\xff" + data[12:], FaultCode.INVALID_BATCH),
        (lambda data: data[:57] + b"\x7f\xff\xff\xff" + data[61:], FaultCode.INVALID_BATCH),
        (lambda data: with_crc(data[:61] + b"\x7e" + data[62:]), FaultCode.INVALID_BATCH),
        (lambda data: with_crc(data[:22] + b"\x04" + data[23:]), FaultCode.INVALID_BATCH),
        (lambda data: b"", None),
    ],
)
def test_bad_batches_are_refused_and_nothing_is_written(
    tmp_path: Path, spoil: object, code: FaultCode | None, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        opened = await session.open(nodes[0])
        data = spoil(batch(b"good"))  # type: ignore[operator]
        if code is not None:
            with pytest.raises(RequestRefused) as refused:
                await taken(nodes[0].logs.intake.append(opened.input, 0, 0, 0, data))
            assert refused.value.code is code
        entry = nodes[0].raft.replica.machine.state.sessions.inputs[opened.input]
        assert nodes[0].logs.sessions.written(entry).byte == 0
        await session.send(nodes, batch(b"good"))
        await until(lambda: offset(nodes[0]) == 1, "the good one")

    run_with(tmp_path, 1, body)


def test_a_gap_is_refused_and_an_overlap_skipped(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        opened = await Session("a").open(nodes[0])
        data = batch(b"1")
        with pytest.raises(RequestRefused) as refused:
            nodes[0].logs.intake.append(opened.input, 0, 0, 5, data)
        assert refused.value.code is FaultCode.GAP
        nodes[0].logs.intake.append(opened.input, 0, 0, 0, data)
        nodes[0].logs.intake.append(opened.input, 0, 0, 0, data + data)
        await until(lambda: offset(nodes[0]) == 2, "two records")

    run_with(tmp_path, 1, body)


def test_a_wiped_node_does_not_vote(tmp_path: Path) -> None:
    nodes = [make_node(tmp_path, 1, 0, bootstrap=False)]
    assert not nodes[0].raft.group.raft.may_vote
    assert "counts for nothing until the others let it in" in trouble(nodes[0])


def test_a_node_without_session_bytes_copies_merged_ones(tmp_path: Path, run_with: RunWith) -> None:
    async def first(nodes: list[Node]) -> None:
        away = nodes[2]
        await away.stop()
        session = Session("a")
        for number in range(20):
            await session.send(nodes[:2], batch(b"%d" % number))
        await until(lambda: all(offset(node) == 20 for node in nodes[:2]), "a majority has them")
        await nodes[0].raft.snapshotter.take()

    async def second(nodes: list[Node]) -> None:
        await until(lambda: all(offset(node) == 20 for node in nodes), "the third one too")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, first)
    run_with(tmp_path, 3, second)


def test_a_divergent_partition_is_set_aside_and_copied_anew(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        values = [b"%d" % number for number in range(3000)]
        await session.send(nodes, batch(*values))
        await until(lambda: all(offset(node) == 3000 for node in nodes), "the first part")
        (partition,) = nodes[1].logs.merging.partitions.values()
        partition.log._chain.checksum ^= 1  # as if other bytes had been merged here
        for _ in range(3):  # across the offset at which checksums are compared
            await session.send(nodes, batch(*values))
        await until(lambda: nodes[1].logs.merging.partitions[1] is not partition, "copied again")
        assert partition.fault is not None
        await until(lambda: all(offset(node) == 12000 for node in nodes), "all merged")
        assert len({merged(node) for node in nodes}) == 1
        (fresh,) = nodes[1].logs.merging.partitions.values()
        assert fresh.fault is None
        assert len({node.logs.merging.partitions[1].log.checksum for node in nodes}) == 1
        folder = Path(fresh.log.path).parent
        assert sorted(path.name for path in folder.iterdir()) == ["quarantine", "t-0"]
        assert [path.name for path in (folder / "quarantine").iterdir()] == ["t-0.quarantined-1"]

    run_with(tmp_path, 3, body)


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_partition_whose_owner_is_unreadable_is_set_aside_and_copied_anew(
    tmp_path: Path, run_with: RunWith, is_missing: bool
) -> None:
    merged_dir = tmp_path / "rt-sequencer-1" / "data" / "merged"

    async def first(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0", b"1"))
        await until(lambda: all(offset(node) == 2 for node in nodes), "all merged")

    async def second(nodes: list[Node]) -> None:
        await until(lambda: all(offset(node) == 2 for node in nodes), "copied")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, first)
    (merged_dir / "t-0" / "partition.json").write_bytes(b"")
    if is_missing:
        (merged_dir / "t-0" / "partition.json").unlink()
    (merged_dir / "t-0" / "marks").unlink()
    run_with(tmp_path, 3, second)
    aside = merged_dir / "quarantine" / "t-0.quarantined-1"
    assert (aside / f"{0:020d}.log").stat().st_size > 0


def test_the_only_node_makes_a_damaged_partition_file_again(
    tmp_path: Path, run_with: RunWith
) -> None:
    """No other node has a copy of the records, so none of them may be set aside."""
    merged_dir = tmp_path / "rt-sequencer-0" / "data" / "merged"

    async def first(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0", b"1"))
        await until(lambda: offset(nodes[0]) == 2, "merged")

    async def again(nodes: list[Node], known: int) -> None:
        await until(lambda: offset(nodes[0]) == known, "all records are there")
        await Session(f"after-{known}").send(nodes, batch(b"more"))
        await until(lambda: offset(nodes[0]) == known + 1, "more are merged")

    run_with(tmp_path, 1, first)
    file = merged_dir / "t-0" / "partition.json"
    file.write_bytes(bytes(file.stat().st_size))
    run_with(tmp_path, 1, partial(again, known=2))
    file.unlink()
    run_with(tmp_path, 1, partial(again, known=3))
    assert not (merged_dir / "quarantine").exists()


def test_a_publisher_is_asked_again_for_committed_bytes_that_nobody_has(
    tmp_path: Path, run_with: RunWith
) -> None:
    sent = batch(b"x", b"y")

    async def first(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, sent)
        await until(lambda: offset(nodes[0]) == 2, "merged")
        await nodes[0].raft.group.keep_commit_soon()  # else the entry goes with its bytes
        kept.append(session)

    async def second() -> None:
        node = make_node(tmp_path, 1, 0)
        await node.start()
        await until(lambda: node.raft.group.is_leader, "it leads, though it misses bytes")
        assert offset(node) == 0
        opened = await kept[0].open(node)
        assert (opened.position.file, opened.position.byte) == (0, 0)
        node.logs.intake.append(opened.input, 0, 0, 0, sent)
        await until(lambda: offset(node) == 2, "merged again")
        await node.stop()

    kept: list[Session] = []
    run_with(tmp_path, 1, first)
    data = next(tmp_path.glob("*/data"))
    shutil.rmtree(data / "merged")  # as if a loss of power had taken what was not synced
    shutil.rmtree(data / "sessions")
    asyncio.run(second())


def test_a_topic_made_again_survives_the_replay_of_its_deletion(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def first(nodes: list[Node]) -> None:
        node = nodes[0]
        await Session("a").send(nodes, batch(b"old"))
        await until(lambda: offset(node) == 1, "merged")
        topic = node.raft.replica.machine.state.topics.named("t")
        assert topic is not None
        await node.raft.proposer.propose(DeleteTopicCommand(topic.topic_id))
        await Session("b").send(nodes, batch(b"new", b"newer"))
        await until(lambda: all(offset(each) == 2 for each in nodes), "merged again")
        kept.append(merged(node))

    async def second(nodes: list[Node]) -> None:
        await until(lambda: all(offset(each) == 2 for each in nodes), "what was merged is there")
        assert {merged(each) for each in nodes} == set(kept)
        for each in nodes:
            folder = Path(each.logs.merging.partitions[2].log.path).parent
            assert [path.name for path in folder.iterdir() if path.name != "replaced"] == ["t-0"]
            assert not list((folder / "replaced").glob("*"))

    kept: list[bytes] = []
    for count in (1, 3):
        kept.clear()
        run_with(tmp_path / str(count), count, first)
        run_with(tmp_path / str(count), count, second)


def test_session_files_go_when_a_majority_has_them_merged(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        session, data = Session("a"), batch(b"x")
        await session.send(nodes, data)
        folders = [Path(node.member.config.data) / "sessions" / "a" / "t-0" for node in nodes]
        assert all((folder / "log.0.0").exists() for folder in folders)
        (number,) = nodes[0].raft.replica.machine.state.sessions.inputs
        for node in nodes:
            node.logs.intake.seal(number, 0, 0, len(data))
            node.logs.intake.append(number, 0, 1, 0, data)
        await until(lambda: not any((f / "log.0.0").exists() for f in folders), "released")
        assert all((folder / "log.0.1").exists() for folder in folders)
        for node in nodes:
            node.logs.intake.end_run("a", session.run_id, {})
        newer = Session("a")
        newer.session_id = session.session_id
        await newer.send(nodes, batch(b"y"), run=1)
        await until(lambda: not any((f / "log.0.1").exists() for f in folders), "run released")
        assert all((folder / "log.1.0").exists() for folder in folders)
        await until(lambda: all(offset(node) == 3 for node in nodes), "all merged")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, body)


def is_released(node: Node, session: str) -> bool:
    """Whether the node knows that a majority has all of a session merged durably."""
    inputs = node.raft.replica.machine.state.sessions.inputs_of(session)
    return bool(inputs) and all(map(node.raft.replica.is_released, inputs))


def test_a_twin_that_adds_nothing_is_released_too(tmp_path: Path, run_with: RunWith) -> None:
    """What it could add was merged, and known to be on a majority, before it was planned."""

    async def body(nodes: list[Node]) -> None:
        for name in "ab":
            await Session(name, dedup_id="feed").send(nodes, batch(b"1", b"2", dedup_id="feed"))
            await until(lambda: all(is_released(n, name) for n in nodes), f"{name} released")  # noqa: B023
        assert [offset(node) for node in nodes] == [2] * 3

    run_with(tmp_path, 3, body)


def test_a_node_that_comes_back_hears_what_is_released(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"1"))
        await until(lambda: all(is_released(node, "a") for node in nodes), "released")
        leader = await leader_of(nodes)
        number = next(n for n, node in enumerate(nodes) if node is not leader)
        await nodes[number].stop()
        nodes[number] = make_node(tmp_path, 3, number)
        await nodes[number].start()
        await until(lambda: is_released(nodes[number], "a"), "it knows")

    run_with(tmp_path, 3, body)


def test_the_last_file_of_a_closed_run_goes_when_it_is_merged(
    tmp_path: Path, run_with: RunWith
) -> None:
    """Nobody sends to it any more; a node that starts again does not miss it."""

    async def body(nodes: list[Node]) -> None:
        session = Session("a")
        await session.send(nodes, batch(b"one"))
        await until(lambda: all(offset(node) == 1 for node in nodes), "merged")
        assert all(session_files(node) for node in nodes)
        for node in nodes:
            node.logs.intake.end_run("a", session.run_id, {})
        await until(lambda: not any(session_files(node) for node in nodes), "they go")
        await nodes[0].stop()
        nodes[0] = again = make_node(tmp_path, 3, 0, bootstrap=False)
        await again.start()
        await until(lambda: is_released(again, "a"), "back")
        later = Session("a")
        later.session_id = session.session_id
        await later.send(nodes, batch(b"two"), run=1)
        await until(lambda: all(offset(node) == 2 for node in nodes), "merged too")
        assert len({merged(node) for node in nodes}) == 1

    run_with(tmp_path, 3, body)


def session_files(node: Node) -> list[str]:
    """The files of the session a."""
    place = Path(node.member.config.data, "sessions", "a", "t-0")
    return [path.name for path in place.iterdir() if path.name.startswith("log.")]
