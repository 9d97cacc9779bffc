"""A subscriber that keeps its copies, and the sidecar: pretended nodes behind real connections."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from samelog import Subscriber
from samelog.config.authorisation import Rights
from samelog.config.tables.node import Grant
from samelog.format import _kernels as kernels
from samelog.format.errors import DirectoryInUse
from samelog.replicator.client_errors import TopicDeleted
from samelog.runtime.clock import SystemClock
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber import (
    CopyStopped,
    NotCaughtUp,
    OffsetOutOfRange,
    UnknownTopic,
    engine,
)
from samelog.subscriber.sidecar import SubscriberSidecar
from samelog.subscriber.tail_reader import Chunk, TailReader
from samelog.subscriber.waiter import Waiter
from samelog.wire.pull.copies import CopyState
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S
from tests.publisher.nodes import Nodes, running
from tests.replicator.fake_source import FakeSource, segment_files
from tests.runtime.peers import until
from tests.runtime.test_inotify import instances
from tests.subscriber.merged import Growing, numbers

TOPIC = "flights"


class Copying:
    """One node with a log of one partition, and subscribers of it."""

    def __init__(self, path: Path, nodes: Nodes, source: FakeSource) -> None:
        self.path = path
        self.nodes = nodes
        self.source = source
        self.config = nodes.world.config()

    def merge(self, start: int, stop: int) -> None:
        """The node merges the numbers [start, stop), each at its own time in seconds."""
        data = kernels.build_batches(
            numbers(start, stop),
            timestamps=[number * 1000 for number in range(start, stop)],
            batch_bytes=500,
            max_record_bytes=1000,
        )
        self.nodes.do(lambda: self.source.merged[0].append(data))

    def subscriber(self, name: str = "copy", **options: Any) -> Subscriber:
        """A subscriber with a directory of its own."""
        return Subscriber(TOPIC, directory=self.path / name, config=self.config, **options)

    def roll(self) -> None:
        """The node begins another segment."""
        self.nodes.do(self.source.merged[0].roll)


@contextmanager
def copying(path: Path, count: int = 100) -> Iterator[Copying]:
    """A node that has merged `count` records, in two segments."""
    source = FakeSource(path / "node", partitions=1)
    with running(path, source=source) as nodes:
        made = Copying(path, nodes, source)
        made.merge(0, count // 2)
        made.roll()
        made.merge(count // 2, count)
        yield made


def read(subscriber: Subscriber, count: int) -> list[bytes | None]:
    """The next `count` values."""
    found: list[bytes | None] = []

    def more() -> bool:
        found.extend(record.value for record in subscriber.batch(count - len(found), timeout=0.5))
        return len(found) == count

    wait_for(more, "the records")
    return found


def test_copies_that_are_kept_here_are_read_without_being_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "RESCAN_S", 10 * PATIENCE_S)
    with copying(tmp_path, 1) as world:
        before, begin = instances(), time.monotonic()
        with world.subscriber(start="earliest") as subscriber:
            for number in range(5):
                record = subscriber.poll(PATIENCE_S)
                assert record is not None
                assert record.value == numbers(number, number + 1)[0]
                monkeypatch.setattr(Waiter, "wake_to_rescan", lambda self: None)
                if number == 2:
                    world.roll()
                world.merge(number + 1, number + 2)
            assert instances() == before
            assert time.monotonic() - begin < PATIENCE_S, "it was not woken: the time was over"


def test_a_copy_that_has_not_grown_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Chunk | None] = []
    original = TailReader.read

    def counted(self: TailReader, limit_bytes: int) -> Chunk | None:
        chunk = original(self, limit_bytes)
        found.append(chunk)
        return chunk

    with copying(tmp_path, 2) as world, world.subscriber(start="earliest") as subscriber:
        assert read(subscriber, 2) == numbers(0, 2)
        assert subscriber.batch(1, timeout=0.0) == []
        monkeypatch.setattr(TailReader, "read", counted)
        for number in range(2, 5):
            assert subscriber.batch(1, timeout=0.0) == []
            assert None not in found
            world.merge(number, number + 1)
            assert read(subscriber, 1) == numbers(number, number + 1)


def test_records_come_from_the_cluster_and_follow_it(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber() as subscriber:
        assert read(subscriber, 100) == numbers(0, 100)
        wait_for(lambda: subscriber.caught_up, "caught up")
        made.merge(100, 120)
        assert read(subscriber, 20) == numbers(100, 120)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("latest", 100),
        (30, 30),
        (70, 70),
        (100, 100),
        ({0: 60}, 60),
        (datetime.fromtimestamp(55, UTC), 55),
        (datetime.fromtimestamp(5000, UTC), 100),
    ],
)
def test_a_copy_begins_where_the_subscriber_starts(tmp_path: Path, start: Any, first: int) -> None:
    with copying(tmp_path) as made:
        with made.subscriber(start=start) as subscriber:
            subscriber.wait_caught_up(timeout=PATIENCE_S)
            made.merge(100, 110)
            assert read(subscriber, 110 - first) == numbers(first, 110)
        with made.subscriber(start=start) as again:
            again.wait_caught_up(timeout=PATIENCE_S)
            made.merge(110, 120)
            is_at_end = not isinstance(start, int) and first == 100
            expected = 110 if is_at_end else first
            assert read(again, 120 - expected) == numbers(expected, 120)


def test_not_following_ends_at_the_clusters_end(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        for _ in range(2):
            with made.subscriber(follow=False) as subscriber:
                assert [record.value for record in subscriber] == numbers(0, 100)


def test_a_named_subscriber_goes_on_from_a_new_copy(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        with made.subscriber(name="copy") as subscriber:
            assert read(subscriber, 60) == numbers(0, 60)
        with Subscriber(
            TOPIC, directory=tmp_path / "copy", config=made.config, name="n"
        ) as subscriber:
            assert read(subscriber, 60) == numbers(0, 60)
            subscriber.commit()
        with Subscriber(
            TOPIC, directory=tmp_path / "copy", config=made.config, name="n"
        ) as subscriber:
            assert read(subscriber, 40) == numbers(60, 100)


def test_an_offset_that_no_node_has_is_refused(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        with (
            made.subscriber(start=1000) as subscriber,
            pytest.raises(OffsetOutOfRange, match=r"1000 is not in \[0, 100\]"),
        ):
            subscriber.batch(timeout=PATIENCE_S)
        with made.subscriber("other", start=1000, auto_offset_reset="earliest") as subscriber:
            assert read(subscriber, 100) == numbers(0, 100)


def test_a_node_hears_of_a_damaged_batch_that_it_has_sent(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        stream = made.source.merged[0]
        file = next(stream.path.glob("*.log"))
        spoilt = bytearray(file.read_bytes())
        spoilt[100] ^= 1
        with file.open("r+b") as same:
            same.write(spoilt)
        with made.subscriber():
            wait_for(lambda: stream.suspicions > 0, "the node hears of it")


def test_what_is_here_can_be_read_without_the_cluster(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        with made.subscriber() as subscriber:
            read(subscriber, 100)
        made.nodes.stop_nodes()
        with made.subscriber() as subscriber:
            assert read(subscriber, 100) == numbers(0, 100)
            assert not subscriber.caught_up
            with pytest.raises(NotCaughtUp, match=r"flights-0 is waiting.*not connected to 127"):
                subscriber.wait_caught_up(timeout=0.5)
            made.nodes.start_nodes()
            subscriber.wait_caught_up(timeout=PATIENCE_S)


def test_a_topic_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with (
        copying(tmp_path) as made,
        Subscriber("other", directory=tmp_path / "c", config=made.config) as subscriber,
    ):
        assert subscriber.batch(timeout=0.3) == []
        with pytest.raises(TimeoutError, match="topic 'other': UNKNOWN_TOPIC"):
            subscriber.wait_caught_up(timeout=0.1)


def test_a_topic_that_is_not_there_is_an_error_where_nothing_is_waited_for(tmp_path: Path) -> None:
    with (
        copying(tmp_path) as made,
        Subscriber(
            "other", directory=tmp_path / "c", config=made.config, follow=False
        ) as subscriber,
        pytest.raises(UnknownTopic, match="other"),
    ):
        subscriber.batch(timeout=PATIENCE_S)


def test_the_end_of_a_reader_is_the_clusters(tmp_path: Path) -> None:
    with copying(tmp_path, 10) as made:
        made.source.merged[0].committed = 18
        with made.subscriber(follow=False) as subscriber:
            assert read(subscriber, 10) == numbers(0, 10)
            assert not subscriber.is_over
            with pytest.raises(NotCaughtUp):
                subscriber.wait_caught_up(timeout=0.1)
            made.merge(10, 20)
            assert [record.value for record in subscriber] == numbers(10, 18)
            subscriber.wait_caught_up(timeout=PATIENCE_S)


def test_without_a_leader_records_come_and_no_end_is_called_one(tmp_path: Path) -> None:
    with copying(tmp_path, 10) as made:
        made.source.leaderless = True
        with made.subscriber("live") as live, made.subscriber("short", follow=False) as short:
            assert read(live, 10) == numbers(0, 10)

            def says_why() -> bool:
                with pytest.raises(NotCaughtUp) as told:
                    short.wait_caught_up(timeout=0.1)
                return "no leader has answered" in str(told.value)

            wait_for(says_why, "why it is not known")
            assert short.batch(timeout=0.1) == []
            assert not short.is_over
            made.source.leaderless = False
            assert [record.value for record in short] == numbers(0, 10)
            live.wait_caught_up(timeout=PATIENCE_S)


def test_the_end_is_the_clusters_not_that_of_a_node_that_lags(tmp_path: Path) -> None:
    with copying(tmp_path, 50) as made:
        made.source.merged[0].committed = 100
        with made.subscriber(start="latest") as subscriber:
            assert subscriber.batch(timeout=0.1) == []
            made.merge(50, 110)
            assert read(subscriber, 10) == numbers(100, 110)


@pytest.fixture
def probing_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscribers ask soon whether a topic has more partitions."""
    monkeypatch.setattr("samelog.wire.pull.receiver.PROBE_S", 0.2)


