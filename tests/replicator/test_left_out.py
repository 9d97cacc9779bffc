"""Runs that the cluster closes without the bytes of an input, which a later run carries."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from samelog.format.directory_files import ShippingFile
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.push import client
from samelog.replicator.push.input_directory import InputDirectory
from samelog.replicator.push.release import Removal
from samelog.store.disk.disk_errors import DiskFault
from samelog.wire.errors import FaultCode
from samelog.wire.push import inputs as push_inputs
from tests.replicator.fake_nodes import FakeNode
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.replicator.test_recreation import OTHER, Scene, scene
from tests.runtime.peers import in_loop, until

NO_TOPIC = RequestRefused(FaultCode.UNKNOWN_TOPIC, "there is no topic")
INVALID = RequestRefused(FaultCode.INVALID_BATCH, "a batch is too large when it is decompressed")


@pytest.fixture(autouse=True)
def is_given_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_inputs, "GIVE_UP_S", 0.0)
    monkeypatch.setattr(push_inputs, "RETRY_S", 0.05)


def refuse(made: Scene, refusal: RequestRefused | None) -> None:
    """Let all nodes open no input, or any."""
    for node in made.made.nodes:
        node.intake.refusal = refusal


async def closed(made: Scene, run: int) -> None:
    """Wait until the publisher knows that a run is closed."""
    await until(lambda: run in made.client._progress.ends)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("runs", [1, 3])
def test_records_that_no_node_took_are_carried_by_a_later_run(
    tmp_path: Path, runs: int, *, restarts: bool
) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            refuse(made, NO_TOPIC)
            for run in range(runs):
                await made.append(b"a%d" % run, b"b%d" % run)
                made.files.end()
                made.files.begin()
                await closed(made, run)
            await until(lambda: made.client._session.shipping(FLIGHTS).begin[0] == runs)
            if restarts:
                await made.restart()
            assert made.client.status.lost == ()
            refuse(made, None)
            end = await made.append(b"c")
            await made.merged(end)
            records = [b"%s%d" % (name, run) for run in range(runs) for name in (b"a", b"b")]
            await made.reaches(*records, b"c")
            await until(lambda: not made.files.file(run=0).exists())
            await made.restart()
            await made.append(b"d")
            await made.reaches(*records, b"c", b"d")

    in_loop(main)


def test_records_of_a_later_run_of_a_recreated_topic_are_carried(tmp_path: Path) -> None:
    """The next topic begins behind the bytes of run 0, and run 1 is closed without its bytes."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            made.made.cluster.delete_topic("flights")
            await until(lambda: bool(made.client._session.shipping(FLIGHTS).former))
            made.files.end()
            await closed(made, 0)
            refuse(made, NO_TOPIC)
            made.files.begin()
            await made.append(b"b")
            made.files.end()
            made.files.begin()
            await closed(made, 1)
            assert made.client.status.lost == ()
            refuse(made, None)
            await made.append(b"c")
            await made.reaches(b"b", b"c")

    in_loop(main)


