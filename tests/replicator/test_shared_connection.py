"""Many sessions on one push connection: what happens to one of them is nothing to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from samelog.config.tables.node import Grant
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.push import connections as push_connections
from samelog.replicator.push import served_session, server
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.server import PushServer
from samelog.runtime.network.connection import Connection
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.os_file import OsFile
from samelog.wire.bounds import Ack
from samelog.wire.errors import FaultCode
from samelog.wire.messages import (
    Close,
    CloseSession,
    EndRun,
    OpenInput,
    OpenRun,
    Reaches,
    RollSealed,
    RunOpened,
    SessionStartsAt,
)
from samelog.wire.push.acks import ACK_GAP_S
from tests.replicator.fake_nodes import EVERYTHING, FakeNode, World, world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.replicator.talk import PushTalks, Talk, push_talks
from tests.replicator.test_push_client import until_merged
from tests.replicator.test_push_server import NARROW, fault_of
from tests.runtime.peers import in_loop, until

Script = Callable[[PushTalks, FakeNode], Coroutine[Any, Any, None]]


def with_node(path: Path, script: Script, grant: Grant = EVERYTHING) -> None:
    """Run a script against one node, on one connection."""

    async def main() -> None:
        made = World(path, 0)
        node = FakeNode("n0", made.authority, made.cluster, grants=(grant,))
        made.nodes.append(node)
        await node.start()
        try:
            await script(await push_talks(made, node), node)
        finally:
            await made.stop()

    in_loop(main)


async def ships(client: Talk, node: FakeNode, session: str, run_id: str = "run-t") -> None:
    """A session does everything that sessions do."""
    before = len(client.all(SessionStartsAt))
    client.connection.send(OpenRun(0, run_id))
    client.connection.send(OpenInput(before, "flights", 0, run_id))
    await client.next(SessionStartsAt, before + 1)
    client.connection.send_data(before, 0, 0, batch(b"t"))
    await until(lambda: node.intake.run(session, FLIGHTS).end > (0, 0))
    await until(lambda: any(ack.durable_byte for ack in client.all(Ack)))


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (lambda line: line.send(OpenInput(0, "flights", 0, "no-run")), FaultCode.PROTOCOL),
        (lambda line: line.send(RollSealed(9, 0, 0)), FaultCode.PROTOCOL),
        (lambda line: line.send_data(9, 0, 0, b"no batch"), FaultCode.PROTOCOL),
        (lambda line: line.send_data(9, 1 << 63, 0, b"x"), FaultCode.PROTOCOL),
        (lambda line: line.send(OpenRun(0, "run-s", "not-mine")), FaultCode.NOT_AUTHORISED),
        (lambda line: line.send_part(0, 0, 0, b"short"), FaultCode.PROTOCOL),
    ],
)
def test_a_fault_of_one_session_ends_that_session_only(
    tmp_path: Path, fault: Callable[[Any], None], code: FaultCode
) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        faulty, other = talks.open(1), talks.open(2, "t", "id-2")
        fault(faulty.connection)
        assert await fault_of(faulty) is code
        await ships(other, node, "t")
        again = talks.open(3)
        await ships(again, node, "s", "run-s")
        assert talks.closed == []

    with_node(tmp_path, script, replace(NARROW, publish_sessions=("s", "t")))


def test_what_the_cluster_refuses_of_one_session_ends_that_session_only(tmp_path: Path) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        node.intake.cluster.session_ids["s"] = "another directory"
        refused, other = talks.open(1), talks.open(2, "t", "id-2")
        refused.connection.send(OpenRun(0, "run-s"))
        assert await fault_of(refused) is FaultCode.SESSION_CONFLICT
        await ships(other, node, "t")
        gap = talks.open(3, "u", "id-3")
        gap.connection.send(OpenRun(0, "run-u"))
        gap.connection.send(OpenInput(0, "flights", 0, "run-u"))
        await gap.next(SessionStartsAt)
        gap.connection.send_data(0, 0, 7, batch(b"u"))
        assert await fault_of(gap) is FaultCode.GAP
        await ships(talks.open(4, "v", "id-4"), node, "v", "run-v")
        assert talks.closed == []

    with_node(tmp_path, script)


def test_a_session_that_waits_for_the_cluster_holds_up_no_other(tmp_path: Path) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        gate, open_run = asyncio.Event(), node.intake.open_run

        async def slow(**asked: Any) -> Any:
            if asked["session"] == "s":
                await gate.wait()
            return await open_run(**asked)

        node.intake.open_run = slow  # type: ignore[method-assign]
        waiting, other = talks.open(1), talks.open(2, "t", "id-2")
        waiting.connection.send(OpenRun(0, "run-s"))
        waiting.connection.send(OpenInput(0, "flights", 0, "run-s"))
        waiting.connection.send(EndRun("run-s"))
        await ships(other, node, "t")
        assert waiting.messages == []
        gate.set()
        await waiting.next(SessionStartsAt)
        assert isinstance(waiting.messages[0], RunOpened)

    with_node(tmp_path, script)


class Slow:
    """An intake that takes long for what session s brings."""

    def __init__(self, node: FakeNode) -> None:
        self.gate = asyncio.Event()
        self.begun = 0
        self.number = -1
        self._append = node.intake.append
        node.intake.append = self.append  # type: ignore[method-assign, assignment]

    def append(
        self, number: int, run: int, roll: int, byte: int, data: memoryview
    ) -> Coroutine[Any, Any, None] | None:
        """As the intake's, sometimes later."""
        if number == self.number:
            self.begun += 1
            return self.later(number, run, roll, byte, bytes(data))
        self._append(number, run, roll, byte, data)
        return None

    async def later(self, *arguments: Any) -> None:
        """When the gate is open."""
        await self.gate.wait()
        self._append(*arguments)


