"""Changes of a publisher's session: their cost, their order, and the state in which it stops."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from samelog.format.positions import SessionPosition
from samelog.http.metrics import sidecar
from samelog.http.metrics.sidecar import FileSizes
from samelog.replicator.push import connections as push_connections
from samelog.replicator.push import input_directory, node_connection
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.recreation import Recreation
from samelog.replicator.push.session_tail import RunTail
from samelog.runtime.inotify import Event, Mask
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import bind_topic
from samelog.wire.push.effects import ListFiles
from tests.patience import PATIENCE_S
from tests.replicator.fake_nodes import world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.replicator.test_push_client import until_merged
from tests.runtime.peers import in_loop, until


def session(path: Path, name: str) -> SessionFiles:
    """A session with a run."""
    files = SessionFiles(path / name, name, session_id=f"id-{name}")
    files.begin(f"run-{name}")
    return files


def test_sessions_with_the_same_certificate_share_a_connection_whatever_left_before(
    tmp_path: Path,
) -> None:
    """One waits for its directory while the only other one leaves."""

    async def main() -> None:
        async with world(tmp_path) as made:
            first = made.push(session(tmp_path, "first").path)
            early = made.push(tmp_path / "early")
            await until(lambda: first.status.nodes[0].phase)
            await first.stop()
            last = made.push(session(tmp_path, "last").path)
            session(tmp_path, "early")
            await until(lambda: early.status.nodes[0].phase and last.status.nodes[0].phase)
            assert len(made.connections._nodes) == 1

    in_loop(main)


def test_a_client_that_stops_has_written_what_it_began_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may ship the session as soon as this one has stopped."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)
        bind_topic(*arguments)

    monkeypatch.setattr(input_directory, "bind_topic", slow)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            files.append(batch(b"a"))
            client = made.push(files.path)
            await until(begun.is_set)
            stopping = asyncio.ensure_future(client.stop())
            await until(lambda: not made.nodes[0].intake.watchers.by_session)
            assert not stopping.done()
            goes_on.set()
            await stopping
            assert (files.path / "flights-0" / "topic.json").exists()

    in_loop(main)


def test_a_topic_may_be_called_as_marks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory is noticed at once, not with the next poll of the session."""
    monkeypatch.setattr(push_connections, "POLLS_PER_LOOK", 1 << 30)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            client = made.push(files.path)
            await until_merged(client, SessionPosition(0, *files.append(batch(b"a"))))
            await until(lambda: not made.connections._awake)
            end = SessionPosition(0, *files.append(batch(b"b"), ("marksheets", 0)))
            await until(lambda: ("marksheets", 0) in client.progress)
            await until(lambda: client.progress["marksheets", 0].merged >= end)

    in_loop(main)


def test_a_session_that_gets_room_within_a_change_sends_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic is deleted while the connection's window is full: what was under way for it makes
    room, in the middle of the change.
    """
    failures: list[dict[str, Any]] = []
    monkeypatch.setattr(node_connection, "SESSION_WINDOW_BYTES", 1)
    monkeypatch.setattr(node_connection, "CONNECTION_WINDOWS", 1)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found))
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            monkeypatch.setattr(made.cluster, "move", lambda: None)
            client = made.push(files.path)
            files.append(batch(b"a"))
            await until(lambda: made.nodes[0].intake.appends)
            files.append(batch(b"b"))
            [link] = client._links
            await until(lambda: link.conversation and link.conversation._sender.inputs.unscanned)
            made.cluster.delete_topic("flights")
            await until(lambda: FLIGHTS in client.status.held)
            await until(lambda: link.conversation and link.conversation._sender.is_at_rest)

    in_loop(main)
    assert failures == []


def test_status_changes_of_a_turn_are_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held is looked up for each telling, in all inputs."""
    told: list[int] = []
    original = Recreation.told

    def count(self: Recreation) -> Any:
        told.append(1)
        return original(self)

    async def main() -> None:
        async with world(tmp_path) as made:
            client = made.push(session(tmp_path, "s").path)
            await until(lambda: client.status.nodes[0].phase)
            await until(lambda: not made.connections._awake)
            monkeypatch.setattr(Recreation, "told", count)
            for _ in range(100):
                client.on_status()
            await until(lambda: told)
            assert len(told) <= 2

    in_loop(main)


def test_a_step_looks_at_one_input_though_nothing_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            client = made.push(files.path)
            for partition in range(10):
                files.append(batch(b"a"), ("flights", partition))
            await until(lambda: len(client.progress) == 10)
            await until(lambda: not made.connections._awake)
            conversation = client._links[0].conversation
            assert conversation is not None
            inputs = conversation._sender.inputs
            for shipped in tuple(inputs.by_handle.values()):
                assert inputs.files_changed(shipped)
            looked: list[RunTail] = []
            monkeypatch.setattr(RunTail, "advance", lambda tail, asking: looked.append(tail))
            assert conversation._step()
            assert len(looked) == 1

    in_loop(main)


