"""Damaged session files: what is intact is shipped, once and in order; what is not is kept."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.directory_files import DamageFile, decode_directory_file
from samelog.replicator.push import session_damage
from samelog.replicator.push.client import PushClient
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.os_file import OsFile
from samelog.store.session.damage import keep_damaged
from samelog.wire.push import inputs as push_inputs
from samelog.wire.push.effects import PushPhase
from tests.patience import PATIENCE_S
from tests.replicator.fake_nodes import FakeNode, World, world
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch
from tests.runtime.peers import in_loop, until

OTHER = ("flights", 1)


def merged(made: World, partition: int = 0) -> list[bytes]:
    """The values of the records that were sent, run by run; of each run, what the node has that
    has most of it.
    """
    inputs = made.cluster.inputs
    numbers = [number for key, number in inputs.items() if key[2] == partition]
    found: list[bytes] = []
    for run in sorted(run.number for run in made.cluster.runs["s"].values()):
        held = [_values(node, number, run) for node in made.nodes for number in numbers]
        longest: list[bytes] = max(held, key=len, default=[])
        found += longest
    return found


def _values(node: FakeNode, number: int, run: int) -> list[bytes]:
    held = node.intake.held.get((number, run))
    return [
        bytes(each.value or b"")
        for data in (() if held is None else held.files.values())
        for each in kernels.decode_records(data, 0, len(data), "t", 0, decompress)
    ]


def write(files: SessionFiles, numbers: range, per_file: int, partition: int = 0) -> None:
    """Append a batch for each number, and roll after `per_file` of them."""
    for number in numbers:
        files.append(batch(b"%d" % number), ("flights", partition))
        if (number + 1) % per_file == 0:
            files.roll(("flights", partition))


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Turn a bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def expected(numbers: Iterable[int], *without: int) -> list[bytes]:
    return [b"%d" % number for number in numbers if number not in without]


async def until_shipped(client: PushClient) -> None:
    """Until everything is merged and released."""
    await until(lambda: client.is_released)


def damage_file(files: SessionFiles, run: int = 0) -> DamageFile:
    path = files.path / f"damage.{run}.json"
    return decode_directory_file(path.read_bytes(), str(path), DamageFile)


SIZE = len(batch(b"10"))


@pytest.mark.parametrize("at", [8, 9, 10, 11, 16, 17, 22, 30, 57, SIZE - 1])
@pytest.mark.parametrize("number", [10, 14, 19])
def test_what_is_behind_a_damaged_batch_is_shipped(
    tmp_path: Path, at: int, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 40), 10)
        files.end()
        flip(files.file(0), SIZE * (number - 10) + at, 2)
        damaged = files.file(0).read_bytes()[SIZE * (number - 10) : SIZE * (number - 9)]
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made) == expected(range(10, 40), number)
            [lost] = client.status.damaged
            begin = SIZE * (number - 10)
            assert (lost.run, lost.name, lost.start) == (0, FLIGHTS, (0, begin))
            assert lost.kept is not None
            assert files.fs.read_file(lost.kept, SIZE) == damaged

    with caplog.at_level(logging.ERROR):
        in_loop(main)
    assert "run 0 of flights-0 is damaged from" in caplog.text


def test_a_missing_file_and_a_cut_one(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 60), 10)
        files.end()
        files.file(1).unlink()
        cut = files.file(3).read_bytes()[: 4 * SIZE]
        files.file(3).write_bytes(cut)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_shipped(client)
            gone = (*range(20, 30), *range(44, 50))
            assert merged(made) == expected(range(10, 60), *gone)
            reasons = [each.reason for each in client.status.damaged]
            assert reasons == ["the file is missing", f"the file has {4 * SIZE} bytes"]

    in_loop(main)


def test_missing_first_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They look as if they were released, but the cluster lacks their bytes."""
    monkeypatch.setattr(push_inputs, "GIVE_UP_S", 0.3)
    monkeypatch.setattr(push_inputs, "RETRY_S", 0.1)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        for begin in (10, 40):
            files.begin()
            write(files, range(begin, begin + 30), 10)
            files.end()
        files.file(0, run=0).unlink()
        async with world(tmp_path, nodes=3) as made:
            made.cluster.closes = False  # a cluster closes no run below an end that was named
            client = made.push(files.path)
            await until(lambda: client._session.damage.is_found(0))
            made.cluster.closes = True
            made.cluster.move()
            await until_shipped(client)
            assert merged(made) == expected(range(20, 70))
            [lost] = client.status.damaged
            assert (lost.start, lost.stop) == ((0, 0), (1, 0))

    in_loop(main)


