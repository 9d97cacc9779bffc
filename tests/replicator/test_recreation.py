"""Topics that are deleted and created again while a session is shipped to them."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from samelog.config.tables.client import OnRecreate
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName
from samelog.replicator.push import input_directory
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.release import Removal
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import bind_topic
from samelog.wire.push import topics as asked_topics
from tests.patience import PATIENCE_S
from tests.replicator.fake_nodes import World, world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.runtime.peers import in_loop, until

OTHER: InputName = ("weather-reports", 3)


class Scene:
    """A session that is shipped to two nodes, and the topics that it is shipped to."""

    def __init__(self, path: Path, made: World) -> None:
        self.made = made
        self.files = SessionFiles(path / "s")
        self.files.begin()
        self.client = made.push(self.files.path)
        self.ids: list[str] = []
        """Of the topic `flights`, the oldest first."""

    async def append(self, *values: bytes, name: InputName = FLIGHTS) -> SessionPosition:
        """Append batches; where they end."""
        end = [self.files.append(batch(value), name) for value in values][-1]
        return SessionPosition(self.files.run, *end)

    async def merge(self, *values: bytes, name: InputName = FLIGHTS) -> None:
        """Append batches, and wait until they are merged."""
        await self.merged(await self.append(*values, name=name), name)
        self.note_id()

    async def merged(self, end: SessionPosition, name: InputName = FLIGHTS) -> None:
        """Wait until an input is merged up to an end."""
        progress = self.client.progress
        await until(lambda: name in progress and progress[name].merged >= end)

    def note_id(self) -> None:
        """Remember the id that the topic has now."""
        topic_id = self.made.cluster.topics.get(FLIGHTS[0])
        if topic_id is not None and topic_id not in self.ids:
            self.ids.append(topic_id)

    async def delete(self, *unmerged: bytes) -> None:
        """Delete the topic, behind records that are shipped and not merged."""
        cluster = self.made.cluster
        if unmerged:
            cluster.merges = False
            await self.append(*unmerged)
            await until(lambda: FLIGHTS[0] in cluster.topics)
            self.note_id()
            size = len(b"".join(map(batch, unmerged)))
            await until(lambda: all(len(self.held(node)) >= size for node in self.made.nodes))
        cluster.delete_topic(FLIGHTS[0])
        await until(lambda: self.client._session.shipping(FLIGHTS) is not None)
        cluster.merges = True

    def held(self, node: object) -> bytes:
        """What a node holds of the newest topic."""
        return node.intake.bytes_of("s", self.ids[-1]) if self.ids else b""  # type: ignore[attr-defined]

    async def hold(self, *unmerged: bytes) -> None:
        """Have these records held."""
        await self.delete(*unmerged)
        await until(lambda: FLIGHTS in self.client.status.held)

    def values(self, topic_id: str) -> list[bytes]:
        """The records of a topic, of the node that has most of them."""
        held = (node.intake.bytes_of("s", topic_id) for node in self.made.nodes)
        data = max(held, key=len)
        found = kernels.decode_records(data, 0, len(data), *FLIGHTS, decompress)
        return [bytes(record.value or b"") for record in found]

    async def reaches(self, *values: bytes) -> None:
        """Wait until the topic of the name has exactly these records."""
        topics = self.made.cluster.topics
        await until(lambda: FLIGHTS[0] in topics and self.values(topics[FLIGHTS[0]]) == [*values])

    async def restart(self) -> None:
        """Another process ships the session."""
        await self.client.stop()
        self.client = self.made.push(self.files.path)
        await until(lambda: self.client._session.identity is not None)

    def decide(self, decision: OnRecreate) -> None:
        """As an operator does."""
        recreation = self.client.beside.recreation
        topic_ids = {held.topic_id for held in recreation.held.values()}
        recreation.decide(decision, topic_ids)


@asynccontextmanager
async def scene(path: Path) -> AsyncIterator[Scene]:
    async with world(path, 2) as made:
        yield Scene(path, made)


def test_a_session_that_is_merged_goes_on_in_the_next_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a", b"b")
            made.made.cluster.delete_topic("flights")
            await until(lambda: made.client._session.shipping(FLIGHTS).former)
            await made.merge(b"o", name=OTHER)
            assert "flights" not in made.made.cluster.topics  # not before there is a record for it
            end = await made.append(b"c", b"d")
            await made.merged(end)
            await made.reaches(b"c", b"d")
            assert made.client.progress[FLIGHTS].merged == end
            assert made.client.status.held == {}
            made.files.end()
            await until(lambda: not made.files.file().exists())

    in_loop(main)
    told = [each for each in caplog.records if "was deleted" in each.getMessage()]
    assert [each.levelno for each in told] == [logging.WARNING]


def test_a_publisher_brings_no_deleted_topic_back_before_it_has_a_record_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_topics, "TOPICS_AGAIN_S", 0.0)

    async def main() -> None:
        async with scene(tmp_path) as made:
            made.client.want_topic("flights", 3)
            await made.merge(b"a")
            cluster = made.made.cluster
            cluster.delete_topic("flights")
            await until(lambda: made.client._session.shipping(FLIGHTS).former)
            asked = cluster.asked
            await until(lambda: cluster.asked > asked + 1)
            assert "flights" not in cluster.topics
            await made.merged(await made.append(b"b"))
            await made.reaches(b"b")
            assert cluster.counts["flights"] == 3

    in_loop(main)


def test_unmerged_records_and_all_behind_them_are_held(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.made.cluster.topic_id("flights")
            await made.append(b"c")
            await made.merge(b"o", name=OTHER)
            [held] = made.client.status.held.values()
            size = len(batch(b"b") + batch(b"c"))
            assert (held.topic, held.partition, held.topic_id) == (*FLIGHTS, made.ids[0])
            assert (held.begin, held.decision) == ((0, 0, len(batch(b"a"))), "")
            assert made.client.beside.recreation.held[FLIGHTS].size_bytes == size
            await made.restart()
            await until(lambda: FLIGHTS in made.client.status.held)
            await made.merge(b"p", name=OTHER)
            assert made.values(made.made.cluster.topics["flights"]) == []
            assert made.files.file().read_bytes() == b"".join(map(batch, (b"a", b"b", b"c")))

    in_loop(main)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("decision", "kept"), [(OnRecreate.CONTINUE, [b"b", b"c"]), (OnRecreate.DISCARD, [])]
)
def test_held_records_are_continued_or_discarded(
    tmp_path: Path, decision: OnRecreate, kept: list[bytes], *, restarts: bool
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            await made.append(b"c")
            if restarts:
                await made.restart()
                await until(lambda: FLIGHTS in made.client.status.held)
            made.decide(decision)
            end = await made.append(b"d")
            await made.merged(end)
            await made.reaches(*kept, b"d")
            await made.restart()
            await made.append(b"e")
            await made.reaches(*kept, b"d", b"e")
            made.files.end()
            await until(lambda: not made.files.file().exists())

    in_loop(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_later_runs_ship_other_partitions_and_carry_what_is_held(
    tmp_path: Path, *, restarts: bool
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.files.roll()
            await made.append(b"c")
            made.files.end()
            made.files.begin()
            await made.append(b"d")
            await made.merge(b"o", name=OTHER)  # run 0 is closed, and run 1 is open
            assert made.files.file(0, run=0).exists()
            if restarts:
                await made.restart()
            await until(lambda: FLIGHTS in made.client.status.held)
            made.decide(OnRecreate.CONTINUE)
            await made.append(b"e")
            await made.reaches(b"b", b"c", b"d", b"e")
            if restarts:
                await made.restart()
            end = await made.append(b"f")
            await made.merged(end)
            await made.reaches(b"b", b"c", b"d", b"e", b"f")
            await until(lambda: not made.files.file(0, run=0).exists())
            await until(lambda: not (made.files.path / "run.0.json").exists())
            made.files.end()
            await until(lambda: not made.files.file().exists())
            made.files.begin()
            await made.append(b"g")
            await made.reaches(b"b", b"c", b"d", b"e", b"f", b"g")

    in_loop(main)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_damage_in_held_files_is_reported_and_what_is_behind_continues(
    tmp_path: Path, *, is_sealed: bool
) -> None:
    """A middle file is missing, and a batch in the last one is damaged."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            for value in (b"c", b"d"):
                made.files.roll()
                await made.append(value)
            await made.append(b"e", b"f")
            made.files.end()
            made.files.begin()
            await made.append(b"g")
            await made.merge(b"o", name=OTHER)
            middle, last = made.files.file(1, run=0), made.files.file(2, run=0)
            middle.unlink()
            if not is_sealed:
                middle.with_name(f"{middle.name}.sealed-{len(batch(b'c'))}").unlink()
            data = bytearray(last.read_bytes())
            data[len(batch(b"d")) + 40] ^= 1
            last.write_bytes(data)
            await made.restart()
            await until(lambda: FLIGHTS in made.client.status.held)
            made.decide(OnRecreate.CONTINUE)
            topics = made.made.cluster.topics
            wanted = [b"b", b"d", b"f", b"g"]
            await until(lambda: FLIGHTS[0] in topics)
            await until(lambda: merged_values(made, topics[FLIGHTS[0]]) == wanted)
            await until(lambda: len(made.client.status.damaged) == 2)
            assert made.client.status.damaged[0].reason == "the file is missing"
            assert "CRC" in made.client.status.damaged[1].reason

    in_loop(main)