async def slow_session(talks: PushTalks, node: FakeNode) -> tuple[Talk, Slow]:
    """Session s, with bytes that are being checked."""
    slow, talk = Slow(node), talks.open(1)
    talk.connection.send(OpenRun(0, "run-s"))
    talk.connection.send(OpenInput(0, "flights", 0, "run-s"))
    await talk.next(SessionStartsAt)
    slow.number = node.intake.cluster.inputs["s", "topic-1", 0]
    talk.connection.send_data(0, 0, 0, batch(b"1"))
    await until(lambda: slow.begun)
    return talk, slow


def test_bytes_that_are_checked_hold_up_their_session_only_and_keep_its_order(
    tmp_path: Path,
) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        waiting, slow = await slow_session(talks, node)
        size = len(batch(b"1"))
        for number in range(1, 40):
            waiting.connection.send_data(0, 0, number * size, batch(b"%d" % (number % 10)))
        waiting.connection.send(RollSealed(0, 0, 40 * size))
        waiting.connection.send_data(0, 1, 0, batch(b"x"))
        await ships(talks.open(2, "t", "id-2"), node, "t")
        assert slow.begun == 1
        assert node.intake.run("s", FLIGHTS).end == (0, 0)
        slow.gate.set()
        await until(lambda: node.intake.run("s", FLIGHTS).end == (1, size))
        kept = node.intake.run("s", FLIGHTS)
        numbers = [1, *(number % 10 for number in range(1, 40))]
        assert bytes(kept.files[0]) == b"".join(batch(b"%d" % number) for number in numbers)
        assert kept.sealed == {0: 40 * size}

    with_node(tmp_path, script)


def test_a_session_that_sends_beyond_its_window_is_ended_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_session, "KEPT_BYTES", 200)

    async def script(talks: PushTalks, node: FakeNode) -> None:
        waiting, slow = await slow_session(talks, node)
        for number in range(1, 10):
            waiting.connection.send_data(0, 0, number * 100, batch(b"more"))
        assert await fault_of(waiting) is FaultCode.TOO_MANY
        slow.gate.set()
        await ships(talks.open(2, "t", "id-2"), node, "t")

    with_node(tmp_path, script)


