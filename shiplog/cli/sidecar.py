"""`shiplog sidecar`: ships sessions, or keeps copies, for programs that only use local files.

Invariant: runs until SIGTERM or SIGINT, then stops cleanly with exit code 0.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from random import Random
from typing import Protocol

import click

from shiplog.cli.output import client_option, fail, talk
from shiplog.config.types import ClientConfig
from shiplog.logformat.files import OsFileSystem
from shiplog.logformat.names import check_topic_name
from shiplog.publisher.sidecar import PublisherSidecar
from shiplog.runtime.clock import SystemClock
from shiplog.runtime.loop import run
from shiplog.runtime.tls import ReloadingContext
from shiplog.subscriber.sidecar import SubscriberSidecar


class Sidecar(Protocol):
    """What both sidecars have in common."""

    def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


@click.group()
def command() -> None:
    """Ship the files of publishers, or keep the files of subscribers, from a process of its own.

    \b
    Examples:
      shiplog sidecar publisher --config client.toml --dir /var/lib/shiplog/sessions
      shiplog sidecar subscriber --config client.toml --dir /var/lib/shiplog/copies --topic flights
    """


@command.command()
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the sessions.")
@client_option
def publisher(config: ClientConfig, *, directory: str | None) -> None:
    """Ship every session found below --dir (or `dir` in [publisher] of the configuration).

    New sessions are noticed. A session that its publisher ships by itself is left alone.

    \b
    Example:
      shiplog sidecar publisher --config client.toml --dir /var/lib/shiplog/sessions
    """
    root = directory or config.publisher.directory
    if root is None:
        fail("--dir is missing, and the configuration has no dir in [publisher]")
    run(serve_publisher(root, config))


@command.command()
@click.option("--topic", "topics", required=True, multiple=True, help="May be repeated.")
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the copies.")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    type=click.Choice(["earliest", "latest"]),
    help="Where a copy that does not exist yet begins.",
)
@client_option
def subscriber(
    config: ClientConfig, *, topics: tuple[str, ...], directory: str | None, start: str
) -> None:
    """Keep copies of topics in --dir (or `dir` in [subscriber] of the configuration).

    \b
    Example:
      shiplog sidecar subscriber --config client.toml --dir copies --topic flights --topic trades
    """
    root = directory or config.subscriber.directory
    if root is None:
        fail("--dir is missing, and the configuration has no dir in [subscriber]")
    names = tuple(check_topic_name(topic) for topic in topics)
    run(serve_subscriber(root, names, config, from_latest=start == "latest"))


async def serve_publisher(root: str, config: ClientConfig) -> None:
    """Ship sessions until told to stop."""
    sidecar = PublisherSidecar(
        root,
        config,
        tls=ReloadingContext(config.tls),
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=Random(),
    )
    await serve(sidecar, f"shipping the sessions below {root}")


async def serve_subscriber(
    root: str, topics: tuple[str, ...], config: ClientConfig, *, from_latest: bool
) -> None:
    """Keep copies until told to stop."""
    sidecar = SubscriberSidecar(
        root,
        topics,
        config,
        tls=ReloadingContext(config.tls),
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=Random(),
        from_latest=from_latest,
    )
    await serve(sidecar, f"keeping copies of {', '.join(topics)} in {root}")


async def serve(sidecar: Sidecar, what: str) -> None:
    """Run a sidecar until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sidecar.start()
    talk(what)
    await stop.wait()
    await sidecar.stop()
