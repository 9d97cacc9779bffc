"""inotify: what happens to files is noticed, in a loop and in a thread."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.runtime.inotify import (
    DIRECTORY_CHANGED,
    Event,
    Inotify,
    LoopInotify,
    Mask,
    parse_events,
)
from tests.patience import PATIENCE_S
from tests.runtime.peers import in_loop, until


def test_growth_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    inotify = Inotify()
    watch = inotify.add(str(path), Mask.MODIFY)
    assert inotify.read() == []
    path.write_bytes(b"x")
    events = inotify.wait(PATIENCE_S)
    assert events[0] == Event(watch, Mask.MODIFY, "")
    inotify.close()


def test_names_in_a_directory(tmp_path: Path) -> None:
    inotify = Inotify()
    watch = inotify.add(str(tmp_path), DIRECTORY_CHANGED)
    (tmp_path / "new").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "moved.tmp").touch()
    os.replace(tmp_path / "moved.tmp", tmp_path / "moved")
    found = {(event.mask, event.name) for event in inotify.wait(PATIENCE_S)}
    assert (Mask.CREATE, "new") in found
    assert (Mask.CREATE | Mask.IS_DIR, "sub") in found
    assert (Mask.MOVED_TO, "moved") in found
    assert {event.watch for event in inotify.read()} <= {watch}
    inotify.close()


def test_a_removed_watch_and_a_deleted_file_say_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    inotify = Inotify()
    watch = inotify.add(str(path), Mask.MODIFY | Mask.DELETE_SELF)
    path.unlink()
    masks = [event.mask for event in inotify.wait(PATIENCE_S)]
    assert masks == [Mask.DELETE_SELF, Mask.IGNORED]
    with pytest.raises(OSError, match="watch"):
        inotify.remove(watch)
    inotify.close()


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    inotify = Inotify()
    with pytest.raises(FileNotFoundError):
        inotify.add(str(tmp_path / "no"), Mask.MODIFY)
    inotify.close()
    inotify.close()


def test_waiting_in_a_thread_ends_with_the_event_or_the_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    inotify = Inotify()
    inotify.add(str(path), Mask.MODIFY)
    assert inotify.wait(0.01) == []
    found: list[Event] = []
    thread = threading.Thread(target=lambda: found.extend(inotify.wait(PATIENCE_S)))
    thread.start()
    path.write_bytes(b"x")
    thread.join(PATIENCE_S)
    assert found
    inotify.close()


def test_events_reach_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    found: list[Event] = []

    async def main() -> None:
        inotify = Inotify()
        inotify.add(str(path), Mask.MODIFY)
        inotify.attach(asyncio.get_running_loop(), found.extend)
        path.write_bytes(b"x")
        await until(lambda: found)
        inotify.close()

    in_loop(main)


def test_changes_that_follow_closely_wait_until_something_waits_for_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    found: list[Event] = []

    async def main() -> None:
        inotify = Inotify()
        inotify.linger.limit(3600.0)
        inotify.add(str(path), Mask.MODIFY)
        inotify.attach(asyncio.get_running_loop(), found.extend)
        path.write_bytes(b"x")
        await until(lambda: found)
        told = len(found)
        path.write_bytes(b"xy")
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(found) == told
        inotify.hurry()
        assert len(found) > told
        told = len(found)
        inotify.hurry()
        assert len(found) == told
        path.write_bytes(b"xyz")
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(found) == told
        inotify.close()
        inotify.hurry()
        assert len(found) == told

    in_loop(main)


def test_gathered_changes_are_told_together_after_the_linger(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    found: list[list[Event]] = []

    async def main() -> None:
        inotify = Inotify()
        inotify.linger.limit(0.01)
        inotify.add(str(tmp_path), DIRECTORY_CHANGED)
        inotify.attach(asyncio.get_running_loop(), found.append)
        inotify.linger.sent(asyncio.get_running_loop().time() + 3600)
        (tmp_path / "first").touch()
        (tmp_path / "second").touch()
        await until(lambda: found)
        assert {event.name for event in found[0]} == {"first", "second"}
        inotify.close()

    in_loop(main)


def test_an_overflow_is_an_event(tmp_path: Path) -> None:
    """The kernel keeps so many events; equal ones in a row count once, hence two files."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 20_000:
        pytest.skip(f"the queue takes {limit} events")
    inotify = Inotify()
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.touch()
        inotify.add(str(path), Mask.ATTRIB)
    for _ in range(limit // 2 + 1):
        for path in paths:
            os.utime(path)
    masks: list[int] = []
    while events := inotify.read():
        masks += [event.mask for event in events]
    assert masks[-1] == Mask.OVERFLOW
    inotify.close()


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**31 - 1),
            st.sampled_from([Mask.MODIFY, Mask.CREATE | Mask.IS_DIR, Mask.OVERFLOW]),
            st.from_regex(r"\A[a-z.]{0,40}\Z"),
        )
    )
)
def test_any_events_are_parsed(events: list[tuple[int, int, str]]) -> None:
    data = b""
    for watch, mask, name in events:
        encoded = name.encode()
        padded = encoded + b"\0" * (16 - len(encoded) % 16) if encoded else b""
        data += struct.pack("iIII", watch, mask, 0, len(padded)) + padded
    assert parse_events(data) == [Event(*event) for event in events]


# --- shared by all of a loop ----------------------------------------------------------------------


def instances() -> int:
    """How many inotify instances this process has."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.islink(link) and "inotify" in os.readlink(link) for link in links)


class Part:
    """One who watches a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.events: list[Event] = []
        self.inotify = LoopInotify()
        self.watch = self.inotify.add(str(path), DIRECTORY_CHANGED)
        self.inotify.attach(asyncio.get_running_loop(), self.events.extend)


def test_those_of_a_loop_share_an_instance_and_hear_their_own(tmp_path: Path) -> None:
    before = instances()

    async def main() -> None:
        first, second, third = (Part(tmp_path / name) for name in "abc")
        assert instances() == before + 1
        (second.path / "new").touch()
        await until(lambda: second.events)
        assert {event.watch for event in second.events} == {second.watch}
        third.inotify.close()
        (third.path / "new").touch()
        (first.path / "new").touch()
        await until(lambda: first.events)
        assert third.events == []
        first.inotify.close()
        second.events.clear()
        (second.path / "newer").touch()
        await until(lambda: second.events)
        second.inotify.close()
        assert instances() == before
        again = Part(tmp_path / "d")
        (again.path / "new").touch()
        await until(lambda: again.events)
        again.inotify.close()

    in_loop(main)
    assert instances() == before


def test_lost_events_are_told_to_all_of_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Event(-1, Mask.OVERFLOW, "")
    monkeypatch.setattr(Inotify, "read", lambda self: [lost])

    async def main() -> None:
        parts = [Part(tmp_path / name) for name in "ab"]
        (parts[0].path / "new").touch()
        await until(lambda: all(part.events for part in parts))
        for part in parts:
            assert set(part.events) == {lost}
            part.inotify.close()

    in_loop(main)


def test_a_directory_that_goes_is_told_and_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        part = Part(tmp_path / "a")
        part.path.rmdir()
        await until(lambda: any(event.mask & Mask.IGNORED for event in part.events))
        part.inotify.close()

    in_loop(main)