def test_a_connection_whose_sessions_keep_too_much_waits_until_they_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "KEPT_BYTES", 100)

    async def script(talks: PushTalks, node: FakeNode) -> None:
        waiting, slow = await slow_session(talks, node)
        size = len(batch(b"1"))
        for number in range(1, 10):
            waiting.connection.send_data(0, 0, number * size, batch(b"1"))
        [connection] = node.connections
        await until(lambda: connection._reading_paused)
        slow.gate.set()
        await until(lambda: node.intake.run("s", FLIGHTS).end == (0, 10 * size))
        await ships(talks.open(2, "t", "id-2"), node, "t")

    with_node(tmp_path, script)


def test_channels_are_opened_once_and_before_they_are_used(tmp_path: Path) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        talks.open(3).connection.close()
        await until(lambda: not node.intake.watchers.by_session)
        talks.connection.send(Close(0), 3)  # it was still under way
        talks.connection.send(CloseSession(3))
        await ships(talks.open(4, "t", "id-2"), node, "t")
        talks.connection.send(Close(0), 9)
        await until(lambda: talks.closed)
        assert "PROTOCOL: channel 9 is not open" in str(talks.closed)

    with_node(tmp_path, script)


def test_a_number_is_not_used_again(tmp_path: Path) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        await ships(talks.open(7), node, "s")
        talks.connection._own.last_channel = 0
        talks.open(5, "t", "id-2")
        await until(lambda: talks.closed)
        assert "PROTOCOL: channel 5 is not above 7" in str(talks.closed)

    with_node(tmp_path, script)


