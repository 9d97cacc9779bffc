"""Copies of what the cluster compacts meanwhile: what was there goes last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from samelog.replicator.pull.copy_upkeep import CopyUpkeep
from tests.replicator.fake_source import FakeMerged
from tests.replicator.test_pull_client import Pulling, copy_files, pulling, stopped, until_copied
from tests.runtime.peers import in_loop, until
from tests.store.compacting import KeyedLog, rewrite

Pairs = list[tuple[bytes | None, bytes | None]]
OLD: Pairs = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]


def fill(stream: FakeMerged, *batches: Pairs) -> None:
    """Records with keys."""
    keyed = KeyedLog(stream.log)
    for pairs in batches:
        keyed.append(pairs)
    stream.changed()


def compact(stream: FakeMerged) -> None:
    """All there is, after a roll."""
    stream.roll()
    stream.log.swap(rewrite(stream.log, stream.log.next_offset))
    stream.log.generations.clear_folders()


def aside(made: Pulling) -> list[bytes]:
    """What was set aside of the copy."""
    folder = made.path / "copies" / "flights-0"
    return [path.read_bytes() for path in sorted(folder.glob("*.log.quarantined-*"))]


@pytest.mark.parametrize("keep", [False, True])
def test_what_was_compacted_is_copied_anew(tmp_path: Path, *, keep: bool) -> None:
    """What was there goes only when that is durable, and with `keep` never."""

    async def main() -> None:
        async with pulling(tmp_path, partitions=1) as made:
            [source] = made.sources
            fill(source.merged[0], OLD, [(b"a", b"2")])
            async with made.client() as client:
                await until_copied(client, source)
            before = copy_files(made)
            fill(source.merged[0], [(b"a", b"3"), (b"c", b"3")])
            compact(source.merged[0])
            async with made.client(keep=keep) as client:
                await until_copied(client, source)
                assert copy_files(made) == source.merged[0].files()
                if keep:
                    assert aside(made) == list(before.values())
                else:
                    await until(lambda: not aside(made))

    in_loop(main)


def test_what_was_there_stays_until_all_of_it_is_here_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    original = CopyUpkeep.remove_replaced

    async def remove(self: CopyUpkeep) -> None:
        had = bool(aside(made))
        await original(self)
        if had and not aside(made):
            seen.append(all(each.log.durable_offset >= 4 for each in self._directory.alive()))

    made = Pulling(tmp_path)

    async def main() -> None:
        await made.add_node(partitions=1)
        [source] = made.sources
        fill(source.merged[0], OLD, [(b"a", b"2")])
        async with made.client() as client:
            await until_copied(client, source)
        compact(source.merged[0])
        monkeypatch.setattr(CopyUpkeep, "remove_replaced", remove)
        async with made.client():
            await until(lambda: bool(seen))
        assert seen == [True]
        await made.world.stop()

    in_loop(main)


def of_before(stream: FakeMerged) -> None:
    fill(stream, OLD, [(b"a", b"2")], [(b"d", b"1")])


def with_another_record(stream: FakeMerged) -> None:
    fill(stream, OLD, [(b"a", b"2")], [(b"d", b"2")])


def with_another_batch(stream: FakeMerged) -> None:
    fill(stream, OLD, [(b"a", b"2"), (b"d", b"1")])


def that_goes_on(stream: FakeMerged) -> None:
    of_before(stream)
    fill(stream, OLD, OLD, OLD)


@pytest.mark.parametrize(
    ("make", "is_fork"),
    [
        (of_before, False),
        (with_another_record, True),
        (with_another_batch, True),
        (that_goes_on, True),
    ],
)
def test_a_copy_of_another_log_is_refused(
    tmp_path: Path, make: Callable[[FakeMerged], None], *, is_fork: bool
) -> None:
    """Its last batch, or its length, shows that it is none of before; it stays as it is."""

    async def main() -> None:
        async with pulling(tmp_path, nodes=2, partitions=1) as made:
            [source, other], [node, another] = made.sources, made.world.nodes
            of_before(source.merged[0])
            compact(source.merged[0])
            make(other.merged[0])
            async with made.client(addresses=(another.address,)) as client:
                await until_copied(client, other)
            before = copy_files(made)
            async with made.client(addresses=(node.address,)) as client:
                if is_fork:
                    await until(lambda: "FORK" in str(stopped(client)))
                else:
                    await until_copied(client, source)
            assert (copy_files(made) == before) is is_fork

    in_loop(main)
