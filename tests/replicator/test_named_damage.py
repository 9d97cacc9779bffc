"""Damage that is found at the end of a run that the publisher has named, or the cluster closed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from samelog.replicator.interfaces import RollByte
from samelog.wire.push import inputs as push_inputs
from samelog.wire.push.effects import RunFiles
from tests.replicator.fake_nodes import world
from tests.replicator.session_files import FLIGHTS, SessionFiles
from tests.replicator.test_push_damage import (
    OTHER,
    SIZE,
    expected,
    flip,
    merged,
    until_shipped,
    write,
)
from tests.runtime.peers import in_loop, until

PARTITIONS = 20


def test_a_rest_at_the_end_of_a_run_looks_at_no_input_without_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[object]()

    def end_of_bytes(files: RunFiles) -> RollByte:
        looks.append(files)
        return original(files)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        for partition in range(PARTITIONS):
            write(files, range(10, 14), 10, partition)
        async with world(tmp_path) as made:
            cluster = made.cluster
            cluster.merges = cluster.closes = False
            client = made.push(files.path)
            await until(lambda: len(client.progress) == PARTITIONS)
            files.end()
            files.begin()
            run = cluster.runs["s"]["run-0"]
            await until(lambda: len(run.asked_ends or ()) == PARTITIONS)
            [link] = client._links
            assert link.conversation is not None
            looks.clear()
            for _ in range(PARTITIONS):
                link.conversation._rest()
            assert not looks
            cluster.merges = cluster.closes = True
            cluster.move()
            await until(lambda: 0 in client._progress.ends)

    original = push_inputs._end_of_bytes
    monkeypatch.setattr(push_inputs, "_end_of_bytes", end_of_bytes)
    in_loop(main)


def test_an_end_is_named_again_if_damage_is_found_in_front_of_it(tmp_path: Path) -> None:
    """The node has lost bytes that were read before they were damaged, and nothing behind them
    shows that yet when the damage of another partition ends the run.
    """

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        for partition in (0, 1):
            write(files, range(10, 14), 10, partition)
        async with world(tmp_path) as made:
            cluster, [node] = made.cluster, made.nodes
            cluster.merges = cluster.closes = False
            client = made.push(files.path)
            await until(lambda: len(node.intake.held) == 2)
            held = list(node.intake.held.values())
            await until(lambda: all(len(each.files[0]) == 4 * SIZE for each in held))
            await node.stop()
            for each in held:
                del each.files[0][2 * SIZE :]
            data = bytearray(files.file().read_bytes())
            data[SIZE + 8 :] = bytes(byte ^ 1 for byte in data[SIZE + 8 :])
            files.file().write_bytes(data)
            flip(files.file(name=OTHER), SIZE + 30)
            await node.start()
            run = cluster.runs["s"]["run-0"]
            await until(lambda: run.asked_ends == {FLIGHTS: (0, 4 * SIZE), OTHER: (0, SIZE)})
            write(files, range(14, 15), 20)
            await until(lambda: run.asked_ends == {FLIGHTS: (0, SIZE), OTHER: (0, SIZE)})
            cluster.merges = cluster.closes = True
            cluster.move()
            await until(lambda: merged(made) == expected(range(10, 15), 12, 13))
            await until(lambda: merged(made, 1) == expected(range(10, 14)))
            await until(lambda: [each.name for each in client.status.damaged] == [FLIGHTS])

    in_loop(main)


def test_the_next_run_waits_for_damage_where_a_closed_part_ends(tmp_path: Path) -> None:
    """A directory is put back from a copy, and the cluster has closed the part before the damage,
    which has yet to be read: the next run was opened first, and its records were merged before
    those behind the damage (world 890000350).
    """

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 40), 100)
        files.end()
        flip(files.file(0), SIZE * 4 + 60)
        files.begin()
        write(files, range(40, 50), 100)
        files.end()
        shutil.copytree(files.path, tmp_path / "copy")
        async with world(tmp_path) as made:
            made.cluster.releases = False
            client = made.push(files.path)
            await until(lambda: 0 in client._progress.unfinished)
            await client.stop()
            shutil.rmtree(files.path)
            shutil.copytree(tmp_path / "copy", files.path)
            made.cluster.releases = True
            made.cluster.move()
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made) == expected(range(10, 50), 14)

    in_loop(main)
