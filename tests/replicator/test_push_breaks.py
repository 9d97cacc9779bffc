"""Pushing when connections, nodes or the publisher's own disk break: nothing is lost or mixed."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import RequestRefused
from samelog.wire.errors import FaultCode
from samelog.wire.push.effects import PushPhase
from tests.replicator.cutting import CuttingProxy
from tests.replicator.fake_nodes import FakeNode, World, world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch, random_batches
from tests.replicator.test_push_client import OTHER, held, until_merged
from tests.runtime.peers import in_loop, until


@pytest.mark.parametrize("seed", range(8))
def test_whatever_breaks_everything_arrives_once_and_in_order(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    names = [FLIGHTS, OTHER, ("flights", 1)]

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        written: dict[tuple[int, tuple[str, int]], bytes] = {}
        async with (
            world(tmp_path) as made,
            CuttingProxy(made.nodes[0].address, source, 200_000) as proxy,
        ):
            made.nodes[0].window_bytes = source.choice([1 << 14, 1 << 17, 1 << 24])
            client = made.push(files.path, addresses=(proxy.address,))
            for _ in range(source.randrange(1, 4)):
                run = files.begin()
                for _ in range(source.randrange(30)):
                    name = source.choice(names)
                    data = random_batches(source, source.randrange(1, 8), size=3000)
                    files.append(data, name)
                    written[run, name] = written.get((run, name), b"") + data
                    if source.random() < 0.2:
                        files.roll(name)
                    if source.random() < 0.03:
                        before = proxy.connections
                        if proxy.cut():
                            await until(lambda: proxy.connections > before)  # noqa: B023
                if source.random() < 0.5:
                    files.end()
            files.die()
            await until(lambda: proxy.connections > 1 or source.random() < 0.01)
            proxy.budget_bytes = None
            await until(lambda: client.status.nodes[0].phase is PushPhase.IDLE)
            for (run, name), data in written.items():
                kept = made.nodes[0].intake.run("s", name, run)
                assert b"".join(kept.files[roll] for roll in sorted(kept.files)) == data
            assert client.status.lost == ()
            await until(lambda: not list(files.path.glob("*/log.*")))

    in_loop(main)


def test_a_dead_node_delays_nobody_and_gets_all_when_it_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path, nodes=3) as made:
            await made.nodes[1].stop()
            made.cluster.releases = False
            client = made.push(files.path)
            for number in range(50):
                end = files.append(batch(b"%d" % number))
                reached = SessionPosition(0, *end)
                await until(lambda: FLIGHTS in client.progress)
                await until(lambda: client.progress[FLIGHTS].acknowledged == reached)  # noqa: B023
            assert client.status.nodes[1].phase is None
            assert "unreachable" not in str(client.status.nodes[0].last_error)
            await made.nodes[1].start()
            intake = made.nodes[1].intake
            await until(lambda: intake.held and intake.run("s", FLIGHTS).end == end)
            assert held(made.nodes[1]) == held(made.nodes[0]) == files.file().read_bytes()

    in_loop(main)


def test_a_node_that_takes_nothing_delays_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path, nodes=2) as made:
            client = made.push(files.path)
            end = files.append(batch(b"x"))
            await until(lambda: all(node.intake.held for node in made.nodes))
            await until(lambda: held(made.nodes[1]) == batch(b"x"))
            made.nodes[1].connections[-1].pause_reading()
            for _ in range(100):
                end = files.append(random_batches(random.Random(3), 40, size=3000))
            await until_merged(client, SessionPosition(0, *end))
            assert held(made.nodes[0]) == files.file().read_bytes()
            assert len(held(made.nodes[1])) < len(held(made.nodes[0]))
            made.nodes[1].connections[-1].resume_reading()
            await until(lambda: made.nodes[1].intake.run("s", FLIGHTS).end == end)
            assert client.status.nodes[1].last_error is None

    in_loop(main)


@pytest.mark.parametrize("ending", ["abandoned", "clean", "newer"])
def test_a_node_may_hold_more_than_a_publisher_that_lost_power(tmp_path: Path, ending: str) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            made.cluster.closes = False
            client = made.push(files.path)
            kept = files.append(random_batches(random.Random(4), 30))
            full = files.append(random_batches(random.Random(5), 30))
            await until_merged(client, SessionPosition(0, *full))
            await client.stop()
            with files.file().open("r+b") as file:
                file.truncate(kept[1] + 17)  # into a batch that was there
                file.truncate(kept[1] + 5000)  # zeros
            if ending == "newer":
                files.begin()
            elif ending == "clean":
                files.directory.end_run(0, {"flights-0": full})
            files.die()
            client = made.push(files.path)
            run = made.cluster.runs["s"]["run-0"]
            await until(lambda: run.asked_ends is not None)
            assert run.asked_ends == {FLIGHTS: kept}
            made.cluster.closes = True
            made.cluster.move()
            await until(lambda: client.status.nodes[0].phase is PushPhase.IDLE)
            assert made.nodes[0].intake.run("s", FLIGHTS).end == full
            assert client.status.lost == ()
            await until(lambda: not files.file(run=0).exists())

    in_loop(main)


def test_a_lost_roll_is_no_fork(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            made.cluster.releases = False
            client = made.push(files.path)
            first = files.append(batch(b"a"))
            files.roll()
            second = files.append(batch(b"b"))
            await until(lambda: FLIGHTS in client.progress)
            await until(lambda: client.progress[FLIGHTS].durable == (0, *second))
            await client.stop()
            files.die()
            files.file(1).unlink()
            client = made.push(files.path)
            run = made.cluster.runs["s"]["run-0"]
            await until(lambda: run.closed)
            assert run.asked_ends == {FLIGHTS: first}, "where the last bytes end that are there"
            assert first == (0, len(batch(b"a")))
            assert client.status.stopped is None

    in_loop(main)


def test_other_bytes_at_the_same_place_stop_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        files.append(batch(b"one") + batch(b"two"))
        async with world(tmp_path, nodes=2) as made:
            client = made.push(files.path)
            await until(lambda: all(node.intake.held for node in made.nodes))
            await until(lambda: all(held(node) for node in made.nodes))
            await client.stop()
            swapped = batch(b"two") + batch(b"one")
            files.file().write_bytes(swapped + batch(b"three"))
            client = made.push(files.path)
            await until(lambda: client.status.stopped is not None)
            assert client.status.stopped is not None
            assert client.status.stopped.code is FaultCode.FORK
            await until(lambda: all(node.phase is None for node in client.status.nodes))
            assert all(held(node) == batch(b"one") + batch(b"two") for node in made.nodes)

    in_loop(main)


def test_what_a_node_got_from_its_peers_does_no_harm(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        first = random_batches(random.Random(6), 600, size=3000)
        second = random_batches(random.Random(7), 100, size=3000)
        async with world(tmp_path) as made:
            node = made.nodes[0]
            append = node.intake.append
            made.cluster.releases = False

            def append_and_pull(number: int, run: int, roll: int, byte: int, data: bytes) -> None:
                append(number, run, roll, byte, data)
                if node.intake.appends == 1:
                    assert len(held(node)) < len(first)
                    node.intake.run("s", FLIGHTS).files[0] = bytearray(first)

            node.intake.append = append_and_pull  # type: ignore[method-assign, assignment]
            client = made.push(files.path)
            files.append(first)
            end = SessionPosition(0, *files.append(second))
            await until(lambda: FLIGHTS in client.progress)
            await until(lambda: client.progress[FLIGHTS].durable == end)
            assert held(node) == first + second
            assert client.status.nodes[0].last_error is None

    in_loop(main)


def test_a_wiped_node_waits_for_what_was_released_and_then_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path, nodes=2) as made:
            await made.nodes[1].stop()
            client = made.push(files.path)
            files.append(batch(b"a"))
            files.roll()
            end = files.append(batch(b"b"))
            await until_merged(client, SessionPosition(0, *end))
            await until(lambda: not files.file(0).exists())
            number = made.cluster.inputs["s", "topic-1", 0]
            known = made.cluster.merged.pop((number, 0))
            made.cluster.merges = False  # the node does not know yet that this is merged
            await made.nodes[1].start()
            await until(lambda: client.status.nodes[1].problems)
            assert "OUT_OF_RANGE" in client.status.nodes[1].problems[FLIGHTS]
            made.cluster.merged[number, 0] = known
            made.cluster.merges = True
            end = files.append(batch(b"c"))
            await until(lambda: made.nodes[1].intake.run("s", FLIGHTS).end == end)
            run = made.nodes[1].intake.run("s", FLIGHTS)
            assert files.file(1).read_bytes().endswith(run.files[1])
            assert run.base[1] > 0

    in_loop(main)


def test_bytes_that_were_never_merged_are_kept_and_reported(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            client = made.push(files.path)
            end = files.append(batch(b"a"))
            await until_merged(client, SessionPosition(0, *end))
            await client.stop()
            full = files.append(batch(b"b"))
            made.cluster.close_run("s", "run-0")
            client = made.push(files.path)
            await until(lambda: client.status.lost)
            [lost] = client.status.lost
            assert (lost.run, lost.name, lost.start, lost.stop) == (0, FLIGHTS, end, full)
            files.begin()
            end = files.append(batch(b"c"))
            await until_merged(client, SessionPosition(1, *end))
            assert files.file(run=0).read_bytes() == batch(b"a") + batch(b"b")

    in_loop(main)


def test_a_bad_batch_is_not_shipped_and_shown(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        good = files.append(batch(b"good"))
        files.append(batch(b"damaged"))
        with files.file().open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\xff")
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_merged(client, SessionPosition(0, *good))
            await until(lambda: client.status.nodes[0].problems)
            assert "CRC" in client.status.nodes[0].problems[FLIGHTS].upper()
            assert held(made.nodes[0]) == batch(b"good")

    in_loop(main)


def test_nothing_more_is_read_while_an_intake_is_not_done_with_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        made = World(tmp_path, 1)
        node: FakeNode = made.nodes[0]
        await node.start()
        append = node.intake.append
        events: list[str] = []

        async def take(place: tuple[int, int, int, int], data: bytes) -> None:
            for _ in range(200):  # turns of the loop, in which more would be read
                await asyncio.sleep(0)
            append(*place, data)
            events.append("taken")

        def begin(number: int, run: int, roll: int, byte: int, data: memoryview) -> Any:
            events.append("begun")
            return take((number, run, roll, byte), bytes(data))

        node.intake.append = begin  # type: ignore[method-assign, assignment]
        ends = [files.append(batch(b"a")), files.append(batch(b"b"), OTHER)]
        client = made.push(files.path)
        await until(lambda: {FLIGHTS, OTHER} <= client.progress.keys())
        await until(lambda: client.progress[FLIGHTS].merged == SessionPosition(0, *ends[0]))
        await until(lambda: client.progress[OTHER].merged == SessionPosition(0, *ends[1]))
        assert events == ["begun", "taken"] * 2
        await made.stop()

    in_loop(main)


def test_an_intake_that_refuses_bytes_ends_the_connection_only(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        end = files.append(batch(b"a"))
        made = World(tmp_path, 1)
        node: FakeNode = made.nodes[0]
        await node.start()
        append = node.intake.append

        def refuse(*args: object) -> None:
            raise RequestRefused(FaultCode.DISK_FULL, "no space", "free some")

        node.intake.append = refuse  # type: ignore[method-assign, assignment]
        client = made.push(files.path)
        await until(lambda: "DISK_FULL" in str(client.status.nodes[0].last_error))
        node.intake.append = append  # type: ignore[method-assign]
        await until_merged(client, SessionPosition(0, *end))
        await made.stop()

    in_loop(main)


def test_a_quota_holds_up_one_input_only(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        end = files.append(batch(b"a"))
        made = World(tmp_path, 1)
        node: FakeNode = made.nodes[0]
        await node.start()
        append = node.intake.append

        def refuse(*args: object) -> None:
            raise RequestRefused(FaultCode.TOO_MANY, "too many bytes that are not merged")

        node.intake.append = refuse  # type: ignore[method-assign, assignment]
        client = made.push(files.path)
        await until(lambda: "TOO_MANY" in client.status.nodes[0].problems.get(FLIGHTS, ""))
        assert client.status.nodes[0].last_error is None
        node.intake.append = append  # type: ignore[method-assign]
        await until_merged(client, SessionPosition(0, *end))
        await made.stop()

    in_loop(main)
