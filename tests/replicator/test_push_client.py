"""A push client against nodes over real TLS: everything appended arrives, byte for byte."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samelog.config.tables.node import Grant
from samelog.format.directory_files import RefusedRecord
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.refused import RefusedRecords
from samelog.wire.errors import FaultCode
from samelog.wire.push import inputs as push_inputs
from samelog.wire.push.effects import PushPhase
from samelog.wire.refusals import RefusedBatch
from tests.patience import PATIENCE_S
from tests.replicator.fake_nodes import FakeNode, World, world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch, random_batches
from tests.runtime.peers import in_loop, until

OTHER = ("weather-reports", 3)
HOUR_S = 3600.0


async def until_merged(client: PushClient, *places: SessionPosition) -> None:
    """Wait until FLIGHTS is merged up to there."""
    [place] = places
    await until(lambda: FLIGHTS in client.progress and client.progress[FLIGHTS].merged >= place)


def held(node: FakeNode, run: int = 0, roll: int = 0) -> bytes:
    """What a node holds of a file of FLIGHTS."""
    return bytes(node.intake.run("s", FLIGHTS, run).files[roll])


def test_what_is_there_and_what_comes_later_is_shipped_and_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        first = random_batches(random.Random(1), 50)
        end = files.append(first)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            [node] = made.nodes
            await until_merged(client, SessionPosition(0, *end))
            assert held(node) == first
            for number in range(20):
                end = files.append(batch(b"%d" % number))
                await until_merged(client, SessionPosition(0, *end))
            assert held(node) == files.file().read_bytes()
            progress = client.progress[FLIGHTS]
            assert progress.durable == progress.acknowledged == progress.merged == (0, *end)

    in_loop(main)


def test_what_is_waited_for_is_shipped_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            config = made.config()
            client = made.push(files.path, poll_s=HOUR_S)
            client.follow(replace(config, publisher=replace(config.publisher, linger_s=HOUR_S)))
            end = files.append(batch(b"first after a pause"))
            await until_merged(client, SessionPosition(0, *end))
            end = files.append(batch(b"lingers"))
            for _ in range(10):
                await asyncio.sleep(0.001)
            assert client.progress[FLIGHTS].merged < (0, *end)
            client.hurry()
            await until_merged(client, SessionPosition(0, *end))

    in_loop(main)


def test_a_client_may_start_before_there_is_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "s").mkdir()
        async with world(tmp_path) as made:
            client = made.push(tmp_path / "s")
            files = SessionFiles(tmp_path / "s")
            files.begin()
            end = files.append(batch(b"x"))
            await until_merged(client, SessionPosition(0, *end))

    in_loop(main)


def test_partitions_and_rolls_arrive_as_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        source = random.Random(2)
        files = SessionFiles(tmp_path / "s")
        files.begin()
        names = [("flights", partition) for partition in range(4)] + [OTHER]
        written = dict.fromkeys(names, b"")
        async with world(tmp_path) as made:
            made.cluster.releases = False  # or the files would go
            client = made.push(files.path)
            for _ in range(200):
                name = source.choice(names)
                data = random_batches(source, source.randrange(1, 5))
                files.append(data, name)
                written[name] += data
                if source.random() < 0.1:
                    files.roll(name)
            ends = {name: files.log(name).end(0) for name in names}
            await until(lambda: set(client.progress) == set(names))
            await until(
                lambda: all(client.progress[name].durable[1:] >= ends[name] for name in names)
            )
            for name in names:
                run = made.nodes[0].intake.run("s", name)
                assert b"".join(run.files[roll] for roll in sorted(run.files)) == written[name]
                assert run.end == ends[name]
                for roll, length in run.sealed.items():
                    assert files.file(roll, name).stat().st_size == length

    in_loop(main)


def test_files_go_when_they_are_merged_and_the_run_when_it_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        async with world(tmp_path) as made:
            client = made.push(files.path)
            for _ in range(2):
                files.begin()
                files.append(batch(b"a"))
                files.roll()
                files.append(batch(b"b"))
                files.append(batch(b"c"), OTHER)
                run = files.run
                await until(lambda: not files.file(0, run=run).exists())  # noqa: B023
                assert files.file(1).exists()
                files.end()
            await until(lambda: not files.file(1, run=0).exists())
            await until(lambda: not files.file(1, run=1).exists())
            assert not (files.path / "run.0.json").exists()
            assert (files.path / "run.1.json").exists(), "its number would be used again"
            await until(lambda: not list(files.path.glob("*/log.*")))
            assert client.status.nodes[0].phase is PushPhase.IDLE

    in_loop(main)


def test_nothing_goes_before_a_majority_has_merged_it(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        async with world(tmp_path) as made:
            made.cluster.releases = False
            client = made.push(files.path)
            files.begin()
            files.append(batch(b"a"))
            files.roll()
            end = files.append(batch(b"b"))
            files.end()
            await until(lambda: client.status.nodes[0].phase is PushPhase.IDLE)
            assert client.progress[FLIGHTS].acknowledged == (0, *end)
            assert client.progress[FLIGHTS].merged == (-1, 0, 0)
            await client.stop()
            assert files.file(0).exists()
            assert files.file(1).exists()
            made.cluster.releases = True
            made.cluster.move()
            again = made.push(files.path)  # finds a closed run, and learns that it is merged
            await until(lambda: not files.file(1).exists())
            assert not files.file(0).exists()
            await until(lambda: again.progress[FLIGHTS].merged == (0, *end))

    in_loop(main)


def test_an_abandoned_run_is_ended_at_its_last_whole_batch(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        whole = batch(b"a", b"b")
        files.append(whole)
        files.file().write_bytes(whole + batch(b"torn")[:-3])
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: FLIGHTS in client.progress)
            await until(lambda: client.progress[FLIGHTS].durable == (0, 0, len(whole)))
            run = made.cluster.runs["s"]["run-0"]
            assert run.asked_ends is None, "its writer is alive"
            files.die()
            await until(lambda: run.closed)
            assert run.asked_ends == {FLIGHTS: (0, len(whole))}
            assert held(made.nodes[0]) == whole

    in_loop(main)


def test_a_newer_run_ends_the_older_one_and_waits_for_its_close(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        async with world(tmp_path) as made:
            made.cluster.closes = False
            client = made.push(files.path)
            files.begin()
            first = files.append(batch(b"a"))
            files.begin()
            second = files.append(batch(b"b"))
            runs = made.cluster.runs["s"]
            await until(lambda: "run-0" in runs and runs["run-0"].asked_ends is not None)
            assert runs["run-0"].asked_ends == {FLIGHTS: first}
            assert "run-1" not in runs
            made.cluster.closes = True
            made.cluster.move()
            await until_merged(client, SessionPosition(1, *second))
            assert held(made.nodes[0], run=1) == batch(b"b")

    in_loop(main)


def test_the_end_of_a_run_does_not_overtake_its_last_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            client = made.push(files.path)
            for number in range(10):
                end = files.append(batch(b"a"))
                await until_merged(client, SessionPosition(number, *end))
                (files.path / "unrelated").touch()  # so that the session comes first among the news
                end = files.append(batch(b"b"))
                files.end()
                await until(lambda: client.progress[FLIGHTS].merged == (number, *end))  # noqa: B023
                assert made.cluster.runs["s"][f"run-{number}"].asked_ends == {FLIGHTS: end}
                (files.path / "unrelated").unlink()
                files.begin()
            assert client.status.lost == ()

    in_loop(main)


def test_a_run_that_lost_its_number_is_shipped_under_another(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin("copied")
        files.append(batch(b"a"))
        files.end()
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: made.cluster.runs["s"].get("copied"))
            await until(lambda: client.status.nodes[0].phase is PushPhase.IDLE)
            await client.stop()
            files.die()
            restored = SessionFiles(tmp_path / "restored")
            restored.begin("other")
            end = restored.append(batch(b"b"))
            client = made.push(restored.path)
            await until_merged(client, SessionPosition(0, *end))
            assert made.cluster.runs["s"]["other"].number == 1
            assert held(made.nodes[0], run=1) == batch(b"b")

    in_loop(main)


def test_a_refused_input_is_tried_again_and_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        end = files.append(batch(b"a"))
        async with world(tmp_path) as made:
            made.nodes[0].intake.refusal = RequestRefused(FaultCode.NOT_READY, "no leader", "wait")
            client = made.push(files.path)
            await until(lambda: client.status.nodes[0].problems)
            assert client.status.nodes[0].problems == {FLIGHTS: "NOT_READY: no leader (wait)"}
            made.nodes[0].intake.refusal = None
            await until_merged(client, SessionPosition(0, *end))
            assert client.status.nodes[0].problems == {}

    in_loop(main)


def test_only_granted_topics_are_taken(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        files.append(batch(b"a"))
        files.append(batch(b"b"), OTHER)
        made = await granting(tmp_path, "flights")
        client = made.push(files.path)
        await until(lambda: FLIGHTS in client.progress)
        await until(lambda: OTHER in client.status.nodes[0].problems)
        assert "NOT_AUTHORISED" in client.status.nodes[0].problems[OTHER]
        assert "weather-reports" not in made.cluster.topics
        stranger = made.push(files.path, name="stranger")
        await until(lambda: "NOT_AUTHORISED" in str(stranger.status.nodes[0].last_error))
        await made.stop()

    in_loop(main)


def test_an_input_that_no_node_takes_is_left_to_a_newer_run_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_inputs, "GIVE_UP_S", 0.0)

    async def main() -> None:
        made = await granting(tmp_path, "flights", "flights")
        files = SessionFiles(tmp_path / "s")
        files.begin()
        first = files.append(batch(b"a"))
        files.append(batch(b"b"), OTHER)
        client = made.push(files.path)
        await until(lambda: OTHER in client.status.nodes[0].problems)
        assert made.cluster.runs["s"]["run-0"].asked_ends is None, "it is tried for ever"
        files.begin()
        second = files.append(batch(b"c"))
        await until_merged(client, SessionPosition(1, *second))
        assert made.cluster.runs["s"]["run-0"].asked_ends == {FLIGHTS: first, OTHER: (0, 0)}
        assert client.status.lost == ()
        assert files.file(name=OTHER, run=0).read_bytes() == batch(b"b")
        await until(lambda: "NOT_AUTHORISED" in client.status.nodes[0].problems.get(OTHER, ""))
        await made.stop()

    in_loop(main)


def test_a_bad_batch_is_left_behind_though_its_end_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_inputs, "GIVE_UP_S", 0.0)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        files.append(batch(b"bad"))
        made = World(tmp_path, 1)
        node: FakeNode = made.nodes[0]
        await node.start()
        append = node.intake.append

        def choose(number: int, run: int, roll: int, byte: int, data: bytes) -> None:
            if run == 0:
                raise RequestRefused(FaultCode.INVALID_BATCH, "bad")
            append(number, run, roll, byte, data)

        node.intake.append = choose  # type: ignore[method-assign, assignment]
        files.begin()
        end = files.append(batch(b"good"))
        client = made.push(files.path)
        await until_merged(client, SessionPosition(1, *end))
        assert [lost.run for lost in client.status.lost] == [0]
        await made.stop()

    in_loop(main)


def test_an_input_that_one_node_takes_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_inputs, "GIVE_UP_S", 0.0)

    async def main() -> None:
        made = await granting(tmp_path, "flights", "*")
        files = SessionFiles(tmp_path / "s")
        files.begin()
        end = files.append(batch(b"b"), OTHER)
        client = made.push(files.path)
        await until(lambda: OTHER in client.status.nodes[0].problems)
        files.begin()
        await until(lambda: OTHER in client.progress)
        await until(lambda: client.progress[OTHER].merged >= SessionPosition(0, *end))
        assert not client.status.lost
        await made.stop()

    in_loop(main)


async def granting(path: Path, *topics: str) -> World:
    """A world with a node for each pattern of topics, whose publisher may write only to those."""
    made = World(path, 0)
    for number, pattern in enumerate(topics):
        grant = Grant(
            identity="samelog://publisher/p", publish_sessions=("s",), publish_topics=(pattern,)
        )
        node = FakeNode(f"n{number}", made.authority, made.cluster, grants=(grant,))
        made.nodes.append(node)
        await node.start()
    return made


def test_a_node_of_another_cluster_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        files.append(batch(b"a"))
        async with world(tmp_path) as made:
            made.nodes[0].welcome_cluster = "another"
            client = made.push(files.path)
            await until(lambda: "WRONG_CLUSTER" in str(client.status.nodes[0].last_error))
            assert made.nodes[0].intake.opened_runs == []

    in_loop(main)


def test_a_cluster_made_anew_under_the_same_name_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        files.append(batch(b"a"))
        async with world(tmp_path) as made:
            node = made.nodes[0]
            client = made.push(files.path)
            await until(lambda: node.intake.opened_runs)  # a cluster that has no id yet is no other
            for cluster_id, is_taken in (("first", True), ("second", False), ("first", True)):
                await client.stop()
                node.intake.opened_runs.clear()
                node.cluster_id = cluster_id
                client = made.push(files.path)
                if is_taken:
                    await until(lambda: node.intake.opened_runs)
                    continue
                await until(lambda c=client: "the id first" in str(c.status.nodes[0].last_error))  # type: ignore[misc]
                assert node.intake.opened_runs == []

    in_loop(main)


def test_two_directories_cannot_be_one_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as made:
            one = SessionFiles(tmp_path / "one")
            one.begin()
            end = one.append(batch(b"a"))
            await until_merged(made.push(one.path), SessionPosition(0, *end))
            other = SessionFiles(tmp_path / "other", session_id="id-2")
            other.begin("run-x")
            other.append(batch(b"b"))
            client = made.push(other.path)
            await until(lambda: "SESSION_CONFLICT" in str(client.status.nodes[0].last_error))

    in_loop(main)


def test_refused_records_are_kept_before_later_messages_count_and_hold_up_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: the loop runs, and nothing counts as merged before the record is kept."""
    syncs, keep = threading.Event(), RefusedRecords.keep

    def slow(self: RefusedRecords, *given: Any) -> Any:
        assert syncs.wait(PATIENCE_S)
        return keep(self, *given)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        async with world(tmp_path) as made:
            [node] = made.nodes
            made.cluster.merges = False
            client = made.push(files.path)
            reported: list[RefusedRecord] = []
            client.beside.refused.on_kept = reported.extend
            data = batch(b"bad")
            end = files.append(data)
            await until(lambda: FLIGHTS in client.progress and bool(node.intake.held))
            await until(lambda: client.progress[FLIGHTS].durable >= (0, *end))
            [(number, run)] = node.intake.held
            refused = RefusedBatch(number, run, 0, 0, len(data), (0, 1), ())
            for listener in node.intake.watchers.of_input(number):
                listener.on_refused(number, [refused])
            made.cluster.merges = True
            node.intake.move_soon()
            await until(lambda: made.cluster.merged.get((number, run)) == end)
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert client.progress[FLIGHTS].merged < (0, *end)
            assert reported == []
            syncs.set()
            await until_merged(client, SessionPosition(0, *end))
            assert [each.value for each in reported] == [b"bad"]
            assert (files.path / "refused").exists()

    monkeypatch.setattr(RefusedRecords, "keep", slow)
    in_loop(main)
