"""Pretended nodes that run in a thread, for clients that block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from samelog.replicator.interfaces import RowSource
from samelog.runtime.loop import LoopThread
from tests.replicator.fake_nodes import World


class Nodes:
    """A world of nodes, and the thread they live in."""

    def __init__(self, world: World, thread: LoopThread) -> None:
        self.world = world
        self._thread = thread

    def do(self, action: Callable[[], object]) -> None:
        """Do something in the nodes' thread."""
        self._thread.run(_as_coroutine(action))

    def stop_nodes(self) -> None:
        """The nodes cannot be reached any more."""
        for node in self.world.nodes:
            self._thread.run(node.stop())

    def start_nodes(self) -> None:
        """They can again."""
        for node in self.world.nodes:
            self._thread.run(node.start())


async def _as_coroutine(action: Callable[[], object]) -> None:
    action()


@contextmanager
def running(path: Path, count: int = 1, *, source: RowSource | None = None) -> Iterator[Nodes]:
    """Nodes that run."""
    thread = LoopThread("nodes")
    nodes = Nodes(World(path / "world", count, source=source), thread)
    nodes.start_nodes()
    try:
        yield nodes
    finally:
        thread.run(nodes.world.stop())
        thread.stop()
