"""Sidecars in threads of a test, and topics that are deleted and created again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from samelog import Publisher
from samelog.config.load import load_client
from samelog.publisher.sidecar import PublisherSidecar
from samelog.runtime.clock import SystemClock
from samelog.runtime.loop import LoopThread
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.sidecar import SubscriberSidecar
from tests.e2e.harness import World


@contextmanager
def _running(made: PublisherSidecar | SubscriberSidecar) -> Iterator[None]:
    """Run a sidecar in a thread."""
    thread = LoopThread("sidecar")

    async def start() -> None:
        made.start()

    thread.run(start())
    try:
        yield
    finally:
        thread.run(made.stop())
        thread.stop()


@contextmanager
def publisher_sidecar(world: World) -> Iterator[PublisherSidecar]:
    """A publisher sidecar, in a thread."""
    config = load_client(world.cluster.client_file)
    made = PublisherSidecar(
        str(world.directory / "publishers"),
        config,
        tls=ReloadingContext(config.tls),
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=random.Random(1),
    )
    with _running(made):
        yield made


def local_publisher(
    world: World,
    session: str = "p",
    topic: str = "t",
    *,
    is_typed: bool = False,
    partitions: int | None = None,
) -> Publisher:
    """A publisher that leaves shipping to the sidecar. `is_typed`: it asks for schemas."""
    directory = world.directory / "publishers"
    directory.mkdir(parents=True, exist_ok=True)
    config = world.cluster.client_file if is_typed else None
    return Publisher(
        topic,
        session=session,
        directory=str(directory),
        config=config,
        ship=False,
        partitions=partitions,
    )


@contextmanager
def subscriber_sidecar(world: World, *topics: str) -> Iterator[SubscriberSidecar]:
    """A subscriber sidecar, in a thread."""
    config = load_client(world.cluster.client_file)
    directory = world.directory / "copies"
    directory.mkdir(parents=True, exist_ok=True)
    made = SubscriberSidecar(
        str(directory),
        topics,
        config,
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=random.Random(1),
    )
    with _running(made):
        yield made
