"""A push client against nodes over real TLS: everything appended arrives, byte for byte."""

from __future__ import annotations

import random
from pathlib import Path

from shiplog.replicator.push_progress import RunPlace
from tests.replicator.fake_nodes import world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch, random_batches
from tests.runtime.peers import in_loop, until

OTHER = ("weather-reports", 3)


def test_what_is_there_and_what_comes_later_is_shipped_and_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        first = random_batches(random.Random(1), 50)
        end = files.append(first)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            [node] = made.nodes
            await until(lambda: FLIGHTS in client.progress)
            await until(lambda: client.progress[FLIGHTS].merged == RunPlace(0, *end))
            assert node.intake.run("s", FLIGHTS).files[0] == first
            for number in range(20):
                end = files.append(batch(b"%d" % number))
                place = RunPlace(0, *end)
                await until(lambda: client.progress[FLIGHTS].acknowledged == place)  # noqa: B023
            assert node.intake.run("s", FLIGHTS).files[0] == files.file().read_bytes()
            assert client.progress[FLIGHTS].durable == RunPlace(0, *end)

    in_loop(main)