def test_the_order_of_runs_and_partitions_stays(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        for begin in (10, 30, 50):
            files.begin()
            write(files, range(begin, begin + 20), 10)
            write(files, range(begin, begin + 20), 5, partition=1)
            files.end()
        flip(files.file(0, run=0), 30)
        flip(files.file(1, run=1), 3 * SIZE + 40)
        flip(files.file(2, name=OTHER, run=0), 9)
        async with world(tmp_path, nodes=3) as made:
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made, 0) == expected(range(10, 70), 10, 43)
            assert merged(made, 1) == expected(range(10, 70), 20)

    in_loop(main)


def test_a_run_that_is_written_goes_on_behind_damage(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 25), 10)
        flip(files.file(1), 2 * SIZE + 50)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: merged(made) == expected(range(10, 25), 22))
            write(files, range(25, 45), 10)
            await until(lambda: merged(made) == expected(range(10, 45), 22))
            files.end()
            await until_shipped(client)

    in_loop(main)


def test_what_the_cluster_has_is_not_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        async with world(tmp_path) as made:
            made.cluster.releases = made.cluster.closes = False
            client = made.push(files.path)
            await until(lambda: merged(made) == expected(range(10, 30)))
            await client.stop()
            write(files, range(30, 40), 100)
            files.end()
            flip(files.file(0), 5 * SIZE + 30)
            flip(files.file(0), 25 * SIZE + 30)
            made.cluster.releases = made.cluster.closes = True
            again = made.push(files.path)
            await until_shipped(again)
            assert merged(made) == expected(range(10, 40), 35)

    in_loop(main)


def test_copies_of_a_damaged_directory_are_shipped_in_the_same_parts(tmp_path: Path) -> None:
    """So a cluster knows what it has of a directory that is put back from a copy."""

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        files.end()
        flip(files.file(0), 5 * SIZE + 30)
        copy = tmp_path / "copy"
        shutil.copytree(files.path, copy)
        ids: list[str | None] = []
        for path in (files.path, copy):
            async with world(tmp_path / f"world of {path.name}") as made:
                client = made.push(path)
                await until_shipped(client)
                assert merged(made) == expected(range(10, 30), 15)
                found = (path / "damage.0.json").read_bytes()
                ids.append(decode_directory_file(found, "damage", DamageFile).run_id)
        assert ids[0] == ids[1] is not None

    in_loop(main)


def test_a_node_that_has_damaged_bytes_spares_them(tmp_path: Path) -> None:
    """One node got the bytes before they were damaged; another one asks for them."""

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        async with world(tmp_path, nodes=2) as made:
            made.cluster.releases = made.cluster.closes = False
            client = made.push(files.path, addresses=(made.nodes[0].address,))
            await until(lambda: merged(made) == expected(range(10, 30)))
            await client.stop()
            write(files, range(30, 40), 100)
            files.end()
            flip(files.file(0), 5 * SIZE + 30)
            made.cluster.releases = made.cluster.closes = True
            client = made.push(files.path, addresses=(made.nodes[1].address,))
            await until(lambda: merged(made) == expected(range(10, 40)))
            await until_shipped(client)
            assert not client.status.damaged

    in_loop(main)


