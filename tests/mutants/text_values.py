"""Planted bugs in what becomes of JSON values and of text inputs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyarrow as pa

from samelog.archiver.copies import parquet
from samelog.cli import text_records
from samelog.typed.values import json_columns


class _LenientColumns:
    """Decodes JSON by the rules of the standard library and of Arrow."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def read(self, values: pa.Array) -> pa.Table:
        """A row for each of the values."""
        rows = [json.loads(value) for value in values.to_pylist()]
        return pa.Table.from_pylist(rows, schema=self._schema)


@contextmanager
def decode_copies_leniently() -> Iterator[None]:
    """Copies as Parquet decode JSON values by rules of their own."""
    with patch.object(parquet, "json_columns", _LenientColumns):
        yield


@contextmanager
def decode_queries_leniently() -> Iterator[None]:
    """`valueFormat=json` decodes JSON values by rules of its own."""
    with patch.object(json_columns, "json_columns", _LenientColumns):
        yield


@contextmanager
def keep_byte_order_marks() -> Iterator[None]:
    """A byte order mark stays in the first line of a text input."""
    with patch.object(text_records, "BOM_UTF8", b""):
        yield


@contextmanager
def let_any_number_be_a_time() -> Iterator[None]:
    """A text input may have a time that no record can hold."""
    with patch.object(text_records, "TIMESTAMPS", range(-(10**20), 10**20)):
        yield


_READERS = "tests/spark/test_json_readers.py::test_the_table_of_verdicts"
_TEXTS = "tests/cli/test_text_records.py::test_"
TEXT_VALUES = (
    ("typed.18", decode_copies_leniently, _READERS),
    ("typed.18", decode_queries_leniently, _READERS),
    ("typed.19", keep_byte_order_marks, _TEXTS + "a_byte_order_mark_is_no_part_of_a_record"),
    ("typed.19", let_any_number_be_a_time, _TEXTS + "what_is_no_time_is_refused"),
)
"""Rule, bug, and the test that finds it."""
