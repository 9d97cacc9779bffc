"""A page of records costs what there is to look at, with any batches in it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.admin.requests import PeekRecords
from samelog.format.transactions import marker_batch
from samelog.sequencer.admin import records
from samelog.store.merged.log import MergedLog
from tests.subscriber.merged import Growing


def test_a_marker_at_the_end_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no record to show, and would be read again until 8 MiB were looked at."""
    growing = Growing(tmp_path)
    growing.append(b"a", b"b")
    log = growing.log
    marker = marker_batch(7, 0, is_commit=True, coordinator_epoch=0, at_ms=1)
    log.append(marker, base_offset=log.next_offset, leader_epoch=1)
    reads, original = [], MergedLog.read

    def read(self: MergedLog, *place: Any) -> Any:
        reads.append(place)
        return original(self, *place)

    monkeypatch.setattr(MergedLog, "read", read)
    opened = records._Opened(
        "t",
        cast(Any, SimpleNamespace(log=log, index=0)),
        partial(records._stored, log),
    )
    for offset, values in ((0, [b"a", b"b"]), (2, [])):
        reads.clear()
        page = asyncio.run(records._page(opened, PeekRecords("t", offset=offset)))
        assert ([each.value for each in page.records], page.next_offset) == (values, 3)
        assert len(reads) == 1