def test_later_runs_are_discarded_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.files.end()
            made.files.begin()
            await made.append(b"c")
            await made.merge(b"o", name=OTHER)
            made.decide(OnRecreate.DISCARD)
            await until(lambda: not made.files.file(0, run=0).exists())
            await made.append(b"d")
            await made.reaches(b"d")

    in_loop(main)


@pytest.mark.parametrize("is_alive", [False, True])
def test_a_run_is_begun_for_held_records_if_no_other_can_take_them(
    tmp_path: Path, *, is_alive: bool
) -> None:
    """The newest run is closed, and the writer begins no other one."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.files.end()
            if not is_alive:
                made.files.die()
            cluster = made.made.cluster
            cluster.close_run("s", "run-0")
            await until(lambda: 0 in made.client._progress.ends)
            assert FLIGHTS in made.client.status.held
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b")
            await until(lambda: not made.files.file(0, run=0).exists())
            if is_alive:
                assert made.files.begin() == 2
                await made.append(b"c")
                await made.reaches(b"b", b"c")

    in_loop(main)


def test_a_removal_is_followed_by_another_look(tmp_path: Path) -> None:
    """A run that carried bytes of a finished one was waited for until something else happened
    (world 115 of topics that are created again on their way into groups).
    """

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            client = made.client
            await until(lambda: client._releaser is None)
            (made.files.path / "x").touch()
            path = str(made.files.path)
            paths, looks = (f"{path}/x",), list[str]()

            def plan(*_: object) -> Removal:
                looks.append("")
                there = Path(paths[0]).exists()
                return Removal(paths if there else (), (7,), client._session.identities(()))

            with patch("samelog.replicator.push.client.plan_removal", plan):
                client._release_soon()
                await until(lambda: client._releaser is None)
            assert len(looks) == 2

    in_loop(main)


def test_files_go_once_a_later_run_has_carried_them(tmp_path: Path) -> None:
    """They stayed until something else happened (world 96 of topics that are created again on their
    way into groups).
    """

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.files.end()
            made.files.begin()
            await made.merge(b"o", name=OTHER)
            cluster = made.made.cluster
            cluster.releases = False
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b")
            await until(lambda: 0 in made.client._progress.ends)
            await until(lambda: made.client._releaser is None)
            end = 0, len(batch(b"b"))
            client, layout = made.client, made.client._session.layout(1, FLIGHTS)
            client.on_reached(1, FLIGHTS, (end, end, end), layout)
            await until(lambda: not made.files.file(0, run=0).exists())

    in_loop(main)


def test_no_run_is_begun_while_the_writer_is_in_one(tmp_path: Path) -> None:
    files = SessionFiles(tmp_path / "s")
    files.begin()
    session = LocalSession(files.fs, str(files.path), lambda: None)
    session._look_at_all()
    session.begin_run("beside", 1, None, None)
    assert [each.run_id for each in session.runs] == ["run-0"]
    files.directory.end_run(0, {})
    session.begin_run("beside", 1, None, None)
    assert [(each.run_id, each.end) for each in session.runs] == [("run-0", {}), ("beside", {})]
    session.close()


def test_records_of_a_run_that_was_closed_after_the_deletion_are_held(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            cluster = made.made.cluster
            cluster.merges = cluster.closes = False
            await made.append(b"a")
            await until(lambda: made.client._session.topic_id(FLIGHTS))
            await made.client.stop()
            made.files.end()
            made.files.die()
            cluster.delete_topic("flights")
            cluster.close_run("s", "run-0")
            cluster.merges = cluster.closes = True
            made.client = made.made.push(made.files.path)
            await until(lambda: FLIGHTS in made.client.status.held)
            assert made.client.status.lost == ()
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"a")

    in_loop(main)


def test_a_decision_that_comes_late_concerns_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            recreation = made.client.beside.recreation
            decided = {each.topic_id for each in recreation.held.values()}
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b")
            await until(lambda: recreation.is_settled)
            await made.hold(b"c")
            recreation.decide(OnRecreate.DISCARD, decided)
            assert FLIGHTS in made.client.status.held
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"c")

    in_loop(main)


def test_a_topic_may_be_deleted_again_while_held_records_continue(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            made.files.end()
            made.files.begin()
            await made.append(b"c")
            await made.merge(b"o", name=OTHER)
            cluster = made.made.cluster
            cluster.merges = False
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b", b"c")
            cluster.delete_topic("flights")
            await until(lambda: FLIGHTS in made.client.status.held)
            assert made.client.status.held[FLIGHTS].begin == (0, 0, len(batch(b"a")))
            cluster.merges = True
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b", b"c")
            end = await made.append(b"d")
            await made.merged(end)
            await made.reaches(b"b", b"c", b"d")

    in_loop(main)


def test_what_was_merged_before_a_restart_is_not_held(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.client.stop()
            made.made.cluster.delete_topic("flights")
            await made.append(b"b")
            made.client = made.made.push(made.files.path)
            # What was appended before the deletion was known is held, what was merged is not.
            await until(lambda: FLIGHTS in made.client.status.held)
            assert made.client.status.held[FLIGHTS].begin == (0, 0, len(batch(b"a")))
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"b")

    in_loop(main)


def test_a_node_that_lags_gets_nothing_for_the_old_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            made.made.cluster.delete_topic("flights")
            await until(lambda: made.client._session.shipping(FLIGHTS).former)
            made.made.cluster.topics["flights"] = made.ids[0]
            await made.append(b"b")
            problem = "another topic of that name"
            await until(lambda: problem in str(made.client.status.nodes[0].problems))
            assert made.values(made.ids[0]) == []
            del made.made.cluster.topics["flights"]
            await made.reaches(b"b")

    in_loop(main)


def test_bytes_for_the_next_topic_are_not_held_because_the_disk_failed_meanwhile(
    tmp_path: Path,
) -> None:
    """The last step of leaving a deleted topic fails, and is repeated."""
    unbind, fails = LocalSession.unbind, [True]

    def failing(self: LocalSession, name: InputName) -> None:
        if fails and name == FLIGHTS:
            raise DiskFault("topic.json", "unlink", 5)
        unbind(self, name)

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            with patch.object(LocalSession, "unbind", failing):
                made.made.cluster.delete_topic("flights")
                await until(lambda: made.client._session.shipping(FLIGHTS).former)
                await made.append(b"b")
                made.client.beside.recreation.settle()
                fails.clear()
                await made.reaches(b"b")
            assert made.client.status.held == {}

    in_loop(main)


def test_an_input_whose_disk_fails_holds_up_no_other_one(tmp_path: Path) -> None:
    unbind, fails = LocalSession.unbind, [True]

    def failing(self: LocalSession, name: InputName) -> None:
        if fails and name == FLIGHTS:
            raise DiskFault("topic.json", "unlink", 5)
        unbind(self, name)

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.merge(b"o", name=OTHER)
            cluster, session = made.made.cluster, made.client._session
            with patch.object(LocalSession, "unbind", failing):
                cluster.delete_topic("flights")
                await until(lambda: session.shipping(FLIGHTS).former)
                cluster.delete_topic(OTHER[0])
                await until(lambda: session.shipping(OTHER).former)
                await made.merge(b"p", name=OTHER)
                assert not made.client.beside.recreation.is_settled
                fails.clear()
                await made.append(b"b")
                await made.reaches(b"b")

    in_loop(main)


def test_the_deleted_topic_is_known_though_it_was_not_noted_yet(tmp_path: Path) -> None:
    """The topic is deleted while a thread writes its id into the input's directory."""
    begun, goes_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)
        bind_topic(*arguments)

    async def main() -> None:
        async with scene(tmp_path) as made:
            with patch.object(input_directory, "bind_topic", slow):
                await made.append(b"a")
                await until(begun.is_set)
                made.note_id()
                made.made.cluster.delete_topic("flights")
                await until(lambda: FLIGHTS in made.client.status.held)
                assert made.client.status.held[FLIGHTS].topic_id == made.ids[0]
                goes_on.set()
            await made.restart()
            await until(lambda: FLIGHTS in made.client.status.held)
            made.decide(OnRecreate.CONTINUE)
            await made.reaches(b"a")

    in_loop(main)


