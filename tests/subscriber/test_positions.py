"""The file of stored positions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from samelog.format.errors import CorruptLog, UnsupportedFormat
from samelog.subscriber.positions import PositionStore
from tests.subscriber.merged import FS


def test_what_is_saved_is_there_again(tmp_path: Path) -> None:
    store = PositionStore(FS, str(tmp_path), "n")
    assert store.get("t", "id", 0) is None
    store.put("t", "id", 0, 5)
    store.put("t", "id", 1, 6)
    store.save(durable=True)
    again = PositionStore(FS, str(tmp_path), "n")
    assert (again.get("t", "id", 0), again.get("t", "id", 1)) == (5, 6)
    assert again.get("t", "other id", 0) is None
    assert PositionStore(FS, str(tmp_path), "m").get("t", "id", 0) is None


def test_another_topic_of_the_name_replaces_the_old_positions(tmp_path: Path) -> None:
    store = PositionStore(FS, str(tmp_path), "n")
    store.put("t", "old", 0, 5)
    store.put("t", "old", 1, 5)
    store.put("t", "new", 0, 1)
    assert store.get("t", "new", 0) == 1
    assert store.get("t", "old", 1) is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    PositionStore(FS, str(tmp_path), "n").save(durable=False)
    file = tmp_path / "positions" / "n.json"
    assert json.loads(file.read_text())["name"] == "n"
    file.write_text("{")
    with pytest.raises(CorruptLog, match=str(file)):
        PositionStore(FS, str(tmp_path), "n")
    file.write_text('{"format_version": 2}')
    with pytest.raises(UnsupportedFormat, match="format version 2"):
        PositionStore(FS, str(tmp_path), "n")