def test_records_are_carried_if_their_run_is_closed_while_their_input_is_opened(
    tmp_path: Path,
) -> None:
    """One node had given the records up, and another one opened their input before the close."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            cluster, session = made.made.cluster, made.client._session
            await made.append(b"a")
            cluster.merges = False
            await until(lambda: session.topic_id(FLIGHTS) is not None)
            for node in made.made.nodes:
                await node.stop()
            made.files.end()
            made.files.begin()
            await made.append(b"b")
            await until(lambda: len(session.runs) == 2)
            made.client.on_run_closed(session.runs[0], {FLIGHTS: (0, 0)})
            assert made.client.status.lost == ()
            made.client.on_run_opened(session.runs[1], 1)
            assert session.shipping(FLIGHTS).begin == (1, 0, 0)
            assert [each[:2] for each in carried(session.shipping(FLIGHTS))] == [(0, 0)]
            assert session.shipping(FLIGHTS).former == ()
            assert session.topic_id(FLIGHTS) is not None, "the topic is the same"

    in_loop(main)


def carried(shipping: ShippingFile) -> list[tuple[int, int, int, int]]:
    """(run, roll, start, stop) of the files that a later run carries."""
    return [(each.run, each.roll, each.start, each.stop) for each in shipping.carried]


def test_nothing_later_is_shipped_before_it_is_noted(tmp_path: Path) -> None:
    write, fails = InputDirectory.ship_differently, [True]

    def failing(self: InputDirectory, shipping: ShippingFile, *, durable: bool = True) -> None:
        if fails and self.path.endswith("flights-0"):
            raise DiskFault(self.path, "write", 5)
        write(self, shipping, durable=durable)

    async def main() -> None:
        async with scene(tmp_path) as made:
            refuse(made, NO_TOPIC)
            await made.append(b"a")
            made.files.end()
            made.files.begin()
            await made.append(b"b")
            with patch.object(InputDirectory, "ship_differently", failing):
                await closed(made, 0)
                refuse(made, None)
                await made.merge(b"o", name=OTHER)
                assert "flights" not in made.made.cluster.topics
                assert made.files.file(run=0).exists()
                fails.clear()
                await made.reaches(b"a", b"b")

    in_loop(main)


def test_what_a_forgotten_run_took_is_not_shipped_again(tmp_path: Path) -> None:
    """A cluster that has forgotten a run says that it is closed, and names no end."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            made.files.end()
            made.files.begin()
            made.client.on_run_closed(made.client._session.runs[0], {})
            [lost] = made.client.status.lost
            assert (lost.run, lost.name) == (0, FLIGHTS)
            await made.append(b"b")
            await made.merged(await made.append(b"c"))
            assert made.client._session.shipping(FLIGHTS).carried == ()

    in_loop(main)


def test_a_run_that_has_nothing_left_leaves_later_runs_alone(tmp_path: Path) -> None:
    """A part of a damaged run may end where it begins (world 920000937 of files that rot)."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"o", name=OTHER)
            made.files.log(FLIGHTS)
            made.files.file().touch()
            made.files.end()
            made.files.begin()
            await closed(made, 0)
            made.made.cluster.merges = False
            await made.append(b"a")
            session = made.client._session
            await until(lambda: session.topic_id(FLIGHTS) is not None)
            session.look_again(FLIGHTS)
            assert session.has_bytes(0, FLIGHTS)
            del made.client._progress.ends[0]
            made.client.on_run_closed(session.runs[0], {FLIGHTS: (0, 0)})
            assert session.shipping(FLIGHTS) == ShippingFile()
            made.made.cluster.merges = True
            await made.append(b"b")
            await made.reaches(b"a", b"b")

    in_loop(main)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_directory_that_was_put_back_ships_nothing_again(
    tmp_path: Path, *, is_known: bool
) -> None:
    """The run that carried the records is not in the copy, or was closed with them."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            refuse(made, NO_TOPIC)
            await made.append(b"a")
            await made.client.stop()
            shutil.copytree(made.files.path, tmp_path / "copy")
            made.client = made.made.push(made.files.path)
            made.files.end()
            if is_known:
                made.files.begin()
                shutil.copy(made.files.path / "run.1.json", tmp_path / "copy")
            else:
                made.files.begin("unknown")
            await closed(made, 0)
            refuse(made, None)
            await made.reaches(b"a")
            made.files.end()
            await closed(made, 1)
            await made.client.stop()
            made.files.die()
            files = SessionFiles(tmp_path / "copy")
            files.begin()
            made.client = made.made.push(files.path)
            end = files.append(batch(b"b"))
            await made.merged(SessionPosition(files.run, *end))
            assert [lost.run for lost in made.client.status.lost] == [0]
            await made.reaches(b"a", b"b")

    in_loop(main)


