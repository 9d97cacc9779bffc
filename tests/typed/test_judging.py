"""Which records of a batch do not fit: what is taken is what readers read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.compression import Codec
from samelog.typed.judging import FITS, STEP, TOLD, judge_batch
from samelog.typed.reading import TypedReader
from samelog.typed.schema import Schema, parse_schema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import mark
from tests.kafka.batches import packed
from tests.typed.known import schema_text

Mark = bytes | None
JSON = {
    1: parse_schema(schema_text("a int32", "b string")),
    2: parse_schema(schema_text("a int64", "b string", "c float32")),
}


def batch(values: Sequence[bytes | None], marks: Sequence[Mark] | None = None) -> bytes:
    headers = None
    if marks is not None:
        headers = [[] if mark is None else [("samelog.schema", mark)] for mark in marks]
    return kernels.build_batches(
        list(values), headers=headers, timestamps=5, batch_bytes=1 << 28, max_record_bytes=1 << 20
    )


def refused(
    values: Sequence[bytes | None],
    marks: Sequence[Mark] | None = None,
    schemas: dict[int, Schema] = JSON,
) -> list[int]:
    return judge_batch(schemas, len(schemas), batch(values, marks)).records


def test_a_misfit_says_which_record_and_why() -> None:
    found = judge_batch(JSON, 2, batch([b'{"a":1}', b'{"a":"x","b":"y"}', b"nothing", None]))
    assert found.records == [1, 2]
    assert [(record, column, kind) for record, column, kind, _ in found.told] == [
        (1, "a", "int64"),
        (2, "", "a JSON object"),
    ]
    assert "x" in found.told[0][3]
    assert judge_batch(JSON, 2, batch([b'{"a":1}'])) is FITS


def test_a_mark_decides_and_one_that_is_no_version_does_not_fit() -> None:
    wide, new = b'{"a":%d}' % 2**40, b'{"a":1,"c":1.5}'
    assert refused([wide, new]) == []
    assert refused([wide, new, b"{}"], [b"1", b"1", b"1"]) == [0, 1]
    assert refused([wide, new, b"{}"], [b"1", None, b"2"]) == [0]
    assert refused([b"{}", b"{}", b"{}", None], [b"3", b"01", b"", b"9"]) == [0, 1, 2]


def test_a_mark_of_another_schema_does_not_fit_under_any_number() -> None:
    own = mark(1, JSON[2].fingerprint)[1]  # the topic was created again, with another order
    other = mark(1, "0" * 64)[1]
    assert refused([b'{"c":1.5}', b"{}", None], [own, own, other]) == []
    assert refused([b"{}", b"{}"], [other, b"1"]) == [0]
    found = judge_batch(JSON, 2, batch([b"{}", b"{}"], [other, other]))
    assert found.records == [0, 1]
    assert "a mark with another schema's digest" in found.told[0][3]


def test_the_last_mark_of_a_record_counts() -> None:
    marks = [("samelog.schema", b"2"), ("other", b"9"), ("samelog.schema", b"1")]
    data = kernels.build_batches(
        [b'{"c":1}', b'{"c":1}'],
        headers=[marks, marks[:1]],
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
    )
    assert judge_batch(JSON, 2, data).records == [0]


def test_long_batches_are_told_of_shortly() -> None:
    values = [b"{}", b"x"] * (STEP + 3)
    found = judge_batch(JSON, 2, batch(values))
    assert found.records == [*range(1, len(values), 2)]
    assert len(found.told) == TOLD


def test_compressed_batches_are_unpacked() -> None:
    for codec in Codec:
        data = packed(codec, b'{"a":1}', b'{"a":true}', b'{"a":2}')
        assert judge_batch(JSON, 2, data).records == [1]


def test_an_arrow_stream_has_the_version_with_its_columns() -> None:
    schemas = {
        1: parse_schema(schema_text("a int32", value_format="arrow")),
        2: parse_schema(schema_text("a int64", value_format="arrow")),
    }
    old, new = (
        codec_of(schemas[version]).encode(pa.table({"a": pa.array([1], kind)}))[0]
        for version, kind in ((1, pa.int32()), (2, pa.int64()))
    )
    other = codec_of(parse_schema(schema_text("b int64", value_format="arrow")))
    (foreign,) = other.encode(pa.table({"b": pa.array([1], pa.int64())}))
    assert refused([old, new, foreign, b"x"], None, schemas) == [2, 3]
    assert refused([old, new], [b"2", b"2"], schemas) == [0]


HOSTILE = (
    None,
    b"",
    b"{}",
    b"[]",
    b"null",
    b'{"a":1}',
    b'{"a":1.0}',
    b'{"a":1e0}',
    b'{"a":true}',
    b'{"a":1,"a":2}',
    b'{"a":2147483648}',
    b'{"a":9223372036854775808}',
    b'{"a":null,"b":null,"c":null}',
    b'{"b":"\xff"}',
    b'{"b":"\\ud800"}',
    b'{"c":1e400}',
    b'{"c":1e39}',
    b'{"c":3}',
    b'{"c":NaN}',
    b' {"a" : 1} ',
    b'{"a":1}{"a":1}',
    b'{"A":1}',
)
MARKS = (None, None, b"1", b"2", b"3", b"x")


@given(st.lists(st.tuples(st.sampled_from(HOSTILE), st.sampled_from(MARKS)), min_size=1))
def test_what_is_taken_is_what_readers_read(records: list[tuple[bytes | None, Mark]]) -> None:
    """T15: every record that fits is read, alike, and every other one is refused there, too."""
    values, marks = [value for value, _ in records], [mark for _, mark in records]
    data = batch(values, marks)
    table = to_arrow(data, 0, len(data), topic="t", partition=0)
    read = TypedReader(JSON, 2).read(table, [(0, 2)])
    unread = sorted(each.misfit.index for each in read.unread)
    assert judge_batch(JSON, 2, data).records == unread


def test_values_that_are_nested_deeply_do_not_fit() -> None:
    deep = b'{"a":' + b"[" * 100_000
    for text in ("a int64", "c float32"):
        schema = {1: parse_schema(schema_text(text))}
        assert refused([b"{}", deep], None, schema) == [1]
