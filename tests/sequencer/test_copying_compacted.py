"""Where a log goes on copying when the cluster has compacted what it has."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.sequencer.cluster.repair import merged
from samelog.sequencer.cluster.repair.compacted import begin_next, place_to_cut
from samelog.sequencer.merge.merging import Merging
from tests.store.compacting import random_log, read_all, rewrite
from tests.store.storage import open_merged


def test_what_ends_where_a_compacted_segment_ends_is_rolled(tmp_path: Path) -> None:
    """Peers have its bytes no more: what comes next is asked for behind it."""
    keyed = random_log(tmp_path / "whole", 33)
    stop, other = keyed.log.end()[0], open_merged(tmp_path / "behind")
    for segment in keyed.log.segments():
        if segment.base_offset < stop:
            data = keyed.log.read(segment.base_offset, 0, 1 << 30)
            other.append_copy(segment.base_offset, 0, data)
    written = rewrite(keyed.log, stop)
    keyed.log.swap(written)
    assert other.next_offset == stop != other.end()[0]
    assert place_to_cut(other, written) is None
    begin_next(other, written)
    assert other.end() == (stop, 0)
    data = keyed.log.read(stop, 0, 1 << 30)
    other.append_copy(stop, 0, data)
    assert other.checksum == keyed.log.checksum
    assert read_all(other) == keyed.records
    other.close()
    keyed.log.close()


def test_what_ends_elsewhere_is_not(tmp_path: Path) -> None:
    keyed = random_log(tmp_path / "log", 33)
    end = keyed.log.end()
    begin_next(keyed.log, [])
    written = rewrite(keyed.log, end[0])
    begin_next(keyed.log, written)
    assert keyed.log.end() == end
    keyed.log.close()


def test_a_copy_that_starts_again_behind_a_compaction_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that lost its disk and is filled again logs nothing that wakes an operator."""
    partition = SimpleNamespace(
        topic="t", index=0, log=SimpleNamespace(cut_back=lambda place: None, close=lambda: None)
    )
    merging = Merging.__new__(Merging)
    merging.partitions = {1: cast(Any, partition)}
    monkeypatch.setattr(Merging, "_close", lambda *_: None)
    monkeypatch.setattr(Merging, "_open_again", lambda *_: None)
    monkeypatch.setattr(merged, "place_to_cut", lambda *_: 5)
    compactions = SimpleNamespace(segments=())
    machine = SimpleNamespace(
        state=SimpleNamespace(
            partitions=SimpleNamespace(by_number={1: SimpleNamespace(compactions=compactions)})
        )
    )
    repair = SimpleNamespace(_machine=machine, _merging=merging)
    with caplog.at_level(logging.INFO):
        assert not merged.MergedRepair._takes_compacted(cast(Any, repair), 1, cast(Any, partition))
        merging.reopen(1, "its files were removed or cut")
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "partition t-0 is opened again: the cluster compacted it, from offset 5 on"),
        ("CRITICAL", "partition t-0 is opened again: its files were removed or cut"),
    ]