def test_a_connection_waits_while_its_sessions_keep_many_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that ends a run seals a file of each partition, and a node takes one in a turn:
    however many there are, the session is not at fault.
    """
    monkeypatch.setattr(server, "KEPT_BYTES", 8 * served_session.FRAME_BYTES)
    pauses: list[PushServer] = []
    kept = PushServer.kept

    def note(self: PushServer, size_bytes: int) -> None:
        kept(self, size_bytes)
        if self._is_paused:
            pauses.append(self)

    monkeypatch.setattr(PushServer, "kept", note)

    async def script(talks: PushTalks, node: FakeNode) -> None:
        client = talks.open()
        await client.open_input()
        for roll in range(100):
            client.connection.send(RollSealed(0, roll, 0))
        await until(lambda: node.intake.run("s", FLIGHTS).end == (100, 0))
        assert pauses
        assert client.closed == talks.closed == []
        assert node.servers[0]._kept_bytes == 0

    with_node(tmp_path, script)


def test_a_session_asks_for_all_its_inputs_at_once(tmp_path: Path) -> None:
    """A publisher that starts again asks for each input of its last run, behind one request."""
    inputs = 9000

    async def script(talks: PushTalks, node: FakeNode) -> None:
        gate, open_run = asyncio.Event(), node.intake.open_run

        async def slow(**asked: Any) -> Any:
            await gate.wait()
            return await open_run(**asked)

        node.intake.open_run = slow  # type: ignore[method-assign]
        client = talks.open()
        client.connection.send(OpenRun(0, "run-0"))
        await until(lambda: node.intake.watchers.of_session("s"))
        [served] = cast(Any, node.intake.watchers.of_session("s"))
        for handle in range(inputs):
            served.on_message(OpenInput(handle, "flights", 0, "run-0"))
        assert len(served._requests._queue) == inputs
        gate.set()
        await client.next(RunOpened)
        assert client.closed == []

    with_node(tmp_path, script)


def test_nothing_that_follows_a_failure_is_taken(tmp_path: Path) -> None:
    """What a session has under way behind the bytes that ended it is dropped."""

    async def script(talks: PushTalks, node: FakeNode) -> None:
        client, gate = talks.open(), asyncio.Event()
        await client.open_input()

        async def refuse() -> None:
            await gate.wait()
            raise RequestRefused(FaultCode.GAP, "made up")

        append = node.intake.append
        refusing: Any = lambda *data: refuse()  # noqa: E731
        node.intake.append = refusing  # type: ignore[method-assign]
        client.connection.send_data(0, 0, 0, batch(b"a"))
        client.connection.send(EndRun("run-0"))
        await until(lambda: node.servers[0]._kept_bytes)
        node.intake.append = append  # type: ignore[method-assign]
        gate.set()
        assert await fault_of(client) is FaultCode.GAP
        assert node.intake.cluster.runs["s"]["run-0"].asked_ends is None
        assert node.servers[0]._kept_bytes == 0

    with_node(tmp_path, script)


# --- the publisher's side -----------------------------------------------------------------------


def session(path: Path, name: str) -> SessionFiles:
    """A session with a run."""
    files = SessionFiles(path / name, name, session_id=f"id-{name}")
    files.begin(f"run-{name}")
    return files


def test_sessions_of_a_process_share_a_connection_to_each_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, nodes=2) as made:
            files = [session(tmp_path, f"s{number}") for number in range(20)]
            ends = [each.append(batch(b"a")) for each in files]
            clients = [made.push(each.path) for each in files]
            for client, end in zip(clients, ends, strict=True):
                await until_merged(client, SessionPosition(0, *end))
            assert [len(node.connections) for node in made.nodes] == [1, 1]
            [*leaving, last] = clients
            for client in leaving:
                await client.stop()
            await until_merged(last, SessionPosition(0, *files[-1].append(batch(b"b"))))
            [connection] = made.nodes[0].connections
            assert connection.is_open
            await until(lambda: len(connection.channels) == 1)
            await last.stop()
            await until(lambda: not connection.is_open)

    in_loop(main)


def test_sessions_are_opened_without_a_sync_in_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, set[int]] = {}
    datasync = OsFile.datasync

    def note(self: OsFile) -> None:
        synced.setdefault(Path(self.path).name, set()).add(threading.get_ident())
        datasync(self)

    async def main() -> None:
        async with world(tmp_path, nodes=2) as made:
            for node in made.nodes:
                node.cluster_id = "c" * 32
            files = [session(tmp_path, f"s{number}") for number in range(5)]
            ends = [each.append(batch(b"a")) for each in files]
            monkeypatch.setattr(OsFile, "datasync", note)
            clients = [made.push(each.path) for each in files]
            for client, end in zip(clients, ends, strict=True):
                await until_merged(client, SessionPosition(0, *end))

    in_loop(main)
    assert {"cluster.json.tmp", "topic.json.tmp", "s0", "flights-0"} <= synced.keys()
    assert threading.get_ident() not in set().union(*synced.values())


def test_a_session_that_a_node_refuses_is_tried_again_while_others_are_shipped(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            one, other = session(tmp_path, "one"), session(tmp_path, "other")
            made.cluster.session_ids["one"] = "another directory"
            refused, shipped = made.push(one.path), made.push(other.path)
            await until_merged(shipped, SessionPosition(0, *other.append(batch(b"a"))))
            await until(lambda: "SESSION_CONFLICT" in str(refused.status.nodes[0].last_error))
            assert shipped.status.nodes[0].last_error is None
            del made.cluster.session_ids["one"]
            await until_merged(refused, SessionPosition(0, *one.append(batch(b"b"))))
            assert len(made.nodes[0].connections) == 1

    in_loop(main)


def test_all_sessions_go_on_when_the_node_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            [node] = made.nodes
            files = [session(tmp_path, f"s{number}") for number in range(50)]
            clients = [made.push(each.path) for each in files]
            await until(lambda: all(client.status.nodes[0].phase for client in clients))
            await node.stop()
            await until(lambda: not any(client.status.nodes[0].phase for client in clients))
            await node.start()
            ends = [each.append(batch(b"b")) for each in files]
            for client, end in zip(clients, ends, strict=True):
                await until_merged(client, SessionPosition(0, *end))
            assert len(node.connections) == 2

    in_loop(main)


def test_a_session_at_rest_is_looked_at_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[PushClient] = []
    reloads: list[ReloadingContext] = []
    look, reload = PushClient.look, ReloadingContext.reload_if_changed

    def count_look(self: PushClient, *, is_whole: bool) -> None:
        looks.append(self)
        look(self, is_whole=is_whole)

    def count_reload(self: ReloadingContext) -> bool:
        reloads.append(self)
        return reload(self)

    monkeypatch.setattr(PushClient, "look", count_look)
    monkeypatch.setattr(ReloadingContext, "reload_if_changed", count_reload)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = [session(tmp_path, f"s{number}") for number in range(30)]
            ends = [each.append(batch(b"a")) for each in files]
            clients = [made.push(each.path, poll_s=0.01) for each in files]
            for client, end in zip(clients, ends, strict=True):
                await until_merged(client, SessionPosition(0, *end))
            await until(lambda: not made.connections._awake)
            looks.clear()
            reloads.clear()
            await until(lambda: len(reloads) >= 2 * push_connections.POLLS_PER_LOOK)
            assert set(looks) == set(clients)
            assert len(looks) <= len(reloads) + 1, "one in a poll, of 30 that rest"
            assert not made.connections._awake

    in_loop(main)


def test_what_fails_in_a_look_at_one_session_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        async with world(tmp_path) as made:
            one, other = session(tmp_path, "one"), session(tmp_path, "other")
            first, second = made.push(one.path), made.push(other.path)
            looked = []

            def fail(**_: bool) -> None:
                raise ValueError("made up")

            monkeypatch.setattr(first, "look", fail)
            monkeypatch.setattr(second, "look", lambda **_: looked.append(1))
            await until(lambda: len(failures) > 1 and len(looked) > 1)

    in_loop(main)


def test_the_death_of_a_writer_is_noticed_without_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_connections, "POLLS_PER_LOOK", 1 << 30)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            client = made.push(files.path)
            await until_merged(client, SessionPosition(0, *files.append(batch(b"a"))))
            await until(lambda: not made.connections._awake)
            files.die()
            await until(lambda: made.cluster.runs["s"]["run-s"].closed)

    in_loop(main)


def test_frames_of_several_sessions_in_one_turn_are_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            files = [session(tmp_path, f"s{number}") for number in range(20)]
            clients = [made.push(each.path) for each in files]
            for client, each in zip(clients, files, strict=True):
                await until_merged(client, SessionPosition(0, *each.append(batch(b"a"))))
            await until(lambda: not made.connections._awake)
            flushed: list[Connection] = []
            flush = Connection._flush

            def count(connection: Connection) -> None:
                if not connection._endpoint.server_side:
                    flushed.append(connection)
                flush(connection)

            monkeypatch.setattr(Connection, "_flush", count)
            write = made.nodes[0].connections[0].__class__._write
            frames: list[int] = []

            def sent(connection: Connection, header: bytes, payload: bytes) -> None:
                if not connection._endpoint.server_side:
                    frames.append(len(payload))
                write(connection, header, payload)

            monkeypatch.setattr(Connection, "_write", sent)
            ends = [each.append(batch(b"b")) for each in files]
            for client, end in zip(clients, ends, strict=True):
                await until_merged(client, SessionPosition(0, *end))
            assert len(frames) >= 20
            assert len(flushed) <= len(frames) // 2

    in_loop(main)


def test_a_node_learns_which_members_the_publisher_reaches(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path, nodes=3) as made:
            for number, node in enumerate(made.nodes):
                node.number = number
            client = made.push(session(tmp_path, "s").path)

            def told() -> list[set[int]]:
                return [set(node.servers[-1].acks.reached) for node in made.nodes if node.servers]

            await until(lambda: told() == [{0, 1, 2}] * 3)
            await made.nodes[2].stop()
            await until(lambda: told()[:2] == [{0, 1}] * 2)
            await made.nodes[2].start()
            await until(lambda: told() == [{0, 1, 2}] * 3)
            await client.stop()

    in_loop(main)


def test_a_node_hurries_where_the_publisher_does_not_reach_the_leader(tmp_path: Path) -> None:
    async def script(talks: PushTalks, node: FakeNode) -> None:
        client = talks.open()
        await client.open_input()
        [listener] = node.intake.watchers.of_session("s")
        sender, loop = node.servers[0].acks, asyncio.get_running_loop()
        talks.connection.send(Reaches((0, 2)))
        await until(lambda: sender.reached == {0, 2})
        for place, leader, waits in ((5, 2, True), (6, 1, False), (7, 0, True), (8, None, False)):
            await until(lambda: sender.acks.due_at is None)
            loop_time = loop.time()
            listener.on_progress(0, 0, ((0, place),) * 3, leader)
            due_at = sender.acks.due_at
            assert due_at is not None
            assert (due_at - loop_time > 2 * ACK_GAP_S) == waits, f"member {leader} leads"
            await until(lambda: client.all(Ack)[-1:] == [Ack(1, 0, *((0, place) * 3))])  # noqa: B023

    with_node(tmp_path, script)


def test_an_acknowledgement_that_fails_ends_its_session_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_reached, faulty = PushClient.on_reached, list[PushClient]()

    def fail(self: PushClient, *reached: Any) -> None:
        if self in faulty:
            raise RequestRefused(FaultCode.GAP, "made up")
        on_reached(self, *reached)

    monkeypatch.setattr(PushClient, "on_reached", fail)

    async def main() -> None:
        async with world(tmp_path) as made:
            one, other = session(tmp_path, "one"), session(tmp_path, "other")
            faulty.append(made.push(one.path))
            sound = made.push(other.path)
            one.append(batch(b"a"))
            await until(lambda: faulty[0].status.nodes[0].last_error)
            await until_merged(sound, SessionPosition(0, *other.append(batch(b"b"))))
            assert len(made.nodes[0].connections) == 1

    in_loop(main)


def test_the_last_session_of_a_process_waits_until_its_connections_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the event loop ends while sockets are open."""
    ended: list[Connection] = []
    wait_ended = Connection.wait_ended

    async def wait_longer(connection: Connection) -> None:
        await wait_ended(connection)
        for _ in range(10):
            await asyncio.sleep(0)
        ended.append(connection)

    async def main() -> None:
        async with world(tmp_path, nodes=3) as made:
            client = made.push(session(tmp_path, "s").path)
            await until(lambda: all(node.phase for node in client.status.nodes))
            with monkeypatch.context() as patch:
                patch.setattr(Connection, "wait_ended", wait_longer)
                await client.stop()
            assert len(ended) == 3

    in_loop(main)


