"""Which rows go where: every one to its place, in its order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.spark.errors import BadOption
from samelog.spark.sink import pieces

TOPICS = st.sampled_from(["a", "b"])
PARTITIONS = st.none() | st.integers(0, 3)


def batch(places: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    topics, partitions = zip(*places, strict=True) if places else ((), ())
    columns = {
        "value": pa.array([b"%d" % row for row in range(len(places))], pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(st.tuples(TOPICS, PARTITIONS), max_size=40))
def test_every_row_goes_to_its_place_in_its_order(
    places: list[tuple[str | None, int | None]],
) -> None:
    wanted: dict[object, list[bytes]] = {}
    for row, place in enumerate(places):
        wanted.setdefault(place, []).append(b"%d" % row)
    made = list(pieces(batch(places), None))
    found = {(each.topic, each.partition): each.rows.column("value").to_pylist() for each in made}
    assert len(found) == len(made)
    assert found == wanted


def test_a_row_without_a_topic_is_refused_unless_all_go_to_one() -> None:
    places: list[tuple[str | None, int | None]] = [("a", 0), (None, 0)]
    with pytest.raises(BadOption, match="has no topic"):
        list(pieces(batch(places), None))
    (only,) = pieces(batch(places), "b")
    assert (only.topic, only.partition, len(only.rows)) == ("b", 0, 2)
