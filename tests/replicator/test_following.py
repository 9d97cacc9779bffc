"""Push and pull clients are told of other nodes and topics while they run: nothing is lost."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.config.values import Address
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.client import PullClient
from samelog.replicator.push.client import PushClient
from samelog.wire.pull.copies import CopyState
from tests.replicator.fake_nodes import FakeNode, world
from tests.replicator.fake_source import FakeSource
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.replicator.test_pull_client import copy_files, pulling, until_copied
from tests.runtime.peers import in_loop, until

NOBODY = Address("127.0.0.1", 1)


async def until_merged(client: PushClient, place: tuple[int, int]) -> None:
    await until(
        lambda: (
            FLIGHTS in client.progress
            and client.progress[FLIGHTS].merged >= SessionPosition(0, *place)
        )
    )


def held(node: FakeNode, name: InputName = FLIGHTS) -> bytes:
    return bytes(node.intake.run("s", name, 0).files.get(0, b""))


def test_a_new_node_gets_all_that_there_is_and_one_that_is_gone_no_more(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path, nodes=2) as made:
            one, two = made.nodes
            client = made.push(files.path, addresses=(one.address,))
            first = batch(b"first")
            await until_merged(client, files.append(first))
            client.follow(made.config())
            await until(lambda: len(client.status.nodes) == 2)
            await until(lambda: held(two) == first)
            client.follow(made.config(addresses=(two.address,)))
            await until(lambda: not one.intake.watchers.by_session)
            second = batch(b"second")
            await until_merged(client, files.append(second))
            assert held(two) == first + second
            assert held(one) == first
            assert [node.address for node in client.status.nodes] == [two.address]

    in_loop(main)


def test_what_no_node_has_stays_until_one_has_it(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_merged(client, files.append(batch(b"a")))
            client.follow(made.config(addresses=(NOBODY,)))
            end = files.append(batch(b"b"))
            files.roll()
            await until(lambda: client.status.nodes[0].last_error)
            assert files.file(0).exists()
            client.follow(made.config())
            await until_merged(client, end)

    in_loop(main)


def test_a_node_that_stays_keeps_its_connection(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path, nodes=2) as made:
            client = made.push(files.path, addresses=(made.nodes[0].address,))
            await until(lambda: client._links[0].conversation)
            before = client._links[0].conversation
            nodes = tuple(node.address for node in made.nodes)
            client.follow(replace(client._config, nodes=nodes))
            await until(lambda: client._links[1].conversation)
            assert client._links[0].conversation is before

    in_loop(main)


def test_a_copy_goes_on_at_another_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source] = made.sources
            source.merged[0].fill(random.Random(1), 20)
            other = await made.add_node(source=source)
            first = made.world.nodes[0].address
            async with made.client(addresses=(first,)) as client:
                await until_copied(client, source)
                assert client.status.node == "n0"
                client.follow(made.world.config(addresses=(other.address,)))
                await until(lambda: client.status.node == "n1")
                source.merged[0].fill(random.Random(2), 20)
                await until_copied(client, source)
                assert copy_files(made) == source.merged[0].files()
                copies = dict(client.copies)
                client.follow(made.world.config(addresses=(first, other.address)))
                assert client.copies == copies
                assert client.status.node == "n1"

    in_loop(main)


@pytest.mark.parametrize("stays", [True, False])
def test_a_copy_that_every_node_refused_goes_on_at_a_new_one(
    tmp_path: Path, *, stays: bool
) -> None:
    async def main() -> None:
        async with pulling(tmp_path, nodes=1) as made:
            [source] = made.sources
            source.merged[0].append(batch(b"same"))
            async with made.client() as client:
                await until_copied(client, source)
            good = made.world.nodes[0].address
            forked = FakeSource(tmp_path / "forked")
            forked.merged[0].append(batch(b"diff") + batch(b"also"))
            other = (await made.add_node(source=forked)).address
            async with made.client(addresses=(other,)) as client:
                await until(lambda: client.copies["flights", 0].state is CopyState.STOPPED)
                client.follow(made.world.config(addresses=(other,)))
                assert client.copies["flights", 0].state is CopyState.STOPPED
                nodes = (other, good) if stays else (good,)
                client.follow(made.world.config(addresses=nodes))
                source.merged[0].append(batch(b"more"))
                await until_copied(client, source)
                assert copy_files(made) == source.merged[0].files()

    in_loop(main)


def test_topics_come_and_go_and_what_was_copied_stays(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path) as made:
            [source] = made.sources
            source.merged[0].fill(random.Random(1), 20)
            config = made.world.config()

            async def copied(client: PullClient) -> None:
                await until_copied(client, source)
                assert copy_files(made) == source.merged[0].files()

            async with made.client(topics=("weather",)) as client:
                await until(lambda: "weather" in client.status.problems)
                client.follow(config, ("weather", "flights"))
                await copied(client)
                client.follow(config, ("weather",))
                await until(lambda: not client.copies)
                before = copy_files(made)
                source.merged[0].fill(random.Random(2), 20)
                client.follow(config, ("flights",))
                assert client.copies
                await copied(client)
                assert copy_files(made) != before
                assert client.status.problems == {}
                client.follow(replace(config, nodes=(NOBODY, *config.nodes)))
                assert client.topics == ("flights",)

    in_loop(main)
