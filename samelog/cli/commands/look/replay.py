"""`samelog replay`: topics as they came, for Kafka clients.

Invariant: what is served can only be read, and nothing of it reaches the cluster.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.commands.subscribe import max_gap_option, parse_from
from samelog.cli.live_names import complete_topics
from samelog.cli.numbers import SPEED
from samelog.cli.output import client_option, fail, following, talk
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import LogLevel
from samelog.config.values import Address, is_loopback, parse_address
from samelog.format.names import check_topic_name
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import SystemClock
from samelog.runtime.log import start_log
from samelog.runtime.loop import run
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.replay import MAX_GAP_S, Pace
from samelog.subscriber.sidecar import SubscriberSidecar
from samelog.subscriber.start import NamedStart, StartOption

if TYPE_CHECKING:
    from samelog.kafka.replay.broker import ReplayStart
    from samelog.kafka.replay.service import ReplayListener


@click.group(cls=CommandGroup)
def command() -> None:
    """Serve topics again as they came, in their own time or faster, to any Kafka client.

    \b
    Examples:
      samelog replay serve --config client.toml --topic trades --dir copies --kafka 127.0.0.1:9095
      samelog replay serve --config client.toml --topic trades --topic quotes --dir copies \\
        --from 2026-11-20T08:00 --speed 60
    """


def _loopback(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Address | None:
    address = None if text is None else parse_address(text)
    if text is not None and (address is None or not is_loopback(address)):
        raise click.BadParameter(f"{text!r} is not an address of this host, such as 127.0.0.1:9095")
    return address


@command.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    help="May be repeated.",
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the copies.")
@click.option(
    "--kafka",
    "listen",
    metavar="HOST:PORT",
    callback=_loopback,
    default="127.0.0.1:9095",
    show_default=True,
    help="Where Kafka clients on this host connect; without TLS, so loopback only.",
)
@click.option(
    "--from",
    "start",
    callback=parse_from,
    default="earliest",
    show_default=True,
    help="earliest, an offset, or a time (ISO 8601).",
)
@click.option(
    "--speed",
    type=SPEED,
    default=1.0,
    show_default=True,
    help="How many times as fast as they came.",
)
@max_gap_option
@client_option
def serve(
    config: ClientConfig,
    *,
    topics: tuple[str, ...],
    directory: str | None,
    listen: Address,
    start: StartOption,
    speed: float,
    max_gap: float | None,
) -> None:
    """Serve topics from an offset or a time on, as far apart as their timestamps are.

    The copies in --dir (or `dir` in [subscriber] of the configuration) are brought up to date
    first, and kept so. The time of the replay begins with the first fetch. What consumer groups
    commit is forgotten when this ends.

    \b
    Examples:
      samelog replay serve --config client.toml --topic trades --dir copies
      samelog replay serve --config client.toml --topic trades --dir copies --from 1000 --speed 10
    """
    root = directory or config.subscriber.directory
    if root is None:
        fail("--dir is missing, and the configuration has no dir in [subscriber]")
    for topic in topics:
        check_topic_name(topic)
    run(_serve(root, topics, config, listen, (_start(start), Pace(speed, max_gap or MAX_GAP_S))))


def _start(start: StartOption) -> ReplayStart:
    if start == NamedStart.EARLIEST.value:
        return None
    if isinstance(start, datetime) or (isinstance(start, int) and start >= 0):
        return start
    raise click.UsageError(f"--from is earliest, an offset or a time, not {start}")


async def _serve(
    root: str,
    topics: tuple[str, ...],
    config: ClientConfig,
    listen: Address,
    replay: tuple[ReplayStart, Pace],
) -> None:
    """Until SIGTERM or SIGINT."""
    from samelog.kafka.replay.service import ReplayListener

    start_log(LogLevel.INFO)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    found: list[ReplayListener] = []

    def changed(copy: Copy) -> None:
        for each in found:
            each.changed(copy)

    sidecar = SubscriberSidecar(
        root,
        topics,
        config,
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=Random(),
        on_change=changed,
    )
    start, pace = replay
    listener = ReplayListener(
        config, topics, sidecar.copies, SystemClock(), listen=listen, start=start, pace=pace
    )
    found.append(listener)
    sidecar.start()
    talk(f"copying {', '.join(topics)} into {root}")
    try:
        with following(lambda: _copied(sidecar), is_bytes=False):
            await _open(listener, stop)
        if not stop.is_set():
            speed = f"{pace.speed:g} times as fast as it came"
            talk(f"replaying {', '.join(topics)} at {listen}, {speed}")
        await stop.wait()
    finally:
        await listener.close()
        await sidecar.stop()


def _copied(sidecar: SubscriberSidecar) -> tuple[float, float | None, str]:
    """How many offsets the copies have, of how many; no total before all copies are known."""
    copies = tuple(sidecar.copies.values())
    done = sum(copy.log.next_offset for copy in copies)
    ends = [copy.cluster_end for copy in copies if copy.cluster_end is not None]
    total = max(done, sum(ends)) if copies and len(ends) == len(copies) else None
    return done, total, "copying"


async def _open(listener: ReplayListener, stop: asyncio.Event) -> None:
    """Wait until it listens, or there is a signal."""
    from samelog.kafka.server.listener import ListenerFault

    opening, stopping = asyncio.create_task(listener.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            await opening
    except ListenerFault as fault:
        fail(str(fault))
    finally:
        opening.cancel()
        stopping.cancel()
        await asyncio.gather(opening, stopping, return_exceptions=True)
