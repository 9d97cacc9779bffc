"""`samelog ui`: the console of a cluster, in a browser on this host, with the user's certificate.

Invariant: only who has the link that is printed gets to see anything.
"""

from __future__ import annotations

import asyncio
import signal

import click

from samelog.cli.output import client_option, fail, json_option, print_json, wants_json
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address


@click.command()
@click.option(
    "--port",
    default=7090,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Listen on this port of 127.0.0.1; 0: any free one.",
)
@client_option
@json_option
def command(config: ClientConfig, *, port: int) -> None:
    """Show a cluster in a browser on this host, with the rights of your certificate.

    It prints a link, and goes on until it is interrupted (Ctrl-C). The link holds a secret, since
    every user of this host can reach the port: whoever has it may do what you may. Nodes with
    [http] serve the same pages at /ui.

    \b
    Examples:
      samelog ui --config client.toml
      samelog ui --port 0 --config operator.toml
    """
    asyncio.run(_serve(config, Address("127.0.0.1", port)))


async def _serve(config: ClientConfig, address: Address) -> None:
    from samelog.http.console.proxy import ConsoleProxy

    proxy, stop = ConsoleProxy(config, address), asyncio.Event()
    try:
        await proxy.start()
    except OSError as error:
        fail(f"cannot listen on {address}: {error.strerror}; choose another --port")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if wants_json():
        print_json({"link": proxy.link})
    else:
        click.echo(proxy.link)
    try:
        await stop.wait()
    finally:
        await proxy.close()
