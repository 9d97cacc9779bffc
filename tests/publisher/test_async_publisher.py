"""The publisher with async methods."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from samelog import AsyncPublisher
from samelog.publisher import NotShipping, PublisherClosed
from tests.publisher import reading


def test_it_appends_as_the_other_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPublisher("t", session="s", directory=tmp_path) as publisher:
            await publisher.append(b"a", key=b"k", timestamp=5)
            assert reading.values(tmp_path / "s") == [b"a"]
            await publisher.append_many([b"b", b"c"])
            await publisher.append_arrow(pa.table({"value": [b"d"]}))
            await publisher.flush(durable=True)
            assert len(publisher.positions.appended) == 1
            with pytest.raises(NotShipping):
                await publisher.wait_merged(timeout=1)
        with pytest.raises(PublisherClosed):
            await publisher.append(b"e")

    asyncio.run(main())
    assert reading.values(tmp_path / "s") == [b"a", b"b", b"c", b"d"]
    assert reading.records(tmp_path / "s")[0].key == b"k"
