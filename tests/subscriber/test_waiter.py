"""Waiting for files to grow: by being woken, and by watching."""

from __future__ import annotations

import threading
from pathlib import Path

from samelog.subscriber.waiter import Waiter
from tests.patience import PATIENCE_S


def test_a_wake_ends_the_next_wait_and_only_that() -> None:
    waiter = Waiter(is_woken=True)
    assert not waiter.is_blind
    for _ in range(100_000):  # more than a pipe holds, if each took a place in it
        waiter.wake()
    assert waiter.wait(PATIENCE_S)
    assert not waiter.wait(0.0)
    waiter.wake_to_rescan()
    assert waiter.wait(PATIENCE_S)
    assert waiter.names_changed
    waiter.close()
    waiter.wake()


def test_no_wake_of_another_thread_is_lost() -> None:
    waiter, grown, seen = Waiter(is_woken=True), 0, 0

    def grow() -> None:
        nonlocal grown
        for _ in range(2_000):
            grown += 1
            waiter.wake()

    thread = threading.Thread(target=grow)
    thread.start()
    while seen < 2_000:
        assert waiter.wait(PATIENCE_S)
        seen = grown
    thread.join()
    waiter.close()


def test_what_is_woken_watches_nothing(tmp_path: Path) -> None:
    waiter = Waiter(is_woken=True)
    assert not waiter.watch_directory(str(tmp_path))
    (tmp_path / "new").touch()
    assert not waiter.wait(0.0)
    waiter.close()


def test_another_process_s_file_is_watched(tmp_path: Path) -> None:
    path, waiter = tmp_path / "log", Waiter()
    path.touch()
    assert waiter.watch_file(str(path))
    assert not waiter.watch_file(str(path))
    path.write_bytes(b"x")
    assert waiter.wait(PATIENCE_S)
    waiter.close()