def test_a_part_waits_until_the_last_one_is_merged(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        files.end()
        flip(files.file(0), 5 * SIZE + 30)
        async with world(tmp_path) as made:
            made.cluster.releases = False
            client = made.push(files.path)
            await until(lambda: FLIGHTS in client.progress)
            await until(lambda: client.progress[FLIGHTS].acknowledged == (0, 0, 5 * SIZE))
            await until(lambda: client.status.nodes[0].phase is PushPhase.IDLE)
            await client.stop()
            assert damage_file(files).run_id is None
            made.cluster.releases = True
            made.cluster.move()
            await until_shipped(made.push(files.path))
            assert merged(made) == expected(range(10, 30), 15)
            assert damage_file(files).starts == {"flights-0": (0, 0, 6 * SIZE)}

    in_loop(main)


def test_an_input_whose_file_is_gone_holds_up_nothing(tmp_path: Path) -> None:
    """The cluster merged what it had of a file that a loss of power removed."""

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        write(files, range(10, 20), 100, partition=1)
        async with world(tmp_path) as made:
            made.cluster.releases = made.cluster.closes = False
            client = made.push(files.path)
            await until(lambda: merged(made, 1) == expected(range(10, 20)))
            await client.stop()
            write(files, range(30, 40), 100)
            files.end()
            flip(files.file(0), 25 * SIZE + 30)
            files.file(0, name=OTHER).unlink()
            made.cluster.releases = made.cluster.closes = True
            await until_shipped(made.push(files.path))
            assert merged(made) == expected(range(10, 40), 35)

    in_loop(main)


def test_damage_to_the_end_holds_up_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 15), 100)
        files.end()
        end = files.log().end(0)
        files.begin()
        write(files, range(15, 20), 100)
        files.end()
        flip(files.file(0, run=0), 3 * SIZE + 30)
        flip(files.file(0, run=0), 4 * SIZE + 30)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made) == expected(range(10, 20), 13, 14)
            assert client.progress[FLIGHTS].merged > (0, *end)

    in_loop(main)


def test_an_unreadable_record_stops_its_run_and_later_ones(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        for begin in (10, 20, 30):
            files.begin()
            write(files, range(begin, begin + 10), 100)
            files.end()
        record = files.path / "run.1.json"
        record.write_bytes(bytes(100))
        (files.path / "run-again.1.json").write_bytes(bytes(100))
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: merged(made) == expected(range(10, 20)))
            assert re.search(
                rf"{record}, byte 0: unreadable .*; restore one of them; or rename this one, and ",
                str(client.status.session_fault),
            )
            assert record.read_bytes() == bytes(100)
            record.rename(files.path / "run.1.json.old")
            await until(lambda: client.status.session_fault is None)
            await until(lambda: merged(made) == expected([*range(10, 20), *range(30, 40)]))
            assert files.file(0, run=1).stat().st_size == 10 * SIZE

    in_loop(main)


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_record_of_a_run_is_read_from_its_copy(
    tmp_path: Path, is_missing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """All records are shipped under the run's own id, so none is merged twice."""

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 10)
        files.end()
        record = files.path / "run.0.json"
        record.write_bytes(bytes(100))
        if is_missing:
            record.unlink()
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made) == expected(range(10, 30))
            assert list(made.cluster.runs["s"]) == ["run-0"]
            assert client.status.session_fault is None

    with caplog.at_level(logging.ERROR):
        in_loop(main)
    assert "run.0.json is damaged or missing; " in caplog.text


