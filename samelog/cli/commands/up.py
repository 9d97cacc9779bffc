"""`samelog up`: a local cluster of real node processes, in the foreground.

Invariant: `client.toml` appears only once all nodes are Live; at the end no node is left running.
"""

from __future__ import annotations

import os
import signal
import threading

import click

from samelog.cli.local_cluster import (
    LOCAL_KAFKA,
    ClusterError,
    ClusterOptions,
    LocalCluster,
    LocalNode,
)
from samelog.cli.output import fail, json_option, print_json, talk, wants_json
from samelog.config.load import with_kafka_settings
from samelog.config.tables.node import Fsync
from samelog.config.values import ConfigError

WATCH_S = 0.5


@click.command()
@click.option(
    "--dir", "directory", default="samelog-local", show_default=True, help="Its directory."
)
@click.option(
    "--nodes", default=3, show_default=True, type=click.Choice([1, 3, 5, 7]), help="Nodes."
)
@click.option("--base-port", type=click.IntRange(1024, 65000), help="First port; else free ones.")
@click.option(
    "--fsync",
    default=Fsync.ALWAYS.value,
    show_default=True,
    type=click.Choice([mode.value for mode in Fsync]),
    help="When data must be on disk.",
)
@click.option(
    "--kafka-set",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting under Kafka's own name, of a new cluster; may be there many times.",
)
@json_option
def command(
    directory: str, *, nodes: int, base_port: int | None, fsync: str, kafka_set: tuple[str, ...]
) -> None:
    """Run a local cluster with a PKI of its own until SIGINT or SIGTERM.

    Once all nodes are Live it writes DIR/client.toml, which every client command takes as --config.
    Starting again on the same directory continues the same cluster. Kill a node with -9 to see the
    others go on: it is started again.

    \b
    Examples:
      samelog up --dir /tmp/sl
      samelog up --dir /tmp/sl --nodes 1 --base-port 7101 --json
      samelog up --dir /tmp/sl --kafka-set num.partitions=3 --kafka-set message.max.bytes=1Mi
      seq 1000 | samelog publish --config /tmp/sl/client.toml --topic numbers --session demo \\
          --dir pub --wait
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        kafka = with_kafka_settings(LOCAL_KAFKA, kafka_set, "--kafka-set")
        options = ClusterOptions(nodes=nodes, fsync=Fsync(fsync), base_port=base_port, kafka=kafka)
        with LocalCluster(directory, options) as cluster:
            cluster.start(on_wait=talk)
            _announce(cluster)
            _watch(cluster, stop)
    except (ClusterError, ConfigError) as error:
        fail(str(error))


def _announce(cluster: LocalCluster) -> None:
    nodes = [_described(node) for node in cluster.nodes]
    if wants_json():
        print_json({"client": cluster.client_file, "nodes": nodes})
        return
    for node in nodes:
        http = f", http://{node['http']}" if node["http"] else ""
        talk(f"{node['name']} is Live on {node['address']} (pid {node['pid']}){http}")
    talk(f"clients: --config {os.path.relpath(cluster.client_file)}; stop with Ctrl-C")


def _described(node: LocalNode) -> dict[str, object]:
    """`http`: where it answers HTTP; None: a cluster that was made before nodes did."""
    http = None if node.http is None else str(node.http)
    return {"name": node.name, "address": str(node.address), "http": http, "pid": node.pid}


def _watch(cluster: LocalCluster, stop: threading.Event) -> None:
    """Wait for the end. A node that was killed starts again; one that ends by itself ends all, with
    its last words.
    """
    while not stop.wait(WATCH_S):
        for node in cluster.nodes:
            code = node.exit_code()
            if code is not None and code >= 0:
                raise ClusterError(
                    f"{node.name} ended with exit code {code}: "
                    f"{node.last_log_line()} (log: {node.log_file})"
                )
            if code is not None:
                talk(f"{node.name} was killed by signal {-code}: the others go on, it starts again")
                node.start()