def test_a_session_is_closed_with_its_directory_left_as_it_is(tmp_path: Path) -> None:
    """The node forgets a session that its publisher closes, and keeps the connection."""

    async def main() -> None:
        async with world(tmp_path) as made:
            one, other = session(tmp_path, "one"), session(tmp_path, "other")
            first, second = made.push(one.path), made.push(other.path)
            await until(lambda: first.status.nodes[0].phase and second.status.nodes[0].phase)
            watchers = made.nodes[0].intake.watchers
            await until(lambda: set(watchers.by_session) == {"one", "other"})
            await first.stop()
            await until(lambda: set(watchers.by_session) == {"other"})
            assert len(made.nodes[0].connections[0].channels) == 1

    in_loop(main)


def test_a_request_of_a_cluster_is_not_for_all(tmp_path: Path) -> None:
    """A refusal of the intake while a session's run is opened ends that session."""

    async def script(talks: PushTalks, node: FakeNode) -> None:
        async def refuse(**asked: Any) -> Any:
            raise RequestRefused(FaultCode.TOO_MANY, "quota of sessions", "raise quotas.sessions")

        open_run, node.intake.open_run = node.intake.open_run, refuse  # type: ignore[method-assign]
        refused = talks.open(1)
        refused.connection.send(OpenRun(0, "run-s"))
        assert await fault_of(refused) is FaultCode.TOO_MANY
        node.intake.open_run = open_run  # type: ignore[method-assign]
        await ships(talks.open(2, "t", "id-2"), node, "t")

    with_node(tmp_path, script)
