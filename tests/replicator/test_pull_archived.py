"""Copies of what the cluster archives: truncated like the nodes' files, or kept."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.config.tables.client import SubscriberConfig
from samelog.store.disk.files import OsFileSystem, StrPath
from samelog.store.merged.truncation import LogStart
from samelog.wire.pull.copies import CopyState
from tests.replicator.fake_source import FakeSource
from tests.replicator.session_files import batch
from tests.replicator.test_pull_client import Pulling, copy_files, pulling, until_copied
from tests.runtime.peers import in_loop, until


def fill(source: FakeSource, seed: int = 1) -> None:
    """Several segments."""
    rng = random.Random(seed)
    for _ in range(4):
        source.merged[0].fill(rng, 5, rolls=0)
        source.merged[0].roll()
    source.merged[0].fill(rng, 3, rolls=0)


def starts(source: FakeSource) -> list[int]:
    """Where the segments begin that are left."""
    return [segment.base_offset for segment in source.merged[0].log.segments()]


def test_copies_are_truncated_as_the_nodes_files_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            fill(source)
            async with made.client() as client:
                await until_copied(client, source)
                source.merged[0].archive(starts(source)[2] + 1)
                await until(lambda: copy_files(made) == source.merged[0].files())
                source.merged[0].fill(random.Random(2), 5)
                await until_copied(client, source)
                log = client.copies["flights", 0].log
                assert log.start_offset == source.merged[0].log.start_offset
                assert log.checksum == source.merged[0].log.checksum
            source.merged[0].archive(starts(source)[1])  # while nobody looks
            async with made.client() as client:
                await until(lambda: copy_files(made) == source.merged[0].files())

    in_loop(main)


@pytest.mark.parametrize("keep", [False, True])
def test_a_copy_that_lags_behind_goes_on_where_there_is_something(
    tmp_path: Path, *, keep: bool
) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            source.merged[0].fill(random.Random(3), 5, rolls=0)
            async with made.client() as client:
                await until_copied(client, source)
            before = copy_files(made)
            fill(source)
            start = source.merged[0].archive(starts(source)[3] + 2)
            async with made.client(keep=keep) as client:
                await until_copied(client, source)
                log = client.copies["flights", 0].log
                assert (log.log_start, log.damaged) == (start, [])
                assert log.checksum == source.merged[0].log.checksum
                kept = before[f"{0:020d}.log"] if keep else b""
                await until(lambda: copy_files(made)[f"{0:020d}.log"] == kept)
            assert_same_from(made, source, start.segment)

    in_loop(main)


def assert_same_from(made: Pulling, source: FakeSource, base: int) -> None:
    """The segments from `base` on are the node's."""
    name = f"{base:020d}.log"
    ours = {at: data for at, data in copy_files(made).items() if at >= name}
    assert ours == {at: data for at, data in source.merged[0].files().items() if at >= name}


def test_what_is_archived_under_way_is_left_out(tmp_path: Path) -> None:
    """The node archives what it is sending."""

    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            for seed in range(20):
                fill(source, seed)
            async with made.client() as client:
                await until(lambda: bool(client.copies))
                for _ in range(5):
                    await until(lambda: client.copies["flights", 0].state is CopyState.COPYING)
                    source.merged[0].archive(starts(source)[-1])
                    fill(source)
                await until_copied(client, source)
                assert client.copies["flights", 0].log.log_start.offset > 0

    in_loop(main)


def test_a_budget_takes_nothing_back_of_what_is_archived_and_blocks_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing: set[threading.Thread] = set()
    list_directory = OsFileSystem.list_directory

    def listed(self: OsFileSystem, path: StrPath) -> list[str]:
        if str(path).endswith("copies/flights-0"):
            listing.add(threading.current_thread())
        return list_directory(self, path)

    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            fill(source)
            async with made.client() as client:
                await until_copied(client, source)
                monkeypatch.setattr(OsFileSystem, "list_directory", listed)
                total = sum(map(len, copy_files(made).values()))
                limited = SubscriberConfig(budget_bytes=total - 1)  # the first file has to go
                base = starts(source)[3]
                client.on_archived(client.copies["flights", 0], LogStart(base, base, 0))
                client.follow(replace(made.world.config(), subscriber=limited))
                await client._upkeep.keep_budget(total - 1)
                await until(lambda: copy_files(made)[f"{starts(source)[2]:020d}.log"] == b"")
            assert_same_from(made, source, base)

    in_loop(main)
    assert listing
    assert threading.main_thread() not in listing


def test_kept_copies_keep_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            fill(source)
            async with made.client(keep=True) as client:
                await until_copied(client, source)
                before = copy_files(made)
                source.merged[0].archive(starts(source)[2])
                source.merged[0].append(batch(b"more"))
                await until_copied(client, source)
                assert client.copies["flights", 0].log.start_offset == 0
                after = copy_files(made)
                assert all(after[name].startswith(data) for name, data in before.items())

    in_loop(main)