def test_an_input_that_cannot_be_read_stops_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sector of its file, and then its directory."""
    failing = {"flights-1/log.0.0"}

    def fail(path: str) -> None:
        if any(path.endswith(name) for name in failing):
            raise DiskFault(path, "read", errno.EIO)

    read, listed = OsFile.pread, OsFileSystem.list_directory

    def pread(self: OsFile, size: int, position: int) -> bytes:
        fail(self.path)
        return read(self, size, position)

    def list_directory(self: OsFileSystem, path: Any) -> list[str]:
        fail(str(path))
        return listed(self, path)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        for partition in (0, 1, 2):
            write(files, range(10, 30), 100, partition=partition)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: merged(made, 0) == merged(made, 2) == expected(range(10, 30)))
            assert merged(made, 1) == []
            await until(lambda: "log.0.0" in client.status.nodes[0].problems.get(OTHER, ""))
            failing.clear()
            failing.add("flights-1")
            files.roll(OTHER)
            write(files, range(30, 40), 100, partition=2)
            await until(lambda: merged(made, 2) == expected(range(10, 40)))
            assert "flights-1" in str(client.status.session_fault)
            failing.clear()
            files.end()
            await until_shipped(client)
            assert merged(made, 1) == expected(range(10, 30))
            assert client.status.session_fault is None

    monkeypatch.setattr(OsFile, "pread", pread)
    monkeypatch.setattr(OsFileSystem, "list_directory", list_directory)
    in_loop(main)


def test_nothing_behind_damage_in_a_stage_is_shipped(tmp_path: Path) -> None:
    """A stage is published whole or not at all: its damage is reported, and its files stay."""

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin(stage="sink")
        write(files, range(10, 40), 10)
        files.end()
        flip(files.file(1), 57)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: client.status.damaged)
            [lost] = client.status.damaged
            assert (lost.run, lost.start, lost.stage) == (0, (1, 0), "sink")
            await until(lambda: made.cluster.runs["s"]["run-0"].closed)
            made.cluster.move()
            await until(lambda: client.status.lost)
            assert merged(made) == expected(range(10, 20))
            assert files.file(2).exists()
            client.look(is_whole=True)
            assert client.status.damaged == (lost,)

    in_loop(main)


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 15), 100)
        files.die()
        with files.file(0).open("ab") as opened:
            opened.write(batch(b"15")[:-3] + b"\0\0\0")
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until_shipped(client)
            assert merged(made) == expected(range(10, 15))
            assert not client.status.damaged
            assert not list(files.path.glob("damage.*"))

    in_loop(main)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_and_whenever_shipping_stops(tmp_path: Path, seed: int) -> None:
    """Clients come and go at any moment: each intact record arrives once, in order."""
    source = random.Random(seed)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        lost = {0: set[int](), 1: set[int]()}
        last = 10
        for _ in range(3):
            files.begin()
            for partition in range(2):
                write(files, range(last, last + 20), source.randrange(4, 30), partition)
            files.end()
            for partition in range(2):
                _damage_some(source, files, ("flights", partition), lost[partition])
            last += 20
        async with world(tmp_path, nodes=source.randrange(1, 4)) as made:
            await _ship_with_breaks(source, made, files)
            for partition in range(2):
                assert merged(made, partition) == expected(range(10, last), *lost[partition])

    in_loop(main)


def _damage_some(
    source: random.Random, files: SessionFiles, name: tuple[str, int], lost: set[int]
) -> None:
    """Turn bits in some batches of the open run; a file may vanish."""
    roll = 0
    while (path := files.file(roll, name)).exists():
        batches = path.stat().st_size // SIZE
        numbers = _numbers(path)
        is_complete = files.file(roll + 1, name).exists()
        if batches and is_complete and source.random() < 0.15 and roll:
            lost.update(numbers)
            path.unlink()
        for place in range(batches if path.exists() else 0):
            if source.random() < 0.12:
                lost.add(numbers[place])
                flip(path, place * SIZE + source.randrange(20, SIZE), source.randrange(8))
        roll += 1


def _numbers(path: Path) -> list[int]:
    data = path.read_bytes()
    return [
        int(data[at + SIZE - 3 : at + SIZE - 1]) for at in range(0, len(data) // SIZE * SIZE, SIZE)
    ]


async def _ship_with_breaks(source: random.Random, made: World, files: SessionFiles) -> None:
    for _ in range(source.randrange(4)):
        client = made.push(files.path)
        wanted = source.randrange(60)
        await until(lambda: len(merged(made)) >= wanted or client.is_released)  # noqa: B023
        await client.stop()
    await until_shipped(made.push(files.path))


def test_damage_is_copied_while_the_loop_runs_and_before_its_part_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow: bytes before the damage are shipped, bytes behind it wait for the copy."""
    copies, keep = threading.Event(), keep_damaged
    begun: list[int] = []

    def slow(*given: Any) -> Any:
        begun.append(threading.get_ident())
        assert copies.wait(PATIENCE_S)
        return keep(*given)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 40), 10)
        files.end()
        flip(files.file(0), SIZE * 4 + 60)
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: bool(begun))
            assert begun[0] != threading.get_ident()
            for _ in range(50):
                await asyncio.sleep(0.001)
            assert merged(made) == expected(range(10, 14))
            assert len(begun) == 1
            copies.set()
            await until_shipped(client)
            assert merged(made) == expected(range(10, 40), 14)
            [lost] = client.status.damaged
            assert lost.kept is not None

    monkeypatch.setattr(session_damage, "keep_damaged", slow)
    in_loop(main)


