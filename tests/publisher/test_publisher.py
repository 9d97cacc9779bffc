"""The publisher without a cluster: what an append leaves in the session's files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog import Publisher
from samelog.format.errors import DirectoryInUse, InvalidName, RecordTooLarge
from samelog.format.positions import SessionPosition
from samelog.publisher import NotShipping, PublisherClosed, TopicPartition
from tests.examples import at_most
from tests.publisher import reading


@pytest.fixture
def session(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with Publisher("t", session="s", directory=tmp_path) as publisher:
        yield publisher


def test_an_append_can_be_read_from_the_file_when_it_returns(
    publisher: Publisher, session: Path
) -> None:
    for number in range(100):
        publisher.append(b"%d" % number)
        assert reading.values(session)[-1] == b"%d" % number
    assert reading.batch_sizes(session) == [1] * 100


def test_a_record_keeps_key_headers_and_timestamp(publisher: Publisher, session: Path) -> None:
    publisher.append(b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=123)
    publisher.append(None, headers={"a": b"b"}, timestamp=datetime(2020, 1, 1, tzinfo=UTC))
    first, second = reading.records(session)
    assert (first.value, first.key, first.timestamp) == (b"v", b"k", 123)
    assert first.headers == (("h", b"1"), ("h", None))
    assert (second.value, second.headers) == (None, (("a", b"b"),))
    assert second.timestamp == 1_577_836_800_000


def test_records_say_their_session_when_they_are_to(tmp_path: Path) -> None:
    own = ("samelog.session", b"s")
    with Publisher("t", session="s", directory=tmp_path, session_header=True) as publisher:
        publisher.append(b"a")
        publisher.append(b"b", headers={"h": b"1"}, partition=0)
        publisher.append_many([b"c", b"d"], headers=[None, [("h", b"2")]])
        publisher.append_many([b"e"])
        with pytest.raises(ValueError, match="headers"):
            publisher.append_many([b"f"], headers=[])
    found = [record.headers for record in reading.records(tmp_path / "s")]
    assert found == [(own,), (("h", b"1"), own), (own,), (("h", b"2"), own), (own,)]


def test_a_record_without_a_timestamp_is_of_now(publisher: Publisher, session: Path) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    publisher.append(b"v")
    publisher.append_many([b"w"])
    for record in reading.records(session):
        moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
        assert before < moment < datetime.now(UTC) + timedelta(seconds=1)


@pytest.mark.parametrize("value", [bytearray(b"abc"), memoryview(b"xabc")[1:]])
def test_whatever_lends_bytes_is_a_value(publisher: Publisher, session: Path, value: Any) -> None:
    publisher.append(value)
    publisher.append_many([value], keys=[value])
    assert reading.values(session) == [b"abc", b"abc"]


def test_a_text_is_refused_with_advice(publisher: Publisher, session: Path) -> None:
    with pytest.raises(TypeError, match=r"the value is a str; encode it: value\.encode\(\)"):
        publisher.append("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the key must be bytes or None, not int"):
        publisher.append(b"", key=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="record 1: the value is a str"):
        publisher.append_many([b"a", "b"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a timestamp is an int"):
        publisher.append(b"", timestamp="now")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no time zone"):
        publisher.append(b"", timestamp=datetime(2020, 1, 1))  # noqa: DTZ001
    assert not session.joinpath("t-0").exists()


def test_a_record_that_is_too_large_is_refused_and_leaves_nothing(
    publisher: Publisher, session: Path
) -> None:
    publisher.append(b"before")
    with pytest.raises(RecordTooLarge):
        publisher.append(bytes(1 << 20))
    with pytest.raises(RecordTooLarge) as caught:
        publisher.append_many([b"fine", bytes(1 << 20)])
    assert caught.value.index == 1
    publisher.append(bytes((1 << 20) - 100))
    assert [len(value or b"") for value in reading.values(session)] == [6, (1 << 20) - 100]


def test_many_records_share_batches_of_the_given_size(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, batch_bytes=1000) as publisher:
        publisher.append_many([b"%04d" % number for number in range(500)])
    assert reading.values(tmp_path / "s") == [b"%04d" % number for number in range(500)]
    sizes = reading.batch_sizes(tmp_path / "s")
    assert 1 < len(sizes) < 30
    assert sum(sizes) == 500


def test_many_records_take_their_columns(publisher: Publisher, session: Path) -> None:
    publisher.append_many(
        (value for value in (b"a", None)),
        keys=iter([None, b"k"]),
        headers=[(), {"h": b"x"}],
        timestamps=[1, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)],
    )
    found = [(r.value, r.key, r.headers, r.timestamp) for r in reading.records(session)]
    assert found == [(b"a", None, (), 1), (None, b"k", (("h", b"x"),), 1000)]
    publisher.append_many([b"b", b"c"], timestamps=datetime(1970, 1, 1, tzinfo=UTC))
    publisher.append_many([])
    assert [record.timestamp for record in reading.records(session)[2:]] == [0, 0]


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("columns", [{"keys": [b"k"]}, {"headers": [()]}, {"timestamps": [1]}])
def test_columns_of_other_lengths_are_refused(
    tmp_path: Path, partitions: int, columns: dict[str, Any]
) -> None:
    with (
        Publisher("t", session="s", directory=tmp_path, partitions=partitions) as publisher,
        pytest.raises(ValueError, match="2 values have 1"),
    ):
        publisher.append_many([b"a", b"b"], **columns)
    assert not list((tmp_path / "s").glob("t-*"))


@settings(max_examples=at_most(40))
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.binary(max_size=300)),
            st.one_of(st.none(), st.binary(max_size=20)),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.integers(200, 2000),
)
def test_any_mix_of_appends_keeps_the_order(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[bytes | None, bytes | None, bool]],
    batch_bytes: int,
) -> None:
    root = tmp_path_factory.mktemp("mix")
    pending: list[tuple[bytes | None, bytes | None]] = []
    with Publisher(
        "t", session="s", directory=root, batch_bytes=batch_bytes, roll_bytes=4096
    ) as publisher:
        for value, key, is_alone in entries:
            if is_alone:
                publisher.append_many([v for v, _ in pending], keys=[k for _, k in pending])
                pending.clear()
                publisher.append(value, key=key)
            else:
                pending.append((value, key))
        publisher.append_many([v for v, _ in pending], keys=[k for _, k in pending])
    found = reading.records(root / "s") if (root / "s" / "t-0").exists() else []
    assert [(r.value, r.key) for r in found] == [(value, key) for value, key, _ in entries]


def test_other_topics_have_files_of_their_own(publisher: Publisher, session: Path) -> None:
    publisher.append(b"a")
    publisher.append(b"b", topic="u-1")
    publisher.append_many([b"c"], topic="u-1")
    assert reading.values(session) == [b"a"]
    assert reading.values(session, "u-1") == [b"b", b"c"]
    with pytest.raises(InvalidName):
        publisher.append(b"", topic="../up")


def test_positions_tell_what_is_appended(publisher: Publisher, session: Path) -> None:
    assert publisher.positions.appended == {}
    publisher.append(b"a")
    size = session.joinpath("t-0", "log.0.0").stat().st_size
    assert publisher.positions.appended == {TopicPartition("t", 0): SessionPosition(0, 0, size)}
    assert publisher.positions.merged == {}


def test_waiting_for_the_cluster_needs_one(publisher: Publisher) -> None:
    publisher.append(b"a")
    with pytest.raises(NotShipping):
        publisher.wait_merged(timeout=1)


def test_a_closed_publisher_takes_nothing(tmp_path: Path) -> None:
    publisher = Publisher("t", session="s", directory=tmp_path)
    publisher.append(b"a")
    publisher.close()
    publisher.close()
    with pytest.raises(PublisherClosed):
        publisher.append(b"b")
    with pytest.raises(PublisherClosed):
        publisher.append_many([b"b"])
    with pytest.raises(PublisherClosed):
        publisher.flush()
    assert reading.values(tmp_path / "s") == [b"a"]


def test_one_session_has_one_writer(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path):
        with pytest.raises(DirectoryInUse, match=str(os.getpid())):
            Publisher("t", session="s", directory=tmp_path)
        Publisher("t", session="other", directory=tmp_path).close()
    Publisher("t", session="s", directory=tmp_path).close()


def test_threads_may_share_a_publisher(publisher: Publisher, session: Path) -> None:
    def append(name: bytes) -> None:
        for number in range(300):
            if number % 3:
                publisher.append(b"%s-%d" % (name, number))
            else:
                publisher.append_many([b"%s-%d" % (name, number)])

    threads = [threading.Thread(target=append, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [value or b"" for value in reading.values(session)]
    for name in (b"a", b"b", b"c"):
        own = [value for value in found if value.startswith(name)]
        assert own == [b"%s-%d" % (name, number) for number in range(300)]


def test_a_forked_child_can_neither_write_nor_take_the_lock_along(tmp_path: Path) -> None:
    publisher = Publisher("t", session="s", directory=tmp_path)
    publisher.append(b"a")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            publisher.append(b"from the child")
        except PublisherClosed as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"belongs to the parent process" in os.read(reader, 1000)
    os.close(reader)
    publisher.append(b"b")
    publisher.close()
    assert reading.values(tmp_path / "s") == [b"a", b"b"]


def test_a_durable_flush_syncs_files_and_names(
    publisher: Publisher, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "samelog.publisher.session_writer.Unsynced.sync",
        lambda unsynced, fs: synced.extend([*unsynced.files, *unsynced.directories]),
    )
    publisher.append(b"a")
    publisher.flush(durable=True)
    assert synced == [str(session / "t-0" / "log.0.0"), str(session / "t-0")]
    synced.clear()
    publisher.flush(durable=True)
    assert synced == []
    publisher.append(b"b")
    publisher.flush()
    publisher.flush(durable=True)
    assert synced == [str(session / "t-0" / "log.0.0")]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("partitions", 0),
        ("batch_bytes", 0),
        ("batch_bytes", 2 << 20),
        ("max_record_bytes", 0),
        ("linger_ms", -1),
        ("budget_bytes", 0),
        ("roll_bytes", 1),
        ("dedup_id", "a\nb"),
        ("on_full", "wait"),
        ("session", "UPPER"),
        ("topic", "no/slash"),
        ("directory", None),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, option: str, value: object) -> None:
    options: dict[str, Any] = {"topic": "t", "session": "s", "directory": tmp_path, option: value}
    with pytest.raises(ValueError, match=rf"{value}|{option}"):
        Publisher(**options)
    assert not (tmp_path / "s").exists()
