"""A publisher that ships, and the sidecar, with pretended nodes behind real connections."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from samelog import AsyncPublisher, Publisher
from samelog.config.tables.client import ClientConfig
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.errors import DirectoryInUse
from samelog.publisher import (
    NotMerged,
    PublishingRefused,
    ShippingStopped,
    TopicDeleted,
    TopicPartition,
    shipper,
)
from samelog.publisher.options import PublisherKeywords
from samelog.publisher.sidecar import RESCAN_S, PublisherSidecar, find_sessions, rescan_pause_s
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.push import connections as push_connections
from samelog.replicator.push.client import PushClient
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.used_directory import Trouble
from samelog.store.disk.files import OsFileSystem
from samelog.store.session.directory import SessionDirectory
from samelog.wire.errors import FaultCode
from samelog.wire.push import topics
from tests.e2e.harness import not_merged, wait_for
from tests.patience import PATIENCE_S
from tests.publisher import reading
from tests.publisher.nodes import running
from tests.runtime.peers import until
from tests.runtime.test_inotify import instances

NAME = TopicPartition("t", 0)


def test_what_is_appended_is_merged_and_told(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        config = nodes.world.config()
        with Publisher("t", session="s", directory=tmp_path, config=config) as publisher:
            publisher.append(b"a")
            publisher.append_many([b"b"] * 1000)
            publisher.wait_merged(timeout=PATIENCE_S)
            place = publisher.positions.appended[NAME]
            assert publisher.positions.acknowledged == {NAME: place}
            assert publisher.positions.merged == {NAME: place}
            held, whole = nodes.world.nodes[0].intake.held, reading.raw(tmp_path / "s")
            wait_for(
                lambda: [bytes(run.files[0]) for run in held.values()] == [whole],
                "the node that is no part of the majority has it too",
            )
        assert publisher.positions.merged[NAME] >= place


def test_a_wait_ships_what_lingers_at_once(tmp_path: Path) -> None:
    with (
        running(tmp_path) as nodes,
        Publisher("t", session="s", directory=tmp_path, config=nodes.world.config()) as publisher,
        patch.object(PushClient, "hurry", autospec=True) as hurry,
    ):
        publisher.append(b"a")
        publisher.wait_merged(timeout=PATIENCE_S)
        wait_for(lambda: hurry.call_count == 1, "the wait for the record says so")
        publisher.wait_merged(timeout=PATIENCE_S)
    assert hurry.call_count == 1


def test_many_publishers_of_a_process_share_thread_and_connection(tmp_path: Path) -> None:
    with running(tmp_path) as nodes, ExitStack() as stack:
        config, before = nodes.world.config(), instances()
        publishers = [
            stack.enter_context(
                Publisher("t", session=f"s{number}", directory=tmp_path, config=config)
            )
            for number in range(10)
        ]
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("samelog-push") == 1
        assert instances() <= before + 1
        [node] = nodes.world.nodes
        assert len(node.connections) == 1
        publishers.pop(0).close()
        for publisher in publishers:
            publisher.append(b"a")
            publisher.wait_merged(timeout=PATIENCE_S)


def test_merged_files_are_released_and_make_room(tmp_path: Path) -> None:
    with (
        running(tmp_path) as nodes,
        Publisher(
            "t",
            session="s",
            directory=tmp_path,
            config=nodes.world.config(),
            budget_bytes=64 << 10,
        ) as publisher,
    ):
        for _ in range(300):
            publisher.append(bytes(1000))
        publisher.wait_merged(timeout=PATIENCE_S)


def test_without_a_node_appends_go_on_and_waiting_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        nodes.stop_nodes()
        publisher = Publisher("t", session="s", directory=tmp_path, config=config)
        for _ in range(100):
            publisher.append(b"a")
        with pytest.raises(
            NotMerged, match=r"t-0 is not merged yet \(its log ends at byte \d+ of log\.0\.0\)"
        ):
            publisher.wait_merged(timeout=0.3)
        with pytest.raises(TimeoutError, match=rf"node {config.nodes[0]}: .*refused"):
            publisher.wait_merged(timeout=0.1)
        with caplog.at_level(logging.WARNING, "samelog.publisher"):
            publisher.close(timeout=0.1)
        assert "session 's' is closed before all is shipped" in caplog.text
        nodes.start_nodes()
        with Publisher("t", session="s", directory=tmp_path, config=config) as publisher:
            publisher.append(b"b")
            publisher.wait_merged(timeout=PATIENCE_S)


def test_a_refusal_is_told_by_the_one_who_waits(tmp_path: Path) -> None:
    with running(tmp_path) as nodes:
        nodes.world.nodes[0].intake.refusal = RequestRefused(
            FaultCode.NOT_AUTHORISED, "not for you"
        )
        publisher = Publisher("t", session="s", directory=tmp_path, config=nodes.world.config())
        publisher.append(b"a")
        wait_for(lambda: "t-0 is refused: " in not_merged(publisher), "the refusal")
        assert "not for you" in not_merged(publisher)
        publisher.close(timeout=0)


OVER = RequestRefused(FaultCode.OVER_QUOTA, "publisher/p has 9 sessions, of at most 9", "end one")


@pytest.mark.parametrize("what", ["open_run", "open_input"])
def test_a_session_over_its_quota_learns_it_at_once_and_goes_on_when_there_is_room(
    tmp_path: Path, what: str
) -> None:
    with running(tmp_path) as nodes:
        intake = nodes.world.nodes[0].intake
        with patch.object(intake, what, side_effect=OVER):
            publisher = Publisher("t", session="s", directory=tmp_path, config=nodes.world.config())
            publisher.append(b"a")
            with pytest.raises(PublishingRefused, match="OVER_QUOTA: publisher/p has 9 sessions"):
                publisher.wait_merged(timeout=PATIENCE_S)
            publisher.append(b"b")
            publisher.flush()
        appended = publisher.positions.appended
        wait_for(lambda: publisher.positions.merged == appended, "there is room")
        publisher.wait_merged(timeout=PATIENCE_S)
        publisher.close(timeout=PATIENCE_S)


def test_a_wait_in_a_loop_ends_when_the_quota_is_used_up(tmp_path: Path) -> None:
    async def main() -> None:
        config = nodes.world.config()
        async with AsyncPublisher("t", session="s", directory=tmp_path, config=config) as publisher:
            await publisher.append(b"a")
            with pytest.raises(PublishingRefused, match="OVER_QUOTA"):
                await publisher.wait_merged(timeout=PATIENCE_S)
            await publisher.close(timeout=0)

    with (
        running(tmp_path) as nodes,
        patch.object(nodes.world.nodes[0].intake, "open_run", side_effect=OVER),
    ):
        asyncio.run(main())


def test_what_is_held_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path) as nodes:
        cluster = nodes.world.cluster
        cluster.merges = False
        publisher = Publisher("t", session="s", directory=tmp_path, config=nodes.world.config())
        publisher.append(b"a")
        wait_for(lambda: "t" in cluster.topics and bool(cluster.inputs), "the topic")
        nodes.do(lambda: cluster.delete_topic("t"))
        with pytest.raises(TopicDeleted, match="samelog session continue s;") as caught:
            publisher.wait_merged(timeout=PATIENCE_S)
        assert caught.value.topic == "t"
        publisher.flush(durable=True)
        publisher.close(timeout=1)


@pytest.mark.parametrize(("decision", "merged"), [("continue", [b"a", b"b"]), ("discard", [b"b"])])
def test_a_publisher_decides_on_unmerged_records_of_a_deleted_topic(
    tmp_path: Path, decision: str, merged: list[bytes]
) -> None:
    with running(tmp_path) as nodes:
        cluster = nodes.world.cluster
        cluster.merges = False
        options = PublisherKeywords(
            directory=tmp_path, config=nodes.world.config(), on_recreate=decision
        )
        with Publisher("t", session="s", **options) as publisher:
            publisher.append(b"a")
            wait_for(lambda: "t" in cluster.topics and bool(cluster.inputs), "the topic")
            cluster.merges = True
            nodes.do(lambda: cluster.delete_topic("t"))
            publisher.wait_merged(timeout=PATIENCE_S)
            publisher.append(b"b")
            publisher.wait_merged(timeout=PATIENCE_S)
            data = nodes.world.nodes[0].intake.run("s", ("t", 0)).files[0]
            records = kernels.decode_records(bytes(data), 0, len(data), "t", 0, decompress)
            assert [bytes(record.value or b"") for record in records] == merged


def test_one_session_is_shipped_once(tmp_path: Path) -> None:
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        directory = tmp_path / "sessions"
        with Publisher("t", session="s", directory=directory, config=config, ship=False) as quiet:
            quiet.append(b"a")

            async def main() -> None:
                sidecar = make_sidecar(directory, config)
                sidecar.start()
                await until(lambda: len(sidecar.clients) == 1)
                quiet.close()
                with pytest.raises(DirectoryInUse, match="ship=False"):
                    await asyncio.to_thread(
                        Publisher, "t", session="s", directory=directory, config=config
                    )
                await sidecar.stop()

            asyncio.run(main())
        Publisher("t", session="s", directory=directory, config=config).close()


def make_sidecar(directory: Path, config: ClientConfig) -> PublisherSidecar:
    return PublisherSidecar(
        str(directory),
        config,
        tls=ReloadingContext(config.tls),
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=random.Random(1),
    )


def test_a_sidecar_ships_old_and_new_sessions_and_takes_over(tmp_path: Path) -> None:
    directory = tmp_path / "sessions"

    def publish(session: str, *, config: ClientConfig | None = None) -> Publisher:
        publisher = Publisher("t", session=session, directory=directory, config=config)
        publisher.append(session.encode())
        return publisher

    with running(tmp_path) as nodes:
        config = nodes.world.config()

        def merged(session: str) -> bool:
            cluster = nodes.world.cluster
            number = cluster.inputs.get((session, cluster.topics.get("t", ""), 0))
            return number is not None and cluster.merged.get((number, 0), (0, 0)) > (0, 0)

        async def main() -> None:
            publish("old").close()
            embedded = publish("embedded", config=config)
            sidecar = make_sidecar(directory, config)
            sidecar.start()
            await until(lambda: merged("old"))
            new = await asyncio.to_thread(publish, "new")
            await until(lambda: merged("new"))
            assert {Path(path).name for path in sidecar.clients} == {"old", "new"}
            await asyncio.to_thread(embedded.close)
            await until(lambda: len(sidecar.clients) == 3)
            new.close()
            await sidecar.stop()

        asyncio.run(main())


def test_a_session_that_took_the_place_of_another_one_is_shipped_and_kept(tmp_path: Path) -> None:
    """The disk is unmounted, and a program goes on in the directory below it."""
    directory, aside = tmp_path / "sessions", tmp_path / "aside"

    def write(session: str) -> None:
        with Publisher("t", session=session, directory=directory) as publisher:
            publisher.append(session.encode())

    with running(tmp_path) as nodes:
        config = nodes.world.config()

        def is_merged(sidecar: PublisherSidecar, session: str) -> bool:
            client = sidecar.clients.get(str(directory / session))
            parts = () if client is None else client.progress.values()
            return any(part.merged > (0, 0, 0) for part in parts)

        def trouble(sidecar: PublisherSidecar) -> Trouble | None:
            sidecar.rescan()
            return sidecar.directory.trouble

        async def main() -> None:
            await asyncio.to_thread(write, "first")
            sidecar = make_sidecar(directory, config)
            sidecar.start()
            await until(lambda: is_merged(sidecar, "first"))
            sidecar.rescan()
            directory.rename(aside)
            sidecar._rescan_sessions()  # the watch may be the first to notice
            assert trouble(sidecar) is Trouble.GONE
            await asyncio.to_thread(write, "other")
            assert trouble(sidecar) is Trouble.REPLACED
            await until(lambda: is_merged(sidecar, "other"))
            await asyncio.to_thread(write, "first")
            kept = directory / "first" / "t-0" / "log.0.0"
            sidecar.rescan()
            await until(lambda: sidecar.clients.get(str(directory / "first")) is not None)
            client = sidecar.clients[str(directory / "first")]
            await until(lambda: "SESSION_CONFLICT" in str(client.status.nodes[0].last_error))
            assert kept.stat().st_size > 0, "nobody has merged it"
            shutil.rmtree(directory)
            aside.rename(directory)
            assert trouble(sidecar) is None
            await until(lambda: is_merged(sidecar, "first"))
            await sidecar.stop()

        asyncio.run(main())


def test_a_new_session_is_taken_up_without_a_look_at_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "sessions"

    def write(session: str) -> None:
        with Publisher("t", session=session, directory=directory) as publisher:
            publisher.append(b"x")

    with running(tmp_path) as nodes:
        config = nodes.world.config()

        async def main() -> None:
            await asyncio.to_thread(write, "first")
            sidecar = make_sidecar(directory, config)
            sidecar.start()
            assert list(sidecar.clients) == [str(directory / "first")]
            with monkeypatch.context() as patch:
                patch.setattr(sidecar, "_rescan_sessions", None)
                await asyncio.to_thread(write, "second")
                (directory / "no-session").mkdir()
                sidecar._root_changed()
                assert list(sidecar.clients) == [str(directory / s) for s in ("first", "second")]
            await sidecar.stop()

        asyncio.run(main())


def test_looks_at_all_directories_take_a_bounded_share_of_the_time() -> None:
    assert rescan_pause_s(0.001) == RESCAN_S
    assert rescan_pause_s(0.5) == pytest.approx(25)


def test_a_session_that_cannot_be_shipped_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as nodes:
        config = nodes.world.config()

        async def main() -> None:
            (tmp_path / "sessions" / "bad").mkdir(parents=True)
            (tmp_path / "sessions" / "bad" / "session.json").write_text("no JSON")
            sidecar = make_sidecar(tmp_path / "sessions", config)
            sidecar.start()
            sidecar.rescan()
            [(path, why)] = sidecar.faults.items()
            assert (Path(path).name, "session.json" in why) == ("bad", True)
            shutil.rmtree(path)
            sidecar.rescan()
            assert not sidecar.faults
            await sidecar.stop()

        asyncio.run(main())
    said = [record for record in caplog.records if "cannot be shipped" in record.message]
    assert len(said) == 1


def test_sessions_are_found_at_any_depth_but_not_within_each_other(tmp_path: Path) -> None:
    for place in ("a", "b/c", "a/inner", "d"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("a", "b/c", "a/inner"):
        (tmp_path / place / "session.json").touch()
    assert sorted(find_sessions(str(tmp_path))) == [str(tmp_path / "a"), str(tmp_path / "b/c")]
    assert list(find_sessions(str(tmp_path / "none"))) == []


def test_an_event_loop_waits_for_the_merge(tmp_path: Path) -> None:
    with running(tmp_path) as nodes:
        config = nodes.world.config()

        async def main() -> None:
            async with AsyncPublisher(
                "t", session="s", directory=tmp_path, config=config
            ) as publisher:
                await publisher.append(b"a")
                await publisher.wait_merged(timeout=PATIENCE_S)
                nodes.world.cluster.merges = False
                await publisher.append(b"b")
                with pytest.raises(NotMerged):
                    await publisher.wait_merged(timeout=0.4)
                waiting = asyncio.ensure_future(publisher.wait_merged())
                await asyncio.sleep(0.1)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                nodes.world.cluster.merges = True
                nodes.do(nodes.world.nodes[0].intake.move_soon)
                await publisher.wait_merged(timeout=PATIENCE_S)

        asyncio.run(main())


def left_by_an_earlier_run(directory: Path, *, roll_bytes: int = 4 << 10) -> None:
    """20 records of another topic that nobody has shipped, in several files."""
    with Publisher("old", session="s", directory=directory, roll_bytes=roll_bytes) as publisher:
        for _ in range(20):
            publisher.append(bytes(1000))


def test_what_earlier_runs_left_is_waited_for_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left_by_an_earlier_run(tmp_path)
    left_by_an_earlier_run(tmp_path)
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        nodes.stop_nodes()
        publisher = Publisher("t", session="s", directory=tmp_path, config=config)
        assert "old-0 is not merged yet (its log ends at byte" in not_merged(publisher)
        nodes.start_nodes()
        publisher.wait_merged(timeout=PATIENCE_S)
        merged = publisher.positions.merged[TopicPartition("old", 0)]
        assert merged.run == 1
        publisher.close(timeout=PATIENCE_S)
        nodes.stop_nodes()
    left_by_an_earlier_run(tmp_path)
    with caplog.at_level(logging.WARNING, "samelog.publisher"):
        Publisher("t", session="s", directory=tmp_path, config=config).close(timeout=0.1)
    assert "closed before all is shipped: old-0 is not acknowledged yet" in caplog.text


def test_a_run_that_ended_behind_a_roll_is_waited_for_up_to_its_last_byte(tmp_path: Path) -> None:
    """The file that was begun last may be empty: no node ever tells a position in it."""
    left_by_an_earlier_run(tmp_path)
    directory = SessionDirectory.open(OsFileSystem(), tmp_path / "s")
    last = int(reading.log_names(tmp_path / "s", "old")[-1].split(".sealed-")[0].rsplit(".", 1)[1])
    directory.end_run(0, {"old-0": (last + 1, 0)})
    (tmp_path / "s" / "old-0" / f"log.0.{last + 1}").touch()
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        with Publisher("t", session="s", directory=tmp_path, config=config) as publisher:
            publisher.wait_merged(timeout=PATIENCE_S)


def test_what_was_left_and_was_never_merged_is_not_called_merged(tmp_path: Path) -> None:
    """Another host has gone on with the session, so the cluster has closed the older run."""
    left_by_an_earlier_run(tmp_path)
    with running(tmp_path) as nodes:
        nodes.world.cluster.merges = False
        publisher = Publisher("t", session="s", directory=tmp_path, config=nodes.world.config())
        with pytest.raises(ShippingStopped, match="closed run 0 of old-0 at 0:0"):
            publisher.wait_merged(timeout=PATIENCE_S)
        publisher.close(timeout=1)


def test_a_closed_publisher_leaves_no_files(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        config = nodes.world.config()
        publisher = Publisher("t", session="s", directory=tmp_path, config=config)
        publisher.append(b"a")
        publisher.close(timeout=PATIENCE_S)
        assert reading.log_names(tmp_path / "s") == []


def keyed(publisher: Publisher, count: int) -> None:
    for number in range(count):
        publisher.append(b"v", key=str(number).encode())


def partitions_of(publisher: Publisher) -> set[int]:
    return {name.partition for name in publisher.positions.appended}


def test_a_topic_is_created_with_the_number_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, 3) as nodes:
        config, counts = nodes.world.config(), nodes.world.cluster.counts
        with Publisher(
            "t", session="s", directory=tmp_path, config=config, partitions=3
        ) as publisher:
            keyed(publisher, 30)
            publisher.append(b"u", topic="u")
            publisher.wait_merged(timeout=PATIENCE_S)
            assert (counts, partitions_of(publisher)) == ({"t": 3, "u": 3}, {0, 1, 2})


def test_a_topics_partitions_count_not_the_publishers_idea(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as nodes, caplog.at_level(logging.WARNING, "samelog.publisher"):
        config = nodes.world.config()
        nodes.world.cluster.counts["t"] = 4
        for given in (None, 4, 2, 6):
            with Publisher(
                "t", session=f"s{given or 0}", directory=tmp_path, config=config, partitions=given
            ) as publisher:
                keyed(publisher, 30)
                assert partitions_of(publisher) == {0, 1, 2, 3}
                with pytest.raises(ValueError, match="partition 5 is not one of the 4 of topic"):
                    publisher.append(b"x", partition=5)
    assert [record.getMessage() for record in caplog.records] == [
        f"topic t has 4 partitions, the publisher was given {given}: 4 count" for given in (2, 6)
    ]


def test_partitions_that_are_added_count_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "TOPICS_AGAIN_S", 0.0)
    monkeypatch.setattr(push_connections, "POLLS_PER_LOOK", 1)
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        with Publisher("t", session="s", directory=tmp_path, config=config) as publisher:
            keyed(publisher, 30)
            assert partitions_of(publisher) == {0}
            nodes.world.cluster.counts["t"] = 3

            def has_grown() -> bool:
                keyed(publisher, 30)
                return partitions_of(publisher) == {0, 1, 2}

            wait_for(has_grown, "the new partitions")
            for _ in range(300):
                publisher.append(bytes(1000))
            publisher.wait_merged(timeout=PATIENCE_S)


def test_ids_stay_in_their_partitions_whatever_the_topic_has(tmp_path: Path) -> None:
    """Another publisher of the same ids may not have heard of the new partitions."""
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        nodes.world.cluster.counts["t"] = 4
        with Publisher(
            "t", session="s", directory=tmp_path, config=config, partitions=2, dedup_id="d"
        ) as publisher:
            for number in range(30):
                publisher.append(b"v", key=str(number).encode(), id=number)
            assert partitions_of(publisher) == {0, 1}


def test_nobody_waits_for_nodes_that_are_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper, "LEARN_S", 10 * PATIENCE_S)
    with running(tmp_path) as nodes:
        config = nodes.world.config()
        nodes.stop_nodes()
    publisher = Publisher("t", session="s", directory=tmp_path, config=config, partitions=3)
    keyed(publisher, 30)
    assert partitions_of(publisher) == {0, 1, 2}
    publisher.close(timeout=0)