def test_a_file_that_is_gone_costs_a_listing_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    list_directory = OsFileSystem.list_directory

    def count(self: OsFileSystem, path: str) -> list[str]:
        listed.append(path)
        return list_directory(self, path)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = session(tmp_path, "s")
            client = made.push(files.path)
            for partition in range(10):
                files.append(batch(b"a"), ("flights", partition))
            await until(lambda: len(client.progress) == 10)
            await until(lambda: not made.connections._awake)
            conversation = client._links[0].conversation
            assert conversation is not None
            shipped = next(iter(conversation._sender.inputs.by_handle.values()))
            monkeypatch.setattr(OsFileSystem, "list_directory", count)
            conversation._use_files(ListFiles(shipped))
            assert len([path for path in listed if path != str(files.path)]) == 1

    in_loop(main)


def test_sessions_are_polled_in_turn_when_the_kernel_has_lost_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions of a process hear of it in one turn of the event loop."""
    monkeypatch.setattr(push_connections, "POLLS_PER_LOOK", 1 << 30)
    polled: list[LocalSession] = []
    poll = LocalSession.poll

    def note(self: LocalSession) -> None:
        polled.append(self)

    def note_poll(self: LocalSession) -> None:
        note(self)
        poll(self)

    async def main() -> None:
        async with world(tmp_path) as made:
            clients = [made.push(session(tmp_path, f"s{number}").path) for number in range(5)]
            await until(lambda: all(client.status.nodes[0].phase for client in clients))
            await until(lambda: not made.connections._awake)
            with monkeypatch.context() as at_once:
                at_once.setattr(LocalSession, "_look_at_all", note)
                for client in clients:
                    client._session._on_events([Event(-1, Mask.OVERFLOW, "")])
            assert polled == []
            monkeypatch.setattr(LocalSession, "poll", note_poll)
            await until(lambda: {id(each) for each in polled} == {id(c._session) for c in clients})

    in_loop(main)


def test_bytes_of_files_are_counted_again_only_where_files_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    count = sidecar._size

    def size(path: str) -> int:
        counted.append(path)
        return count(path)

    monkeypatch.setattr(sidecar, "_size", size)

    async def main() -> None:
        async with world(tmp_path) as made:
            files = {name: session(tmp_path, name) for name in ("a", "b")}
            clients = {name: made.push(each.path) for name, each in files.items()}
            for name, each in files.items():
                await until_merged(clients[name], SessionPosition(0, *each.append(batch(b"x"))))
            await until(lambda: not made.connections._awake)
            held = FileSizes()

            def sizes() -> dict[str, int]:
                found = {name: str(each.path) for name, each in files.items()}
                return {name: held.of(found[name], clients[name]) for name in found}

            before = sizes()
            counted.clear()
            assert (sizes(), counted) == (before, [])
            changes = clients["a"].file_changes
            files["a"].append(batch(b"y" * 1000))
            await until(lambda: clients["a"].file_changes != changes)
            assert sizes()["a"] > before["a"] + 1000
            assert set(counted) == {str(files["a"].path)}
            held.keep([clients["a"]])
            assert held._known.keys() == {clients["a"]}

    in_loop(main)


def test_the_directory_of_a_session_that_waits_for_a_node_is_not_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_connections, "POLLS_PER_LOOK", 1 << 30)
    polls: list[LocalSession] = []
    passed: list[PushConversation] = []
    poll, time_passed = LocalSession.poll, PushConversation.time_passed

    def count_poll(self: LocalSession) -> None:
        polls.append(self)
        poll(self)

    def count_time(self: PushConversation) -> None:
        passed.append(self)
        time_passed(self)

    monkeypatch.setattr(LocalSession, "poll", count_poll)
    monkeypatch.setattr(PushConversation, "time_passed", count_time)

    async def main() -> None:
        async with world(tmp_path) as made:
            asked, open_run = asyncio.Event(), made.nodes[0].intake.open_run

            async def open_later(**given: Any) -> Any:
                await asked.wait()
                return await open_run(**given)

            monkeypatch.setattr(made.nodes[0].intake, "open_run", open_later)
            files = session(tmp_path, "s")
            files.append(batch(b"a"))
            made.push(files.path, poll_s=0.01)
            await until(lambda: len(passed) >= 20)
            assert len(polls) == 1, "at the start"
            asked.set()

    in_loop(main)