def test_a_deleted_topic_costs_a_listing_for_each_of_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    list_directory = OsFileSystem.list_directory

    def count(self: OsFileSystem, path: str) -> list[str]:
        listed.append(path)
        return list_directory(self, path)

    async def main() -> None:
        async with scene(tmp_path) as made:
            for partition in range(4):
                for topic in ("flights", "trains"):
                    await made.merge(b"a", name=(topic, partition))
            recreation = made.client.beside.recreation
            monkeypatch.setattr(OsFileSystem, "list_directory", count)
            recreation.topic_deleted(FLIGHTS, made.ids[0])
            assert len([path for path in listed if path != made.client._session.path]) == 1

    in_loop(main)


def test_a_damaged_note_ships_nothing_to_another_topic(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            await made.hold(b"b")
            await made.client.stop()
            (made.files.path / "flights-0" / "shipping.json").write_bytes(b"{")
            made.made.cluster.topic_id("flights")
            made.client = made.made.push(made.files.path)
            await until(lambda: FLIGHTS in made.client.status.held)
            assert made.values(made.made.cluster.topics["flights"]) == []

    in_loop(main)


def test_no_later_run_begins_before_held_records_with_dedup_ids_are_decided_on(
    tmp_path: Path,
) -> None:
    files = SessionFiles(tmp_path / "s")
    files.directory.begin_run(0, run_id="run-0", started_ms=1, dedup_id="d", dedup_base=5)
    files.run = 0
    files.append(batch(b"a"))
    files.end()
    files.begin()
    files.append(batch(b"b"))
    session = LocalSession(files.fs, str(files.path), lambda: None)
    session._look_at_all()
    assert not session.stays_open(0)
    shipping = session.shipping(FLIGHTS)
    session.ship_differently(FLIGHTS, type(shipping)(held=(0, 0, 0)))
    assert session.stays_open(0)
    assert session.to_ship(0) == session.to_ship(1) == []
    session.close()


@pytest.mark.parametrize("seed", range(6))
def test_every_record_is_in_one_topic_or_discarded(tmp_path: Path, seed: int) -> None:
    """Deletions, restarts and decisions come in any order."""

    async def main() -> None:
        chance = random.Random(seed)
        async with scene(tmp_path) as made:
            appended: list[bytes] = []
            before: dict[str, list[bytes]] = {}
            await made.merge(b"first")
            for number in range(30):
                way = chance.random()
                made.note_id()
                if way < 0.5:
                    value = b"%d" % number
                    appended.append(value)
                    await made.append(value)
                elif way < 0.6:
                    made.files.roll()
                elif way < 0.7:
                    made.files.end()
                    made.files.begin()
                elif way < 0.8:
                    await made.restart()
                elif way < 0.9 and "flights" in made.made.cluster.topics:
                    topic_id = made.made.cluster.topics["flights"]
                    before[topic_id] = merged_values(made, topic_id)
                    made.made.cluster.delete_topic("flights")
                elif made.client.status.held:
                    made.decide(OnRecreate.CONTINUE)
                await until(lambda: made.client._session.identity is not None)
            made.client.beside.recreation.option = OnRecreate.CONTINUE
            last = b"last"
            appended.append(last)
            await made.append(last)
            topics = made.made.cluster.topics
            await until(lambda: last in made.values(topics.get("flights", "")))
            found = [v for values in before.values() for v in values]
            found += made.values(topics["flights"])
            kept = [value for value in found if value != b"first"]
            # What was merged and not yet reported when its topic was deleted comes once more.
            assert sorted(set(kept)) == sorted(appended)
            newest = made.values(topics["flights"])
            assert [value for value in appended if value in newest] == newest

    in_loop(main)


def merged_values(made: Scene, topic_id: str) -> list[bytes]:
    """The records of a topic that the cluster has merged."""
    number = made.made.cluster.inputs.get(("s", topic_id, 0))
    return [] if number is None else made.values(topic_id)