def add_partition(made: Copying, count: int) -> None:
    """The topic gets a partition, which has records before any reader hears of it."""

    def add() -> None:
        made.source.add_partition(made.path / "node" / "flights-1")
        made.source.merged[1].append(
            kernels.build_batches(
                numbers(0, count), timestamps=1, batch_bytes=500, max_record_bytes=1000
            )
        )

    made.nodes.do(add)


@pytest.mark.usefixtures("probing_often")
def test_an_added_partition_is_read_from_its_start(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber(start="latest") as subscriber:
        subscriber.wait_caught_up(PATIENCE_S)
        assert subscriber.batch(timeout=0.1) == []
        add_partition(made, 30)
        assert read(subscriber, 30) == numbers(0, 30)


@pytest.mark.usefixtures("probing_often")
@pytest.mark.parametrize("is_away", [False, True])
def test_a_sidecar_has_an_added_partition_from_its_start(tmp_path: Path, *, is_away: bool) -> None:
    """Also if it is added while the sidecar does not run."""
    with copying(tmp_path) as made:

        async def main() -> None:
            sidecar = make_sidecar(made, from_latest=True)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            if is_away:
                await sidecar.stop()
            add_partition(made, 30)
            if is_away:
                sidecar = make_sidecar(made, from_latest=True)
                sidecar.start()
            await until(lambda: (TOPIC, 1) in sidecar.copies)
            copy = sidecar.copies[TOPIC, 1]
            await until(lambda: copy.caught_up)
            assert (copy.wanted_offset, copy.log.next_offset) == (0, 30)
            await sidecar.stop()

        asyncio.run(main())


def test_a_deleted_topic_is_told_after_its_records(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber() as subscriber:
        read(subscriber, 100)
        made.merge(100, 110)
        wait_for(lambda: bool(subscriber.batch(1, timeout=0.1)), "a record")
        made.nodes.do(made.source.delete)
        assert read(subscriber, 9) == numbers(101, 110)
        with pytest.raises(TopicDeleted, match="topic 'flights' was deleted"):
            subscriber.batch(timeout=PATIENCE_S)


def test_a_sidecar_warns_of_a_deleted_topic(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its readers know no cluster: the copy just stops growing."""
    with copying(tmp_path) as made, caplog.at_level(logging.WARNING, "samelog"):

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            made.nodes.do(made.source.delete)
            await until(lambda: "move it away and restart" in caplog.text)
            [copy] = sidecar.copies.values()
            assert (copy.state, copy.log.next_offset) == (CopyState.GONE, 100)
            await sidecar.stop()

        asyncio.run(main())
    assert caplog.text.count("flights-0 is copied no more") == 1


@contextmanager
def deleted_copy(path: Path) -> Iterator[Copying]:
    """A sidecar's copy in `kept`, whose topic was deleted."""
    with copying(path) as made:

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            made.nodes.do(made.source.delete)
            await until(lambda: [copy.log.is_deleted for copy in sidecar.copies.values()] == [True])
            await sidecar.stop()

        asyncio.run(main())
        yield made


def test_a_reader_of_a_sidecars_copy_stops_when_the_topic_is_deleted(tmp_path: Path) -> None:
    """It knows no cluster: the copy's directory tells it, after the last record."""
    with copying(tmp_path) as made:

        def read_all(reader: Subscriber) -> None:
            assert read(reader, 100) == numbers(0, 100)
            assert reader.batch(timeout=0.0) == []
            made.nodes.do(made.source.delete)
            with pytest.raises(TopicDeleted, match=r"'flights' was deleted.*move the copy away"):
                reader.batch(timeout=PATIENCE_S)

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            with Subscriber(TOPIC, directory=tmp_path / "kept") as reader:
                await asyncio.to_thread(read_all, reader)
            await sidecar.stop()

        asyncio.run(main())


def test_a_copy_of_a_deleted_topic_is_read_to_its_end(tmp_path: Path) -> None:
    with deleted_copy(tmp_path):
        with Subscriber(TOPIC, directory=tmp_path / "kept", follow=False) as reader:
            assert [record.value for record in reader] == numbers(0, 100)
        with Subscriber(TOPIC, directory=tmp_path / "kept", isolation="read_committed") as reader:
            assert read(reader, 100) == numbers(0, 100)
            with pytest.raises(TopicDeleted):
                reader.batch(timeout=PATIENCE_S)


def test_a_pattern_leaves_a_deleted_copy_and_reads_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "kept"
    with deleted_copy(tmp_path), Subscriber("fl*", directory=kept) as reader:
        assert read(reader, 100) == numbers(0, 100)
        wait_for(lambda: reader.batch(timeout=0.1) == [] and "move the copy" in caplog.text, "left")
        (kept / f"{TOPIC}-0").rename(tmp_path / "old")
        new = Growing(kept, TOPIC, topic_id="id-2")
        new.count(0, 5)
        assert read(reader, 5) == numbers(0, 5)
        assert not new.log.is_deleted
    assert caplog.text.count("was deleted or created again; all records") == 1


def test_records_that_come_with_the_mark_are_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Growing(tmp_path, TOPIC)
    held.count(0, 5)
    with Subscriber(TOPIC, directory=tmp_path) as reader:
        assert read(reader, 5) == numbers(0, 5)
        assert reader.batch(timeout=0.0) == []
        held.count(5, 10)
        held.log.mark_deleted(is_deleted=True)
        with monkeypatch.context() as at_once:
            at_once.setattr(time, "monotonic", lambda: 1e12)
            for _ in range(3):
                reader.prepare_wait()  # watches the files, then looks again
        reader._engine.rescan_soon()
        assert read(reader, 5) == numbers(5, 10)
        with pytest.raises(TopicDeleted):
            reader.batch(timeout=PATIENCE_S)


def test_no_partition_is_left_while_another_node_may_send_more_of_it(tmp_path: Path) -> None:
    """The nodes that the partitions are copied from learn of the deletion at different times."""
    first, second = (Growing(tmp_path, TOPIC, partition) for partition in range(2))
    first.count(0, 5)
    second.count(0, 5)
    with Subscriber(TOPIC, directory=tmp_path) as reader:
        assert set(read(reader, 10)) == set(numbers(0, 5))
        first.log.mark_deleted(is_deleted=True)
        reader._engine.rescan_soon()
        assert reader.batch(timeout=0.0) == []
        second.count(5, 10)
        assert read(reader, 5) == numbers(5, 10)
        second.log.mark_deleted(is_deleted=True)
        with pytest.raises(TopicDeleted):
            reader.batch(timeout=PATIENCE_S)


def test_a_topic_that_a_restored_cluster_serves_again_is_copied_on(tmp_path: Path) -> None:
    with deleted_copy(tmp_path) as made:
        made.nodes.do(lambda: setattr(made.source.merged[0], "fault", None))

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await asyncio.to_thread(made.merge, 100, 110)
            await until(
                lambda: (
                    [c.log.is_deleted for c in sidecar.copies.values()] == [False]
                    and sidecar.copies[TOPIC, 0].log.next_offset == 110
                )
            )
            await sidecar.stop()

        asyncio.run(main())
        with Subscriber(TOPIC, directory=tmp_path / "kept") as reader:
            assert read(reader, 110) == numbers(0, 110)
            reader.batch(timeout=0.0)


def test_who_may_not_subscribe_is_told(tmp_path: Path) -> None:
    source = FakeSource(tmp_path / "node", partitions=1)
    with running(tmp_path, source=source) as nodes:
        nodes.world.nodes[0].rights = Rights((Grant(identity="samelog://publisher/x"),), ["n0"])
        with (
            Subscriber(TOPIC, directory=tmp_path / "c", config=nodes.world.config()) as subscriber,
            pytest.raises(CopyStopped, match="NOT_AUTHORISED"),
        ):
            subscriber.batch(timeout=PATIENCE_S)


def test_one_process_keeps_a_directorys_copies(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber():
        with pytest.raises(DirectoryInUse):
            made.subscriber()
        with Subscriber(TOPIC, directory=tmp_path / "copy") as reader:
            assert read(reader, 100) == numbers(0, 100)


def make_sidecar(made: Copying, **options: Any) -> SubscriberSidecar:
    """One that keeps copies in `kept`."""
    return SubscriberSidecar(
        str(made.path / "kept"),
        (TOPIC,),
        made.config,
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=random.Random(1),
        **options,
    )


@pytest.mark.parametrize("from_latest", [False, True])
def test_a_sidecar_keeps_copies_for_local_subscribers(tmp_path: Path, *, from_latest: bool) -> None:
    with copying(tmp_path) as made:

        async def main() -> None:
            sidecar = make_sidecar(made, from_latest=from_latest)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            await asyncio.to_thread(read_kept)
            await sidecar.stop()

        def read_kept() -> None:
            with Subscriber(TOPIC, directory=tmp_path / "kept") as reader:
                made.merge(100, 110)
                first = 50 if from_latest else 0
                assert read(reader, 110 - first) == numbers(first, 110)

        asyncio.run(main())


def test_a_sidecar_goes_on_where_its_copies_end_when_the_directory_is_back(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        kept, aside = tmp_path / "kept", tmp_path / "aside"

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()

            def has(count: int) -> bool:
                return [copy.log.next_offset for copy in sidecar.copies.values()] == [count]

            await until(lambda: has(100))
            await sidecar.check_directory()
            kept.rename(aside)
            await sidecar.check_directory()
            assert (dict(sidecar.copies), sidecar.status) == ({}, None)
            assert "is not there" in sidecar.fault
            kept.mkdir()
            await sidecar.check_directory()
            assert "another directory is in its place" in sidecar.fault
            kept.rmdir()
            aside.rename(kept)
            await asyncio.to_thread(made.merge, 100, 110)
            await sidecar.check_directory()
            assert sidecar.fault == ""
            await until(lambda: has(110))
            shutil.rmtree(kept / f"{TOPIC}-0")  # an operator wants a new copy
            await sidecar.check_directory()
            await until(lambda: has(110))
            await sidecar.stop()

        asyncio.run(main())
        with Subscriber(TOPIC, directory=kept) as reader:
            assert read(reader, 110) == numbers(0, 110)


def test_a_directory_that_is_swapped_between_two_looks_gets_no_hole(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        kept = tmp_path / "kept"

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            await sidecar.check_directory()
            shutil.copytree(kept, tmp_path / "restored")
            kept.rename(tmp_path / "aside")
            (tmp_path / "restored").rename(kept)
            await sidecar.check_directory()
            await asyncio.to_thread(made.merge, 100, 110)
            await asyncio.to_thread(made.roll)
            await asyncio.to_thread(made.merge, 110, 120)
            await until(lambda: [copy.log.next_offset for copy in sidecar.copies.values()] == [120])
            assert sidecar.fault == ""
            with pytest.raises(DirectoryInUse):
                OsFileSystem().lock(kept / "copies.lock")
            await sidecar.stop()

        asyncio.run(main())
        assert segment_files(kept / f"{TOPIC}-0") == made.source.merged[0].files()


def test_an_embedded_copy_stops_when_others_are_in_its_place(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber() as subscriber:
        subscriber.wait_caught_up(timeout=PATIENCE_S)
        copy = tmp_path / "copy"
        shutil.copytree(copy, tmp_path / "restored")
        copy.rename(tmp_path / "aside")
        (tmp_path / "restored").rename(copy)
        before = segment_files(copy / f"{TOPIC}-0")
        made.merge(100, 110)
        made.roll()
        made.merge(110, 120)

        def stopped() -> bool:
            try:
                subscriber.batch(timeout=0.1)
            except CopyStopped as error:
                return "replaced or unmounted while it was in use" in str(error)
            return False

        wait_for(stopped, "it says so")
        assert segment_files(copy / f"{TOPIC}-0") == before


def test_a_directory_is_known_by_copies_of_topics_that_are_copied_no_more(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        kept, aside = tmp_path / "kept", tmp_path / "aside"

        async def main() -> None:
            sidecar = make_sidecar(made)
            sidecar.start()
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            await sidecar.check_directory()
            sidecar.apply_config(made.config, ("other",))
            await until(lambda: not sidecar.copies)
            await sidecar.check_directory()
            assert sidecar.fault == ""
            kept.rename(aside)
            kept.mkdir()
            await sidecar.check_directory()
            assert "another directory is in its place" in sidecar.fault
            kept.rmdir()
            shutil.copytree(aside, kept)  # as a mount that has another number than before
            sidecar.apply_config(made.config, (TOPIC,))
            await sidecar.check_directory()
            assert sidecar.fault == ""
            await until(lambda: [copy.caught_up for copy in sidecar.copies.values()] == [True])
            await sidecar.stop()

        asyncio.run(main())


def test_what_a_fresh_copy_has_caught_up_with_is_present(tmp_path: Path) -> None:
    with copying(tmp_path) as made, made.subscriber(start="earliest") as subscriber:
        subscriber.wait_caught_up(timeout=PATIENCE_S)
        assert [record.value for record in subscriber.present()] == numbers(0, 100)


def test_copies_keep_within_their_budget(tmp_path: Path) -> None:
    with copying(tmp_path) as made:
        limited = replace(made.config.subscriber, budget_bytes=1)
        made.config = replace(made.config, subscriber=limited)
        first = tmp_path / "copy" / f"{TOPIC}-0" / f"{0:020d}.log"
        newest = first.with_name(f"{50:020d}.log")
        with made.subscriber(start="earliest") as subscriber:
            subscriber.wait_caught_up(timeout=PATIENCE_S)
            wait_for(lambda: first.stat().st_size == 0, "the old file is empty")
            made.merge(100, 110)
            wait_for(lambda: b"109" in newest.read_bytes(), "copying goes on")
        with Subscriber(TOPIC, directory=tmp_path / "copy") as reader:
            assert read(reader, 60) == numbers(50, 110)
