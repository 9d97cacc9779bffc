"""Streaming queries over local copies, planned and read as Spark does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samelog.replicator.client_errors import TopicDeleted
from samelog.spark.errors import BadOption, DataLoss, SourceError, TopicNotFound
from samelog.spark.lag import lag_between
from tests.spark.local import Journal, archive, stream_reader, values
from tests.subscriber.merged import Growing, numbers


def test_latest_is_pinned_before_anything_is_read(tmp_path: Path) -> None:
    """Spark asks for the first offset again after a failure; by then "latest" would be later."""
    log = Growing(tmp_path)
    log.count(0, 10)
    journal = Journal(directory=tmp_path, subscribe="t")
    assert journal.reader.initialOffset() == journal.reader.initialOffset()
    assert journal.plan()
    log.count(10, 20)
    journal.restart()  # the empty batch had not been committed
    assert journal.read(0) == []
    assert journal.run() == [numbers(10, 20)]


def test_a_replay_reads_the_same_records(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.count(0, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 7}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    batches = journal.run()
    log.count(10, 30)
    Growing(tmp_path, partition=1).count(0, 5)
    journal.restart(maxOffsetsPerTrigger=100)
    assert [values(journal.read(batch)) for batch in range(len(batches))] == batches
    assert batches == [[], numbers(0, 7), numbers(7, 10)]


def test_limits_share_in_proportion(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 90)
    Growing(tmp_path, partition=1).count(0, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    batches = journal.run()
    assert [len(batch) for batch in batches] == [0, 40, 40, 20]
    assert batches[1] == numbers(0, 36) + numbers(0, 4)


def test_bytes_limit_a_batch_about_as_wanted(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.append(*[b"x" * 1000] * 100, batch_bytes=5000)
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": 20_000}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    sizes = [len(batch) for batch in journal.run()]
    assert sizes[0] == 0
    assert sum(sizes) == 100
    assert all(15 <= size <= 20 for size in sizes[1:-1])
    both = Journal(directory=tmp_path, subscribe="t", **options, maxOffsetsPerTrigger=7)
    assert max(len(batch) for batch in both.run()) == 7
    tiny = Journal(directory=tmp_path, subscribe="t", **options | {"maxBytesPerTrigger": 1})
    assert [len(batch) for batch in tiny.run()][1:4] == [1, 1, 1]


def test_nothing_new_is_the_same_offset_to_the_letter(tmp_path: Path) -> None:
    """Spark compares texts: another order of keys would be another, empty batch, for ever."""
    for partition in (0, 1, 2, 10):
        Growing(tmp_path, partition=partition).count(0, 3)
    journal = Journal(directory=tmp_path, subscribe="t", startingOffsets="earliest")
    journal.run()
    text = journal.texts[-1]
    assert not journal.plan()
    journal.restart()
    assert not journal.plan()
    assert json.dumps(journal.reader.latestOffset(json.loads(text))) == text
    assert list(json.loads(text)["to"]["t"]) == ["0", "1", "2", "10"]


def test_available_now_ends(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.count(0, 100)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 40}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    journal.reader.prepareForTriggerAvailableNow()
    sizes = []
    while journal.plan():
        sizes.append(len(journal.read(len(journal.texts) - 1)))
        log.count(0, 10)
    assert sizes == [0, 40, 40, 20]


def test_a_new_partition_begins_at_its_start(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 10)
    journal = Journal(directory=tmp_path, subscribe="t")
    assert journal.run() == [[]]
    Growing(tmp_path, partition=1).count(0, 5)
    journal.restart()
    assert journal.run() == [numbers(0, 5)]
    Growing(tmp_path, partition=1).log.next_offset  # noqa: B018 - it can still be opened
    assert values(journal.read(1)) == numbers(0, 5)


def test_a_new_topic_of_a_pattern_begins_at_its_start(tmp_path: Path) -> None:
    Growing(tmp_path, "a-1", topic_id="id-1").count(0, 3)
    journal = Journal(directory=tmp_path, subscribePattern="a-.*", startingOffsets="earliest")
    assert journal.run() == [[], numbers(0, 3)]
    Growing(tmp_path, "a-2", topic_id="id-2").count(0, 4)
    journal.restart()
    assert journal.run() == [numbers(0, 4)]


def test_too_little_waits(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    options = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "1h"}
    journal = Journal(directory=tmp_path, subscribe="t", startingOffsets="earliest", **options)
    log.count(0, 5)
    assert journal.run() == [[], numbers(0, 5)]  # the first one comes at once
    log.count(5, 14)
    journal.reader._seen_at = float("-inf")
    assert journal.run() == []
    log.count(14, 15)
    journal.reader._seen_at = float("-inf")
    assert journal.run() == [numbers(5, 15)]
    log.count(15, 16)
    journal.restart(maxTriggerDelay="0ms")
    assert journal.run() == [numbers(15, 16)]


def test_a_bounded_stream_ends_where_it_should(tmp_path: Path) -> None:
    log = Growing(tmp_path)
    log.append(*numbers(0, 10), timestamp=list(range(1000, 1010)), batch_bytes=100)
    times = {"startingTimestamp": 1002, "endingTimestamp": 1006}
    journal = Journal(directory=tmp_path, subscribe="t", **times)
    assert journal.run() == [[], numbers(2, 6)]


def test_progress_tells_the_end(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 10)
    reader = stream_reader(directory=tmp_path, subscribe="t", maxOffsetsPerTrigger=3)
    told = reader.reportLatestOffset()
    assert told is not None
    assert told["to"] == {"t": {"0": 10}}
    reader.stop()


def test_lag_is_what_was_not_read(tmp_path: Path) -> None:
    for partition in range(2):
        Growing(tmp_path, partition=partition).count(0, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    journal.plan()
    journal.plan()
    latest = json.dumps(journal.reader.reportLatestOffset())
    lag = lag_between(journal.texts[-1], latest)
    assert lag is not None
    assert sum(lag.values()) == 15
    others = (None, "7", '{"t": {"0": 5}}', "text", json.dumps(journal.reader.initialOffset()))
    assert all(lag_between(other, latest) is None for other in others)


# --- what goes wrong -------------------------------------------------------------------------


def test_a_topic_that_does_not_exist(tmp_path: Path) -> None:
    Growing(tmp_path)
    with pytest.raises(TopicNotFound, match="there is no topic no-such"):
        Journal(directory=tmp_path, subscribe="no-such").plan()


def test_a_range_that_is_reversed(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 10)
    bounds = {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 3}}'}
    with pytest.raises(BadOption, match="startingOffsets lies behind endingOffsets: t-0: 9 to 3"):
        Journal(directory=tmp_path, subscribe="t", **bounds).plan()


def recreated(tmp_path: Path) -> Journal:
    """A query that has read 5 records of a topic that was recreated since, with more records."""
    Growing(tmp_path).count(0, 5)
    journal = Journal(directory=tmp_path, subscribe="t", startingOffsets="earliest")
    journal.run()
    for path in sorted((tmp_path / "t-0").iterdir()):
        path.unlink()
    Growing(tmp_path, topic_id="id-2").count(100, 120)
    journal.restart()
    return journal


def test_a_recreated_topic_is_refused(tmp_path: Path) -> None:
    journal = recreated(tmp_path)
    said = "t-0: wanted is offset 5 of the topic with id id-1, found is one with id id-2"
    with pytest.raises(TopicDeleted, match=said):
        journal.plan()


def test_a_recreated_topic_is_read_from_its_start_on_request(tmp_path: Path) -> None:
    journal = recreated(tmp_path)
    journal.restart(failOnDataLoss=False)
    assert journal.run() == [numbers(100, 120)]
    assert values(journal.read(2)) == numbers(100, 120)


def overtaken(tmp_path: Path) -> Journal:
    """A query that has read 4 records of a log of which the first 10 were archived since."""
    log = Growing(tmp_path)
    log.count(0, 10)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    journal = Journal(directory=tmp_path, subscribe="t", **options)
    assert journal.plan()
    assert journal.plan()
    log.roll()
    log.count(10, 15)
    archive(log, 10)
    journal.restart(maxOffsetsPerTrigger=100)
    return journal


def test_archiving_overtakes_the_query(tmp_path: Path) -> None:
    journal = overtaken(tmp_path)
    said = (
        r"t-0: wanted is offset 4, found are \[10, 15\): 6 records were archived .*failOnDataLoss"
    )
    with pytest.raises(DataLoss, match=said):
        journal.plan()


def test_archiving_overtakes_a_query_that_may_go_on(tmp_path: Path) -> None:
    journal = overtaken(tmp_path)
    journal.restart(failOnDataLoss=False)
    assert journal.run() == [numbers(10, 15)]
    assert journal.read(1) == []  # the replay of the batch before has nothing left, and no more


def test_a_topic_that_is_gone(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 5)
    Growing(tmp_path, "u", topic_id="id-2").count(0, 5)
    options = {"startingOffsets": "earliest", "subscribe": "t,u"}
    journal = Journal(directory=tmp_path, **options)
    journal.run()
    (tmp_path / "u-0").rename(tmp_path / "elsewhere")
    journal.restart()
    with pytest.raises(DataLoss, match="u-0: wanted is offset 5, but the topic is gone"):
        journal.plan()
    journal.restart(failOnDataLoss=False)
    journal.run()


def test_a_log_that_was_cut_is_no_idle_log(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 5)
    journal = Journal(directory=tmp_path, subscribe="t", startingOffsets="earliest")
    journal.run()
    journal.texts[-1] = journal.texts[-1].replace('"0": 5', '"0": 50')
    with pytest.raises(DataLoss, match="t-0: wanted is offset 50, but the log ends at 5"):
        journal.plan()


def test_a_checkpoint_of_another_source(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 5)
    reader = stream_reader(directory=tmp_path, subscribe="t")
    with pytest.raises(SourceError, match="belongs to another source: use a new checkpoint"):
        reader.latestOffset({"t": {"0": 5}})
    with pytest.raises(SourceError, match="offsets of format 2, this is 1"):
        reader.latestOffset({"v": 2})


def test_positions_need_nodes(tmp_path: Path) -> None:
    Growing(tmp_path).count(0, 5)
    with pytest.raises(BadOption, match="positionGroup needs the option config"):
        Journal(directory=tmp_path, subscribe="t", positionGroup="g").plan()


def test_a_group_has_no_meaning() -> None:
    with pytest.raises(BadOption, match=r"kafka.group.id: there is no consumer group"):
        stream_reader(**{"subscribe": "t", "kafka.group.id": "g"})
    stream_reader(**{"subscribe": "t", "kafka.bootstrap.servers": "h:1", "groupIdPrefix": "g"})