def test_damage_behind_the_end_of_a_closed_run_holds_up_nothing(tmp_path: Path) -> None:
    """The directory is an old copy: the cluster had closed the run at the end that another life of
    the session gave it. Damage behind that end was found after it, and the runs that followed were
    never shipped (world 890000350).
    """

    async def main() -> None:
        first, copy = SessionFiles(tmp_path / "first"), SessionFiles(tmp_path / "copy")
        first.begin()
        write(first, range(10, 14), 100)
        first.end()
        copy.begin()
        write(copy, range(10, 20), 100)
        copy.end()
        flip(copy.file(0), 6 * SIZE + 50)
        async with world(tmp_path) as made:
            client = made.push(first.path)
            await until_shipped(client)
            await client.stop()
            client = made.push(copy.path)
            await until(lambda: bool(client.status.lost))
            tail = client._session.tail(0, FLIGHTS)
            while tail.advance():
                pass
            assert tail.damage is not None
            client._session.look_again()
            await until(lambda: not client._session.is_noting)
            copy.begin()
            write(copy, range(20, 30), 100)
            copy.end()
            await until(lambda: merged(made) == expected([*range(10, 14), *range(20, 30)]))
            [lost] = client.status.lost
            assert (lost.run, lost.start) == (0, (0, 4 * SIZE))
            assert not list(copy.path.glob("damage.*"))

    in_loop(main)


def test_damage_that_is_found_while_a_part_waits_is_reported(tmp_path: Path) -> None:
    """The next part began behind it before it was noted: the records were skipped, and told as
    merged (world 920000825).
    """

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 30), 100)
        write(files, range(10, 30), 100, partition=1)
        flip(files.file(0), 5 * SIZE + 30)
        async with world(tmp_path) as made:
            made.cluster.releases = False
            client = made.push(files.path)
            await until(lambda: 0 in client._progress.unfinished)
            write(files, range(30, 40), 100, partition=1)
            flip(files.file(0, name=OTHER), 20 * SIZE + 30)
            files.end()
            client._session.look_again()
            tail = client._session.tail(0, OTHER)
            while tail.advance():
                pass
            assert tail.damage is not None
            made.cluster.releases = True
            made.cluster.move()
            await until_shipped(client)
            assert merged(made, 0) == expected(range(10, 30), 15)
            assert merged(made, 1) == expected(range(10, 40), 30)
            lost = [(each.name, each.start) for each in client.status.damaged]
            assert lost == [(FLIGHTS, (0, 5 * SIZE)), (OTHER, (0, 20 * SIZE))]

    in_loop(main)


def test_a_run_that_is_closed_while_its_damage_is_noted_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is put back from a copy: the cluster has closed the part before the damage."""
    copies, keep = threading.Event(), keep_damaged

    def slow(*given: Any) -> Any:
        assert copies.wait(PATIENCE_S)
        return keep(*given)

    async def main() -> None:
        files = SessionFiles(tmp_path / "s")
        files.begin()
        write(files, range(10, 40), 10)
        files.end()
        flip(files.file(0), SIZE * 4 + 60)
        shutil.copytree(files.path, tmp_path / "copy")
        async with world(tmp_path) as made:
            client = made.push(files.path)
            await until(lambda: len(merged(made)) == 4)
            copies.set()
            await until_shipped(client)
            await client.stop()
            copies.clear()
            shutil.rmtree(files.path)
            shutil.copytree(tmp_path / "copy", files.path)
            client = made.push(files.path)
            await until(lambda: bool(client._progress.unfinished))
            copies.set()
            await until_shipped(client)
            assert merged(made) == expected(range(10, 40), 14)

    monkeypatch.setattr(session_damage, "keep_damaged", slow)
    in_loop(main)
