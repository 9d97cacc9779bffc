"""What a node says of an offset that it does not know of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samelog.kafka.apis import fetch
from samelog.kafka.apis.fetch import FetchWork, _PartitionRead
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.fetch import FetchPartition, FetchRequest
from tests.store.compacting import random_log, rewrite

WANTED = 9


class Stream:
    """A partition of five records here."""

    log = SimpleNamespace(start_offset=0, next_offset=5)
    fault = None

    def add_listener(self, wake: object) -> None:
        """Nothing is merged."""

    remove_listener = add_listener


@pytest.mark.parametrize(
    ("committed", "error"), [(20, ErrorCode.none), (5, ErrorCode.offset_out_of_range)]
)
def test_an_offset_that_a_node_lacks_is_not_out_of_range_before_the_leader_says_so(
    monkeypatch: pytest.MonkeyPatch, committed: int, error: ErrorCode
) -> None:
    stream = Stream()
    there = SimpleNamespace(stream=stream, committed=5)
    monkeypatch.setattr(fetch, "readable", lambda *asked: there)

    async def confirm_ends(asked: object) -> None:
        there.committed = committed

    async def main() -> None:
        broker = SimpleNamespace(confirm_ends=confirm_ends, nearest=lambda *asked: -1)
        call = SimpleNamespace(broker=broker, client=None)
        topics = [("t", [FetchPartition(0, -1, WANTED, 1000)])]
        patience_ms = 60_000 if error else 50  # where nothing is wrong, all of it is waited
        request = FetchRequest(patience_ms, 1, 1000, 0, 0, -1, [])
        found = FetchWork(cast(Any, call), request, cast(Any, SimpleNamespace(topics=topics)))
        assert not found.is_ready()
        await found.wait()
        assert found._reads[0].error is error

    asyncio.run(main())


def test_what_was_found_is_looked_up_anew_behind_a_compaction(tmp_path: Path) -> None:
    """An answer may wait for the client while other segments take the place of those it is from."""
    keyed = random_log(tmp_path / "log", 21)
    read = _PartitionRead("t", FetchPartition(0, -1, 9, 1 << 20))
    before = read.start(keyed.log)
    keyed.log.swap(rewrite(keyed.log, keyed.log.end()[0]))
    assert read.start(keyed.log) == keyed.log.locate(9) != before
    keyed.log.close()
