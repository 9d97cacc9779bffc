"""Real processes: nodes are added, replaced, removed and restarted while records are published."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shiplog import Publisher
from tests.e2e.harness import World, wait_for

RATE_S = 0.004
PAUSE_LIMIT_S = 1.5
"""Far above what is promised (200 ms on a quiet machine), for machines that are busy."""


def say(text: str) -> None:
    """What was measured; pytest -s shows it."""
    sys.stdout.write(text + "\n")


def shiplog(world: World, *arguments: str) -> Any:
    """What a command prints as JSON; it has to succeed."""
    command = [sys.executable, "-m", "shiplog", *arguments]
    command += ["--config", world.cluster.client_file, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Writer:
    """Appends numbered records all the time, and notes when acknowledgements moved."""

    def __init__(self, publisher: Publisher) -> None:
        self.count = 0
        self.pauses: list[tuple[float, float]] = []
        """(when it ended, how long) of each wait for an acknowledgement above 20 ms."""
        self._publisher = publisher
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._write, self._watch)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        while not self._stop.wait(RATE_S):
            self._publisher.append(b"%07d" % self.count)
            self.count += 1

    def _watch(self) -> None:
        last, moved_at = None, time.monotonic()
        while not self._stop.wait(0.002):
            now = time.monotonic()
            acknowledged = self._publisher.positions.acknowledged
            if acknowledged != last:
                if last is not None and now - moved_at > 0.02:
                    self.pauses.append((now, now - moved_at))
                last, moved_at = acknowledged, now

    def longest_since(self, when: float) -> float:
        """The longest wait that ended after `when`, in seconds."""
        return max((pause for ended, pause in self.pauses if ended > when), default=0.02)


@contextmanager
def writing(world: World) -> Iterator[Writer]:
    """A publisher that writes until the end of the block; then everything is merged."""
    with world.publisher("a") as publisher:
        writer = Writer(publisher)
        writer.start()
        try:
            wait_for(lambda: writer.count > 50, "some records")
            yield writer
        finally:
            writer.stop()
        publisher.wait_merged(timeout=40)


def members(world: World) -> set[str]:
    return {node["name"] for node in shiplog(world, "node", "list")}


def assert_nothing_lost_doubled_or_reordered(world: World, count: int) -> None:
    """From the files of the nodes that are left, and a subscriber's copy of them."""
    world.wait_offset(count)
    wanted = [b"%07d" % number for number in range(count)]
    assert [record.value for record in world.read(count)] == wanted
    world.assert_identical()
    assert world.copied_bytes() == world.merged_bytes(world.cluster.nodes[0])


def test_nodes_are_added_replaced_and_removed_while_a_publisher_writes(world: World) -> None:
    cluster = world.cluster
    with writing(world) as writer:
        fourth = cluster.join()
        fourth.start()  # it waits until somebody adds it
        shiplog(world, "node", "add", fourth.name, str(fourth.address), "--wait", "60")
        fifth = cluster.join()
        fifth.start()
        first = cluster.nodes[0]
        shiplog(
            world, "node", "replace", first.name, fifth.name, str(fifth.address), "--wait", "60"
        )
        wait_for(lambda: first.pid is None, "the replaced node ends by itself")
        assert first.exit_code() == 1
        assert "removed" in Path(first.log_file).read_text()
        second = cluster.nodes[1]
        shiplog(world, "node", "remove", second.name)
        wait_for(lambda: second.pid is None, "the removed node ends by itself")
        before = writer.count
        wait_for(lambda: writer.count > before + 50, "more records")
    cluster.nodes = [node for node in cluster.nodes if node.pid is not None]
    assert members(world) == {node.name for node in cluster.nodes}
    assert_nothing_lost_doubled_or_reordered(world, writer.count)
    say(f"longest wait for an acknowledgement: {1000 * writer.longest_since(0):.0f} ms")


def test_a_rolling_restart_costs_no_write_and_little_time(world: World) -> None:
    with writing(world) as writer:
        for node in world.cluster.nodes:
            role = "leader" if world.leader() is node else "follower"
            began = time.monotonic()
            node.stop()
            assert node.exit_code() == 0
            node.start()
            world.wait_live(node)
            longest = writer.longest_since(began)
            say(f"{node.name}, {role}: longest wait {1000 * longest:.0f} ms")
            assert longest < PAUSE_LIMIT_S
    assert_nothing_lost_doubled_or_reordered(world, writer.count)
