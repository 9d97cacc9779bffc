"""How much a process uses of its limits."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from samelog.runtime import resources
from samelog.runtime.descriptors import open_descriptors
from samelog.runtime.resources import memory, threads
from tests.patience import PATIENCE_S

MB = 1 << 20


def test_descriptors_and_threads_are_counted() -> None:
    opened, running = open_descriptors(), threads().used
    go_on = threading.Event()
    others = [threading.Thread(target=go_on.wait, args=(PATIENCE_S,)) for _ in range(5)]
    with ExitStack() as stack:
        for _ in range(20):
            stack.callback(os.close, os.eventfd(0))
        assert open_descriptors() == opened + 20
        for other in others:
            other.start()
        try:
            assert threads().used == running + 5
        finally:
            go_on.set()
            for other in others:
                other.join()


def test_memory_is_what_is_resident() -> None:
    before = memory()
    taken = b"x" * (64 * MB)
    assert memory().used - before.used > 32 * MB, len(taken)
    assert before.used < before.limit


def test_control_groups_limit_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "stat").write_text("7 (a) b) " + " ".join(map(str, range(40))))
    (proc / "self" / "cgroup").write_text("4:memory:/other\n0::/outer/inner\n")
    (groups / "outer" / "inner").mkdir(parents=True)
    (groups / "outer" / "memory.max").write_text("4096\n")
    (groups / "outer" / "inner" / "memory.max").write_text("max\n")
    (groups / "outer" / "inner" / "pids.max").write_text("19\n")
    monkeypatch.setattr(resources, "PROC", proc)
    monkeypatch.setattr(resources, "CONTROL_GROUPS", groups)
    assert memory() == (21 * os.sysconf("SC_PAGESIZE"), 4096)
    assert threads() == (17, 19)
    (proc / "self" / "cgroup").unlink()
    assert memory().limit > 4096
