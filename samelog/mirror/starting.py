"""Makes a sidecar of its configuration, and runs it until a signal, or its end.

Invariant: both clusters' configurations are read and checked before anything is opened.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

from samelog.config.load import load_client
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.mirror import MirrorConfig
from samelog.config.values import ConfigError
from samelog.http.metrics.sidecar import Side
from samelog.http.server import HttpServer
from samelog.http.sidecar_api import SidecarApi
from samelog.mirror.destination import Destination
from samelog.mirror.files_source import FilesSource
from samelog.mirror.samelog_source import SamelogSource
from samelog.mirror.serving import mirror_api
from samelog.mirror.sidecar import MirrorSidecar
from samelog.mirror.source import SourceCluster
from samelog.runtime.clock import SystemClock
from samelog.runtime.counters import watch_delay
from samelog.runtime.loop import end_all, spawn


def source_of(config: MirrorConfig) -> SourceCluster:
    """The source that it names. Raises ConfigError, TlsFault."""
    if config.source is not None and os.path.isdir(config.source):
        if not config.until:
            raise ConfigError(f"{config.source}: files do not grow: say in `until` where to end")
        return FilesSource(config.source)
    if config.source is not None:
        return SamelogSource(load_client(config.source))
    from samelog.mirror.kafka.source import KafkaClusterSource

    if config.kafka is None:
        raise ValueError("no source")
    return KafkaClusterSource(config.kafka)


HowFar = Callable[[], tuple[float, float | None, str]]
"""Says how much of how much is done, and what is done now."""


async def serve_mirror(
    config: MirrorConfig,
    say: Callable[[str], None],
    show: Callable[[HowFar], AbstractContextManager[None]],
) -> bool:
    """Mirror until a signal, or the end: whether that was reached. `show` shows meanwhile how far
    it is. Raises ConfigError, LogFormatError, TlsFault.
    """
    cluster, clock = load_client(config.destination), SystemClock()
    source = source_of(config)
    sidecar = MirrorSidecar(config, source, lambda: Destination(config, cluster), clock)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    side = Side(cluster, config.directory, config.http)
    api = mirror_api(sidecar.progress, side, clock, config.lag_unknown_s)
    server = await _served(config, cluster, api, say)
    watching = spawn(watch_delay(side.delays), "the event loop's delay")
    api.is_started = True
    say(f"mirroring {', '.join(config.topics)} as {config.named}")
    running = asyncio.ensure_future(sidecar.run())
    stopping = asyncio.ensure_future(_until(stop))
    try:
        with show(lambda: (*sidecar.progress.amount(), "mirroring")):
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
    finally:
        await end_all([watching, stopping, running])
        if server is not None:
            await server.close()
    return sidecar.progress.is_over


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


async def _served(
    config: MirrorConfig, cluster: ClientConfig, api: SidecarApi, say: Callable[[str], None]
) -> HttpServer | None:
    if config.http is None:
        return None
    server = HttpServer(config.http, cluster.tls, api)
    await server.start()
    say(f"answering HTTP on {server.address}")
    return server
