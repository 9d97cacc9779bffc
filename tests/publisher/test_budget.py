"""A session's disk budget, and a disk that is full."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from pathlib import Path

import pytest

from samelog import AsyncPublisher, Publisher
from samelog.format.directory_files import ShippingFile
from samelog.publisher import AppendTooLarge, BudgetExceeded, DiskFull, PublisherClosed
from samelog.publisher.options import PublisherKeywords
from samelog.store.disk.files import DiskFault, OsFileSystem
from samelog.store.disk.json_files import write_json_file
from tests.e2e.harness import wait_for
from tests.patience import PATIENCE_S
from tests.publisher import reading
from tests.store.full_disk import ROOM_BYTES, small_disk

VALUE = bytes(1000)
BUDGET_BYTES = 64 << 10


def used_bytes(session: Path) -> int:
    return sum(path.stat().st_size for path in session.glob("*/log.*"))


def fill(publisher: Publisher) -> int:
    """Append until there is no more room; how many records."""
    for count in itertools.count():
        try:
            publisher.append(VALUE)
        except BudgetExceeded:
            return count
    raise AssertionError("unreachable")


def sealed_names(session: Path) -> list[str]:
    return [name for name in reading.log_names(session) if ".sealed-" in name]


def release_first(session: Path) -> None:
    """Release a sealed file."""
    marker = sealed_names(session)[0]
    reading.release(session, marker.split(".sealed-")[0], marker)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_full_budget_raises_and_holds(tmp_path: Path, partitions: int) -> None:
    with Publisher(
        "t",
        session="s",
        directory=tmp_path,
        budget_bytes=BUDGET_BYTES,
        on_full="raise",
        partitions=partitions,
    ) as publisher:
        count = fill(publisher)
        with pytest.raises(BudgetExceeded, match="nothing of it is released yet"):
            publisher.append(VALUE * 2)
        assert BUDGET_BYTES - 2000 < used_bytes(tmp_path / "s") <= BUDGET_BYTES
        assert fill(publisher) <= 1
    assert count * 1000 < BUDGET_BYTES


@pytest.mark.parametrize("on_full", ["raise", "block"])
def test_a_full_budget_names_what_is_held_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_full: str
) -> None:
    options: PublisherKeywords = {"directory": tmp_path, "budget_bytes": BUDGET_BYTES}
    options["on_full"] = "raise"
    with Publisher("t", session="s", **options) as publisher:
        fill(publisher)
    held = ShippingFile(held=(0, 0, 1000))
    write_json_file(OsFileSystem(), str(tmp_path / "s" / "t-0" / "shipping.json"), held)
    wanted = (
        f"{used_bytes(tmp_path / 's') - 1000} bytes are held, because their topic was deleted: "
        "ship them to the next topic of that name with: samelog session continue s; or drop them "
        "with: samelog session discard s --confirm s, or raise budget_bytes"
    )
    options["on_full"] = on_full
    with Publisher("t", session="s", **options) as publisher:
        if on_full == "raise":
            with pytest.raises(BudgetExceeded, match=wanted):
                publisher.append(VALUE)
            return
        thread = threading.Thread(target=publisher.append, args=(VALUE,))
        thread.start()
        wait_for(lambda: wanted in caplog.text, "the warning")
        release_first(tmp_path / "s")
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert caplog.text.count("append waits: ") == 1


def test_a_full_session_seals_its_files_so_that_they_can_be_released(tmp_path: Path) -> None:
    with Publisher(
        "t", session="s", directory=tmp_path, budget_bytes=BUDGET_BYTES, on_full="raise"
    ) as publisher:
        fill(publisher)
        names = [name.split(".sealed-")[0] for name in sealed_names(tmp_path / "s")]
        assert sum((tmp_path / "s" / "t-0" / n).stat().st_size for n in names) == used_bytes(
            tmp_path / "s"
        )
        release_first(tmp_path / "s")
        publisher.append(VALUE)


def test_what_an_older_run_left_counts(tmp_path: Path) -> None:
    options = {"session": "s", "directory": tmp_path, "budget_bytes": BUDGET_BYTES}
    with Publisher("t", **options, on_full="raise") as publisher:  # type: ignore[arg-type]
        fill(publisher)
    with (
        Publisher("t", **options, on_full="raise") as publisher,  # type: ignore[arg-type]
        pytest.raises(BudgetExceeded),
    ):
        publisher.append(VALUE)


def test_a_blocked_append_goes_on_when_something_is_released(tmp_path: Path) -> None:
    appended = threading.Event()
    with Publisher("t", session="s", directory=tmp_path, budget_bytes=BUDGET_BYTES) as publisher:
        for _ in range(BUDGET_BYTES // 1100):
            publisher.append(VALUE)

        def append() -> None:
            for _ in range(6):
                publisher.append(VALUE)
            appended.set()

        thread = threading.Thread(target=append)
        thread.start()
        assert not appended.wait(0.3)
        release_first(tmp_path / "s")
        assert appended.wait(PATIENCE_S)
        thread.join()


def test_closing_ends_a_blocked_append(tmp_path: Path) -> None:
    publisher = Publisher("t", session="s", directory=tmp_path, budget_bytes=BUDGET_BYTES)
    ended = threading.Event()

    def append() -> None:
        try:
            while True:
                publisher.append(VALUE)
        except PublisherClosed:
            ended.set()

    thread = threading.Thread(target=append)
    thread.start()
    assert not ended.wait(0.3)
    publisher.close()
    assert ended.wait(PATIENCE_S)
    thread.join()


def test_an_append_larger_than_the_budget_never_waits(tmp_path: Path) -> None:
    with Publisher("t", session="s", directory=tmp_path, budget_bytes=BUDGET_BYTES) as publisher:
        with pytest.raises(AppendTooLarge, match="can never fit"):
            publisher.append_many([VALUE] * 100)
        publisher.append(VALUE)


def test_an_event_loop_goes_on_while_an_append_waits_for_room(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPublisher(
            "t", session="s", directory=tmp_path, budget_bytes=BUDGET_BYTES
        ) as publisher:
            for _ in range(BUDGET_BYTES // 1100):
                await publisher.append(VALUE)
            waiting = asyncio.ensure_future(append_all(publisher))
            _, pending = await asyncio.wait([waiting], timeout=0.3)
            assert pending
            release_first(tmp_path / "s")
            async with asyncio.timeout(PATIENCE_S):
                await waiting

    async def append_all(publisher: AsyncPublisher) -> None:
        for _ in range(6):
            await publisher.append(VALUE)

    asyncio.run(main())


def test_a_full_disk_is_named_and_nothing_torn_is_left(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        publisher = Publisher("t", session="s", directory=disk, roll_bytes=4 << 20)
        with pytest.raises(DiskFull, match=r"t-0/log\.0\.0.*nothing of this append was kept"):
            publisher.append_many([VALUE] * (2 * ROOM_BYTES // 1000))
        publisher.append_many([VALUE] * 10)
        count = 10 + fill_disk(publisher)
        assert count * 1000 > ROOM_BYTES // 2
        assert len(reading.values(disk / "s")) == count
        assert used_bytes(disk / "s") == len(reading.raw(disk / "s"))
        with contextlib.suppress(DiskFault, DiskFull):  # the end of the run has no room either
            publisher.close()


def fill_disk(publisher: Publisher) -> int:
    """Append until the disk is full; how many records."""
    for count in itertools.count():
        try:
            publisher.append(VALUE)
        except DiskFull:
            return count
    raise AssertionError("unreachable")
