"""Records of all versions as rows of one, from local copies and a cluster that knows the schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from samelog import AsyncSubscriber, Subscriber
from samelog.config.load import load_client
from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.subscriber import NobodyAnswers, NoSchema, UnreadableRecord, typed_rows
from tests.cli.fake_nodes import FakeCluster
from tests.patience import PATIENCE_S
from tests.subscriber.merged import Growing
from tests.typed.known import Known, schema_text

FIRST, SECOND = schema_text("a int32"), schema_text("a int32", "b string")


class Copies:
    """A copy of topic `t` that a test lets grow, and readers of its rows."""

    def __init__(self, root: Path, cluster: FakeCluster) -> None:
        root.mkdir()
        self.root, self.cluster = root, cluster
        self.log = Growing(root)
        self.known = Known(cluster, FIRST, SECOND)

    def append(self, *values: bytes | None, version: bytes | None = None) -> None:
        """Records of one version; None: without a mark."""
        headers = None if version is None else [(("samelog.schema", version),)] * len(values)
        data = kernels.build_batches(
            list(values),
            headers=headers,
            timestamps=7,
            batch_bytes=1 << 16,
            max_record_bytes=1 << 20,
        )
        log = self.log.log
        log.append(bytearray(data), base_offset=log.next_offset, leader_epoch=1)

    def reader(self, topics: str | list[str] = "t", **options: Any) -> Subscriber:
        """Reads the copy; asks the cluster only for schemas."""
        options = {"start": "earliest", "follow": False, **options}
        reader = Subscriber(topics, directory=self.root, **options)
        reader._setup = replace(reader._setup, client=load_client(self.cluster.client_file))
        return reader


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with FakeCluster(tmp_path, 1) as cluster:
        yield Copies(tmp_path / "copies", cluster)


def values(found: list[typed_rows.TypedRow]) -> list[tuple[int, Any]]:
    return [(row.offset, row.values) for row in found]


def test_records_of_all_versions_are_rows_of_the_newest(copies: Copies) -> None:
    copies.append(b'{"a":1}', version=b"1")
    copies.append(b'{"a":2,"b":"x"}', None, version=b"2")
    with copies.reader() as reader:
        assert values(reader.rows()) == [
            *((0, {"a": 1, "b": None}), (1, {"a": 2, "b": "x"}), (2, None))
        ]
        assert reader.rows(timeout=0) == []
    with copies.reader(version=1) as reader:
        found = reader.arrow()
        assert found is not None
        assert found.schema.names == [
            *("a", "_topic", "_partition", "_offset", "_timestamp", "_key")
        ]
        assert found.column("a").to_pylist() == [1, 2, None]
        assert reader.arrow(timeout=0) is None
    with copies.reader() as reader:
        frame = reader.pandas()
        assert frame is not None
        assert list(frame["_offset"]) == [0, 1, 2]


def test_marked_records_are_read_without_asking_again(copies: Copies) -> None:
    copies.append(b'{"a":1}', version=b"1")
    with copies.reader(follow=True) as reader:
        reader.rows()
        asked = copies.known.asked
        copies.append(*[b'{"a":2,"b":"x"}'] * 100, version=b"2")
        assert len(reader.rows(timeout=PATIENCE_S)) == 100
        assert copies.known.asked == asked


def test_what_is_in_force_is_asked_for_up_to_the_records(copies: Copies) -> None:
    """A node that lags does not know that version 2 is in force at offset 1."""
    copies.append(b'{"a":1}', b'{"a":2,"b":"x"}')
    copies.known.since = ((0, 1), (1, 2))
    copies.known.next_offsets = [1, 1, 2]
    with copies.reader() as reader:
        assert values(reader.rows()) == [(0, {"a": 1, "b": None}), (1, {"a": 2, "b": "x"})]
    assert copies.known.next_offsets == [2]


def test_a_topic_that_is_created_again_is_read_as_its_own_newest_version(
    copies: Copies,
) -> None:
    """The deleted topic had two versions, the next one has one."""
    copies.append(b'{"a":1,"b":"x"}', version=b"2")
    with copies.reader() as reader:
        assert values(reader.rows()) == [(0, {"a": 1, "b": "x"})]
        rows = reader._row_reader()
        columns = to_arrow(b"", 0, 0, topic="t", partition=0).schema
        later = rows._known.note("t", "later", (schema_text("c int32"),), {})
        copies.known.topic_id, copies.known.texts[:] = "later", [schema_text("c int32")]
        found, _ = rows._reader("t", later, columns)
        assert found.read(columns.empty_table(), ()).table.column_names == ["c"]


def test_lists_of_versions_count_for_the_log_that_they_are_of(copies: Copies) -> None:
    copies.append(b'{"a":1}')
    with copies.reader() as reader:
        assert len(reader.rows()) == 1
    copies.known.topic_id = "id-2"
    with copies.reader(version=2) as reader:  # what was heard of the old one is kept
        assert len(reader.rows()) == 1
    (copies.root / "schemas" / "t.json").unlink()
    with copies.reader() as reader:
        for _ in range(2):  # nothing is skipped by an error
            with pytest.raises(NoSchema, match="was recreated"):
                reader.rows()


def test_nodes_that_lag_for_long_are_an_error_and_skip_nothing(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_rows, "LEARN_S", 0.0)
    copies.append(b'{"a":1}')
    copies.known.next_offsets = [0]
    with copies.reader() as reader:
        with pytest.raises(NobodyAnswers, match="lag behind"):
            reader.rows()
        copies.known.next_offsets = [1]
        assert values(reader.rows()) == [(0, {"a": 1, "b": None})]


def test_a_record_that_cannot_be_read_ends_what_is_handed_out_before_it(copies: Copies) -> None:
    copies.append(b'{"a":1}', b"no json", b'{"a":3}', version=b"1")
    copies.append(b'{"a":4}', version=b"9")
    with copies.reader(name="n") as reader:
        assert values(reader.rows()) == [(0, {"a": 1, "b": None})]
        for _ in range(2):
            with pytest.raises(
                UnreadableRecord, match="offset 1, written with version 1"
            ) as caught:
                reader.rows()
            assert (caught.value.topic, caught.value.offset) == ("t", 1)
        reader.seek(0, 2)
        assert values(reader.rows()) == [(2, {"a": 3, "b": None})]
        with pytest.raises(UnreadableRecord, match="a record with a version that the topic has"):
            reader.arrow()
        assert reader.position() == 3
    with copies.reader(name="n", start="stored") as reader:
        assert reader.position() == 3


def test_unreadable_records_can_be_skipped_and_are_told(
    copies: Copies, caplog: pytest.LogCaptureFixture
) -> None:
    copies.append(b"no json", b'{"a":2}', version=b"1")
    with copies.reader(corrupt="skip") as reader:
        assert values(reader.rows()) == [(1, {"a": 2, "b": None})]
    assert "a record is skipped: offset 0, written with version 1" in caplog.text
    with pytest.raises(ValueError, match="never"):
        copies.reader(corrupt="never")


def test_rows_that_meet_a_condition_and_their_columns(copies: Copies) -> None:
    copies.append(*(b'{"a":%d,"b":"%d"}' % (n, n % 3) for n in range(90)), version=b"2")
    copies.append(None, version=b"2")
    options: dict[str, Any] = {"where": "a >= 50 AND b IN ('1') AND _offset < 80", "columns": ["b"]}
    with copies.reader(name="n", **options) as reader:
        found = reader.rows(max_records=10)  # looks on until something passes
        assert values(found) == [(52, {"b": "1"}), (55, {"b": "1"}), (58, {"b": "1"})]
        table = reader.arrow()
        assert table is not None
        assert table.schema.names[0:2] == ["b", "_topic"]
        assert table["_offset"].to_pylist() == [*range(61, 80, 3)]
        assert reader.rows(timeout=0) == []
        for whole in (reader.batch, reader.arrow_records, lambda: next(iter(reader))):
            with pytest.raises(ValueError, match="records come all"):
                whole()
    with copies.reader(name="n", start="stored") as reader:  # what was passed over counts
        assert reader.position() == 91


def test_what_a_condition_passes_over_is_in_nobody_s_hands(copies: Copies) -> None:
    copies.append(*(b'{"a":%d}' % n for n in range(9)), version=b"1")
    with copies.reader(where="a > 100", follow=True) as reader:
        assert reader.rows(timeout=0) == []
        assert reader._engine.undone() == []
    with copies.reader(where="a = 3", follow=True) as reader:
        assert len(reader.rows(timeout=0)) == 1
        assert reader._engine.undone() == [(("t", 0), 0, 9)]


def test_a_condition_that_is_none_skips_nothing(copies: Copies) -> None:
    copies.append(b'{"a":1}', version=b"1")
    for options in ({"where": "c = 1"}, {"where": "a >"}, {"columns": ["c"]}):
        with copies.reader(**options) as reader:
            for _ in range(2):
                with pytest.raises(ValueError, match=r"no column .c.|no condition of SQL"):
                    reader.rows()
            assert reader.position() == 0


def test_what_cannot_be_read_is_not_left_out_by_a_condition(copies: Copies) -> None:
    copies.append(b'{"a":1}', b"no json", version=b"1")
    with copies.reader(where="a > 1") as reader, pytest.raises(UnreadableRecord, match="offset 1"):
        reader.rows()


def test_without_a_cluster_what_was_heard_of_the_schema_counts(copies: Copies) -> None:
    copies.append(b'{"a":1}')
    with (
        Subscriber("t", directory=copies.root, follow=False) as reader,
        pytest.raises(NobodyAnswers, match="give a config"),
    ):
        reader.rows()
    with copies.reader() as reader:
        reader.rows()
    with Subscriber("t", directory=copies.root, follow=False) as reader:
        assert values(reader.rows()) == [(0, {"a": 1, "b": None})]


def test_tables_are_of_one_topic(copies: Copies) -> None:
    copies.append(b'{"a":1}')
    other = Growing(copies.root, "other")
    other.append(b"x")
    with copies.reader(["t", "other"]) as reader:
        for _ in range(2):
            with pytest.raises(NoSchema, match="no such topic"):
                reader.rows()
            assert len(reader.rows()) == 1
            reader.seek(0, 0, topic="t")


def test_rows_come_without_blocking_a_loop(copies: Copies) -> None:
    copies.append(b'{"a":1}', version=b"1")
    with copies.reader() as reader:
        reader.rows()

    async def main() -> None:
        async with AsyncSubscriber("t", directory=copies.root, start="earliest") as reader:
            assert [row.values for row in await reader.rows()] == [{"a": 1, "b": None}]
            assert await reader.arrow(timeout=0.0) is None
            reader.seek(0, 0)
            frame = await reader.pandas()
            assert frame is not None
            assert list(frame["a"]) == [1]

    asyncio.run(main())
