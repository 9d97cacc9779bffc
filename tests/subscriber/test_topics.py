"""What topics patterns mean, and topics that come while a subscriber runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog import Subscriber
from samelog.admin.answers import TopicInfo, Topics
from samelog.admin.requests import ListTopics
from samelog.config.load import load_client
from samelog.format.errors import InvalidName
from samelog.replicator.pull.copy_directory import CopyDirectory
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.start import EARLIEST, LATEST, AutoOffsetReset, StartFinder
from samelog.subscriber.topics.chosen import parse_topics
from samelog.subscriber.topics.watching import TopicWatch
from samelog.wire.pull.copies import CopyState
from tests.cli.fake_nodes import FakeCluster
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing

NAMES = ("ed1", "ed2", "edx", "red", "e.d", "__events", "__consumer_offsets")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ed*", "ed1 ed2 edx"),
        ("ed?", "ed1 ed2 edx"),
        ("e.?", "e.d"),
        ("*d", "red e.d"),
        ("*", "ed1 ed2 edx red e.d"),
        ("__*", "__events __consumer_offsets"),
        ("re:ed[0-9]", "ed1 ed2"),
        ("re:r?e.*", "ed1 ed2 edx red e.d"),
        ("re:__e.*", "__events"),
        ("re:ed", ""),
    ],
)
def test_a_pattern_means_whole_names(text: str, meant: str) -> None:
    assert parse_topics([text]).unknown(NAMES) == meant.split()


@pytest.mark.parametrize("text", ["ed/*", "*é", "re:(", "re:" + "a" * 1025, "a b*", "x" * 250])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        parse_topics([text])


def test_names_and_patterns_go_together() -> None:
    topics = parse_topics(["red", "ed*"])
    assert list(topics) == ["red"]
    topics.add(topics.unknown(NAMES))
    assert topics.names == ("red", "ed1", "ed2", "edx")
    assert topics.unknown(NAMES) == []
    assert [topics.is_by_pattern(name) for name in ("red", "ed1")] == [False, True]
    topics.drop("ed1")
    assert topics.unknown(NAMES) == ["ed1"]


def test_of_local_files_a_pattern_means_those_that_are_there(tmp_path: Path) -> None:
    Growing(tmp_path, "ed1").append(b"a")
    Growing(tmp_path, "red").append(b"b")
    with Subscriber("ed*", directory=tmp_path) as subscriber:
        assert [record.value for record in subscriber.batch(timeout=PATIENCE_S)] == [b"a"]
        Growing(tmp_path, "ed2").append(b"c")
        assert [record.value for record in subscriber.batch(timeout=PATIENCE_S)] == [b"c"]
    with Subscriber("ed*", directory=tmp_path, follow=False) as subscriber:
        assert sorted(record.topic for record in subscriber) == ["ed1", "ed2"]


def test_what_is_new_is_read_from_its_beginning() -> None:
    finder = StartFinder(LATEST, AutoOffsetReset.ERROR, None)
    finder.note_new(["new"])
    assert finder.wanted_of("new", "id", 0) == EARLIEST
    assert finder.wanted_of("old", "id", 0) == LATEST


def test_a_log_is_told_once_whatever_a_node_says_that_lags(tmp_path: Path) -> None:
    listed = {"ed1": "id-1"}

    def answer(request: object) -> Topics:
        assert isinstance(request, ListTopics)
        return Topics(tuple(TopicInfo(name, given, 1, {}) for name, given in listed.items()))

    with FakeCluster(tmp_path, 1) as cluster:
        cluster.nodes[0].answer = answer
        topics = parse_topics(["ed*"])
        watch = TopicWatch(load_client(cluster.client_file), topics)
        topics.add(watch.list_topics())
        assert topics.names == ("ed1",)
        listed.clear()  # another node, which lags
        assert watch.list_topics() == {}
        assert topics.names == ("ed1",)
        topics.drop("ed1")
        watch.deleted("ed1", "id-1")
        listed["ed1"] = "id-1"  # lags again
        assert watch.list_topics() == {}
        listed.update(ed1="id-2", ed2="id-3")
        assert watch.list_topics() == {"ed1": "id-2", "ed2": "id-3"}
        watch.disconnect()


def test_copies_of_a_topic_that_was_deleted_are_set_aside_for_the_new_one(tmp_path: Path) -> None:
    Growing(tmp_path, "ed1", 0, "id-1").append(b"old")
    Growing(tmp_path, "ed1", 1, "id-2").append(b"new")
    Growing(tmp_path, "ed2", 0, "id-3").append(b"other")
    directory = CopyDirectory(str(tmp_path), OsFileSystem(), lambda copy: None, {})
    directory.open()
    directory.find_usable(["ed1", "ed2"])
    (left,) = directory.set_aside_others("ed1", "id-2")
    assert (left.name, left.state) == (("ed1", 0), CopyState.GONE)
    copies = directory.of_topic("ed1", "id-2", 2)
    ends = {copy.name: (copy.log.topic_id, copy.log.next_offset) for copy in copies}
    assert ends == {("ed1", 0): ("id-2", 0), ("ed1", 1): ("id-2", 1)}
    assert [copy.log.next_offset for copy in directory.of_topic("ed2", "id-3", 1)] == [1]
    assert len(list((tmp_path / "replaced").iterdir())) == 1
    directory.close()