def test_a_closed_run_goes_whose_topic_is_deleted_before_its_files_go(tmp_path: Path) -> None:
    """Its end is a position in the deleted topic (world 1910000002 of topics that are created
    again).
    """

    async def main() -> None:
        async with scene(tmp_path) as made:
            await made.merge(b"a")
            with patch.object(client, "plan_removal", lambda *_: Removal((), (), {})):
                made.files.end()
                await closed(made, 0)
                made.client.on_topic_gone(0, FLIGHTS, made.ids[0])
                assert made.client._session.shipping(FLIGHTS).former == (made.ids[0],)
                await until(lambda: made.client._releaser is None)
            made.client._release_soon()
            await until(lambda: not made.files.file(run=0).exists())

    in_loop(main)


@pytest.mark.parametrize("is_connected", [True, False])
def test_bytes_that_a_node_finds_invalid_are_carried_by_no_run(
    tmp_path: Path, *, is_connected: bool
) -> None:
    """They would hold up every run that carries them, also if their run is closed on another
    connection than the one on which they were refused.
    """

    def refused(*_: object) -> None:
        raise INVALID

    async def main() -> None:
        async with scene(tmp_path) as made:
            cluster, session = made.made.cluster, made.client._session
            cluster.closes = False
            with ExitStack() as patches:
                for node in made.made.nodes:
                    patches.enter_context(patch.object(node.intake, "append", refused))
                await made.append(b"a")
                await until(lambda: made.client._progress.is_invalid(0, FLIGHTS))
                made.files.end()
                made.files.begin()
                await made.append(b"b")
                await until(lambda: len(session.runs) == 2)
                if not is_connected:
                    for node in made.made.nodes:
                        await node.stop()
                    links = made.client._links
                    await until(lambda: not any(link.conversation for link in links))
            made.client.on_run_closed(session.runs[0], {FLIGHTS: (0, 0)})
            assert [lost.run for lost in made.client.status.lost] == [0]
            assert session.shipping(FLIGHTS).carried == ()
            for node in () if is_connected else made.made.nodes:
                await node.start()
            cluster.close_run("s", "run-0")
            await made.reaches(b"b")

    in_loop(main)


def test_a_stage_is_carried_by_no_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            refuse(made, NO_TOPIC)
            made.files.end()
            made.files.begin(stage="stage")
            await made.append(b"a")
            made.files.end()
            made.files.begin()
            await closed(made, 1)
            assert [lost.run for lost in made.client.status.lost] == [1]

    in_loop(main)


def test_records_with_dedup_ids_wait_for_a_run_that_counts_from_below(tmp_path: Path) -> None:
    """A run's ids count from its base, so one with a higher base does not carry the records."""

    async def main() -> None:
        async with scene(tmp_path) as made:
            files = made.files
            refuse(made, NO_TOPIC)
            files.end()
            for base in (5, 9):
                run = files.run + 1
                files.directory.begin_run(
                    run, run_id=f"run-{run}", started_ms=1, dedup_id="d", dedup_base=base
                )
                files.run = run
                await made.append(b"%d" % base)
                if base == 5:
                    files.end()
            await closed(made, 1)
            refuse(made, None)
            await made.merge(b"o", name=OTHER)
            assert "flights" not in made.made.cluster.topics
            assert made.files.file(run=1).exists()
            files.end()
            await made.reaches(b"5", b"9")
            newest = made.client._session.runs[-1]
            assert (newest.dedup_id, newest.dedup_base) == ("d", 5)

    in_loop(main)


def test_one_node_that_takes_records_keeps_them_in_their_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as made:
            node: FakeNode = made.made.nodes[0]
            node.intake.refusal = NO_TOPIC
            await made.append(b"a")
            await made.reaches(b"a")  # a run that ends before the other node has it may be carried
            made.files.end()
            made.files.begin()
            await made.append(b"b")
            await made.reaches(b"a", b"b")
            await closed(made, 0)
            assert made.client._session.shipping(FLIGHTS).carried == ()

    in_loop(main)
