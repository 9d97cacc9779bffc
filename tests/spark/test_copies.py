"""Spark reads what was restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.archiver.copies.manifests import FORMATS
from samelog.archiver.copies.targets import open_target
from tests.archiver.test_copying import make_source, restore
from tests.spark.local import batch_reader, rows


@pytest.mark.parametrize("kind", FORMATS)
def test_what_was_restored_is_read_as_a_copy_is(tmp_path: Path, kind: str) -> None:
    source = make_source(tmp_path / "merged")
    (tmp_path / "target").mkdir()
    target = open_target(str(tmp_path / "target"))
    source.copy(target)
    restored = restore(target, tmp_path / "back", kind, first=5)
    reader = batch_reader(directory=tmp_path / "back", subscribe="t")
    found = [(row["offset"], row["value"]) for row in rows(reader, reader.partitions())]
    expected = [(each.offset, each.value) for each in source.read()]
    assert found == [each for each in expected if 5 <= each[0] < restored.next_offset]
