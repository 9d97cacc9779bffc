"""`samelog sidecar`: ships sessions, or keeps copies, for programs that only use local files.

Invariant: runs until SIGTERM or SIGINT, then stops cleanly with exit code 0.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Protocol

import click

from samelog.cli.command_group import CommandGroup
from samelog.cli.live_names import complete_sessions, complete_topics
from samelog.cli.output import client_option, fail, talk
from samelog.config.tables.client import ClientConfig, PublisherKafka, SubscriberKafka
from samelog.config.tables.shared import HttpConfig, LogLevel
from samelog.config.values import Address, is_loopback, parse_address
from samelog.format.names import check_copied_topic, check_session_name
from samelog.http.metrics.sidecar import Side
from samelog.http.server import HttpServer
from samelog.http.sidecar_api import SidecarApi, publisher_api, subscriber_api
from samelog.publisher.sidecar import PublisherSidecar
from samelog.replicator.pull.copy import Copy
from samelog.runtime.clock import SystemClock
from samelog.runtime.counters import ListenerTally, watch_delay
from samelog.runtime.log import start_log
from samelog.runtime.loop import run, spawn
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.reload import ConfigFollower
from samelog.store.disk.files import OsFileSystem
from samelog.subscriber.sidecar import SubscriberSidecar

if TYPE_CHECKING:
    from samelog.kafka.sidecar.service import PublisherListener, SubscriberListener


class Sidecar(Protocol):
    """What both sidecars have in common."""

    def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


class LocalListener(Protocol):
    """What their Kafka listeners have in common."""

    tally: ListenerTally

    async def start(self) -> None:
        """Listen. Raises ListenerFault."""

    async def close(self) -> None:
        """End every connection."""


def _loopback(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> Address | None:
    address = None if text is None else parse_address(text)
    if text is not None and (address is None or not is_loopback(address)):
        raise click.BadParameter(f"{text!r} is not an address of this host, such as 127.0.0.1:9092")
    return address


kafka_option = click.option(
    "--kafka",
    "listen",
    metavar="HOST:PORT",
    callback=_loopback,
    help="Where Kafka clients on this host connect; without TLS, so loopback only.",
)


http_option = click.option(
    "--http",
    metavar="HOST:PORT",
    callback=_loopback,
    help="Where health, status and metrics are asked; without TLS, so loopback only.",
)


@click.group(cls=CommandGroup)
def command() -> None:
    """Ship the files of publishers, or keep the files of subscribers, from a process of its own.

    \b
    Examples:
      samelog sidecar publisher --config client.toml --dir /var/lib/samelog/sessions
      samelog sidecar subscriber --config client.toml --dir /var/lib/samelog/copies --topic flights
    """
    start_log(LogLevel.INFO)  # what loading the configuration warns of is a line as any other


@command.command()
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the sessions.")
@kafka_option
@click.option(
    "--kafka-session",
    metavar="NAME",
    shell_complete=complete_sessions,
    help="What Kafka clients write goes into it.",
)
@http_option
@client_option
def publisher(
    config: ClientConfig,
    *,
    directory: str | None,
    listen: Address | None,
    kafka_session: str | None,
    http: Address | None,
) -> None:
    """Ship every session found below --dir (or `dir` in [publisher] of the configuration).

    New sessions are noticed. A session that its publisher ships by itself is left alone. With
    --kafka (or [publisher.kafka] in the configuration) Kafka clients on this host write into a
    session too.

    \b
    Examples:
      samelog sidecar publisher --config client.toml --dir /var/lib/samelog/sessions
      samelog sidecar publisher --config client.toml --dir sessions --kafka 127.0.0.1:9092 \\
        --kafka-session orders-host7
      samelog sidecar publisher --config https://config.example/samelog/host7.toml \\
        --dir sessions
    """
    root = directory or config.publisher.directory
    if root is None:
        fail("--dir is missing, and the configuration has no dir in [publisher]")
    kafka = _publisher_kafka(config, listen, kafka_session)
    run(serve_publisher(root, config, kafka, http=_http(config.publisher.http, http)))


def _http(known: HttpConfig | None, listen: Address | None) -> HttpConfig | None:
    """By the configuration, unless the command line says another place."""
    return known if listen is None else HttpConfig(listen=listen)


def _publisher_kafka(
    config: ClientConfig, listen: Address | None, session: str | None
) -> PublisherKafka | None:
    """The listener by the configuration, and what the command line says else."""
    known = config.publisher.kafka
    if session is not None:
        check_session_name(session)
    if known is not None:
        return replace(known, listen=listen or known.listen, session=session or known.session)
    if listen is None:
        return None
    if session is None:
        fail("--kafka-session is missing: the session that Kafka clients write into")
    return PublisherKafka(listen=listen, session=session)


@command.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="May be repeated.  [default: topics of the configuration]",
)
@click.option("--dir", "directory", type=click.Path(file_okay=False), help="Holds the copies.")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    type=click.Choice(["earliest", "latest"]),
    help="Where a copy that does not exist yet begins.",
)
@kafka_option
@http_option
@client_option
def subscriber(
    config: ClientConfig,
    *,
    topics: tuple[str, ...],
    directory: str | None,
    start: str,
    listen: Address | None,
    http: Address | None,
) -> None:
    """Keep copies of topics in --dir (or `dir` in [subscriber] of the configuration).

    Without --topic it goes by `topics` in [subscriber], also when that changes: what is new is
    copied, and what is gone is copied no more, but kept. With --kafka (or [subscriber.kafka] in the
    configuration) Kafka clients on this host read them.

    \b
    Examples:
      samelog sidecar subscriber --config client.toml --dir copies --topic flights --topic trades
      samelog sidecar subscriber --config client.toml --dir copies --topic flights \\
        --kafka 127.0.0.1:9092
      samelog sidecar subscriber --dir copies \\
        --config https://config.example/samelog/reports.toml
    """
    root = directory or config.subscriber.directory
    if root is None:
        fail("--dir is missing, and the configuration has no dir in [subscriber]")
    if not topics and not config.subscriber.topics:
        fail("--topic is missing, and the configuration has no topics in [subscriber]")
    names = tuple(check_copied_topic(topic) for topic in topics)
    kafka = config.subscriber.kafka if listen is None else SubscriberKafka(listen=listen)
    run(
        serve_subscriber(
            root,
            names,
            config,
            kafka,
            from_latest=start == "latest",
            http=_http(config.subscriber.http, http),
        )
    )


async def serve_publisher(
    root: str, config: ClientConfig, kafka: PublisherKafka | None, *, http: HttpConfig | None = None
) -> None:
    """Ship sessions until a signal ends the process."""
    fs, clock = OsFileSystem(), SystemClock()
    sidecar = PublisherSidecar(
        root,
        config,
        tls=ReloadingContext(config.tls),
        fs=fs,
        clock=clock,
        random=Random(),
    )
    listener: PublisherListener | None = None
    if kafka is not None:
        from samelog.kafka.sidecar.service import PublisherListener

        listener = PublisherListener(sidecar.directory, config, kafka, fs, clock)
    follower = ConfigFollower(config, lambda found: _apply_config(found, sidecar.apply_config))
    side = _side(follower, root, http, listener)
    api = publisher_api(sidecar, side, lambda: "" if listener is None else listener.fault)
    server = None if http is None else HttpServer(http, config.tls, api)
    what = f"shipping the sessions below {root}"
    await serve(sidecar, listener, what, api=api, http=server, follower=follower)


def _side(
    follower: ConfigFollower, root: str, http: HttpConfig | None, listener: LocalListener | None
) -> Side:
    tallies = {} if listener is None else {"local": listener.tally}
    return Side(follower.config, root, http, tallies, config_problem=lambda: follower.problem)


def _apply_config(config: ClientConfig, apply: Callable[[ClientConfig], None]) -> None:
    """Apply a changed configuration."""
    start_log(config.log_level)
    apply(config)


async def serve_subscriber(
    root: str,
    topics: tuple[str, ...],
    config: ClientConfig,
    kafka: SubscriberKafka | None,
    *,
    from_latest: bool,
    http: HttpConfig | None = None,
) -> None:
    """Keep copies until told to stop. `topics`: empty for those of the configuration."""
    listener: SubscriberListener | None = None

    def changed(copy: Copy) -> None:
        if listener is not None:
            listener.changed(copy)

    def apply_config(found: ClientConfig) -> None:
        """An empty list would be no order that the next start could follow."""
        sidecar.apply_config(found, topics or found.subscriber.topics or sidecar.topics)

    sidecar = SubscriberSidecar(
        root,
        topics or config.subscriber.topics,
        config,
        fs=OsFileSystem(),
        clock=SystemClock(),
        random=Random(),
        from_latest=from_latest,
        on_change=changed,
    )
    if kafka is not None:
        from samelog.kafka.sidecar.service import SubscriberListener

        listener = SubscriberListener(config, kafka, sidecar.copies, SystemClock())
    follower = ConfigFollower(config, lambda found: _apply_config(found, apply_config))
    api = subscriber_api(sidecar, _side(follower, root, http, listener))
    server = None if http is None else HttpServer(http, config.tls, api)
    what = f"keeping copies of {', '.join(sidecar.topics)} in {root}"
    await serve(sidecar, listener, what, api=api, http=server, follower=follower)


async def serve(
    sidecar: Sidecar,
    listener: LocalListener | None,
    what: str,
    *,
    api: SidecarApi,
    http: HttpServer | None,
    follower: ConfigFollower,
) -> None:
    """Run a sidecar, and its Kafka listener, until SIGTERM or SIGINT."""
    start_log(follower.config.log_level)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if http is not None:
        await http.start()
        talk(f"answering HTTP on {http.address}")
    watching = spawn(watch_delay(api.delays), "the event loop's delay")
    sidecar.start()
    follower.start()
    try:
        if listener is not None:
            await _open(listener)
        api.is_started = True
        talk(what)
        await stop.wait()
    finally:
        watching.cancel()
        follower.stop()
        if http is not None:
            await http.close()
        if listener is not None:
            await listener.close()
        await sidecar.stop()


async def _open(listener: LocalListener) -> None:
    from samelog.kafka.server.listener import ListenerFault

    try:
        await listener.start()
    except ListenerFault as fault:
        fail(str(fault))
