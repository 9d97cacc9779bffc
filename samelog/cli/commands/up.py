"""`samelog up`: a local cluster of real node processes, in the foreground or behind it.

Invariant: `client.toml` appears only once all nodes are Live; at the end no node is left running.
With --detach, exit code 0 means that all nodes are Live, and stay so until `samelog down`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import click

from samelog.cli import local_lock
from samelog.cli.confirmation import replaced_option
from samelog.cli.local_cluster import (
    LOCAL_KAFKA,
    ClusterError,
    ClusterOptions,
    LocalCluster,
    ended,
)
from samelog.cli.output import EXIT_FAILED, fail, json_option, near, print_json, talk, wants_json
from samelog.config.load import with_kafka_settings
from samelog.config.tables.node import Fsync
from samelog.config.values import ConfigError
from samelog.runtime.stop import Stop

WATCH_S = 0.5
NODES_MOST = 64
SIZE = click.IntRange(1, NODES_MOST)


@click.command()
@click.option(
    "--dir", "directory", default="samelog-local", show_default=True, help="Its directory."
)
@click.option("--hosts", default=3, show_default=True, type=SIZE, help="How many hosts to act as.")
@click.option("--members", default=1, show_default=True, type=SIZE, help="Nodes on each host.")
@replaced_option("--nodes", "--hosts", takes_value=True)
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
@click.option("--detach", is_flag=True, help="Return when all is Live; `samelog down` ends it.")
@json_option
def command(
    directory: str,
    *,
    hosts: int,
    members: int,
    base_port: int | None,
    fsync: str,
    kafka_set: tuple[str, ...],
    detach: bool,
) -> None:
    """Run a local cluster with a PKI of its own until SIGINT or SIGTERM, or `samelog down`.

    Once all nodes are Live it writes DIR/client.toml, which every client command takes as --config.
    Each node acts as a host of its own, unless --members puts several on one: copies of a partition
    are on different hosts. The first nodes of 1, 3, 5 or 7 hosts vote, the others are learners of
    group 0. rt-sequencer-0 and so on are numbered host by host. With --base-port, their ports
    follow each other; then come those for Kafka, then those for HTTP.

    Starting again on the same directory continues the same cluster. Kill a node with -9 to see the
    others go on: it is started again. Every user of this machine may do everything with the
    cluster, over HTTP and Kafka on loopback: it is for trying out.

    \b
    Examples:
      samelog up --dir /tmp/sl --detach
      samelog up --dir /tmp/sl --hosts 1 --base-port 7101 --json
      samelog up --dir /tmp/sl --hosts 3 --members 2
      samelog up --dir /tmp/sl --kafka-set num.partitions=3 --kafka-set message.max.bytes=1Mi
      seq 1000 | samelog publish --config /tmp/sl/client.toml --topic numbers --session demo \\
          --dir pub --wait
    """
    if hosts * members > NODES_MOST:
        raise click.UsageError(f"a cluster has at most {NODES_MOST} nodes, not {hosts * members}")
    stop, directory = Stop(), os.path.abspath(directory)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        kafka = with_kafka_settings(LOCAL_KAFKA, kafka_set, "--kafka-set")
        options = ClusterOptions(
            nodes=hosts * members,
            members=members,
            fsync=Fsync(fsync),
            base_port=base_port,
            kafka=kafka,
        )
        go_on = go_behind(directory) if detach else lambda: None
        with local_lock.hold(directory), LocalCluster(directory, options) as cluster:
            cluster.start(on_wait=talk)
            _announce(cluster)
            if not stop.is_set:
                go_on()
            _watch(cluster, stop)
    except (ClusterError, ConfigError) as error:
        fail(str(error))


def _announce(cluster: LocalCluster) -> None:
    config = cluster.client_config()
    http = [str(node.http) for node in cluster.nodes if node.http]
    if wants_json():
        told = {"client": cluster.client_file, "kafka": config.kafka_bootstrap, "http": http}
        print_json(told)
        return
    for node in cluster.nodes:
        where = f", http://{node.http}" if node.http else ""
        of_host = f" of {node.host}" if node.host else ""
        talk(f"{node.name}{of_host} is Live on {node.address} (pid {node.pid}){where}")
    talk(f"kafka: {config.kafka_bootstrap}")
    talk(f"clients: --config {near(cluster.client_file)}")
    talk(f"stop with: samelog down --dir {near(cluster.directory)}")


def go_behind(directory: str) -> Callable[[], None]:
    """Go on in a process of its own, away from the terminal; this one waits until that one calls
    what is returned here, and ends then with 0, or with its exit code if it ends before.
    """
    ready, tell = os.pipe()
    child = os.fork()
    if child:
        os.close(tell)
        sys.exit(_told(ready, child))
    os.close(ready)
    os.setsid()

    def go_on() -> None:
        sys.stdout.flush()
        with (
            open(os.path.join(directory, "up.log"), "ab") as log,
            open(os.devnull, "rb") as nothing,
        ):
            for file, number in ((nothing, 0), (log, 1), (log, 2)):
                os.dup2(file.fileno(), number)
        os.write(tell, b"!")
        os.close(tell)

    return go_on


def _told(ready: int, child: int) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.kill(child, number))
    if os.read(ready, 1):
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or EXIT_FAILED


def _watch(cluster: LocalCluster, stop: Stop) -> None:
    """Wait for the end. A node that was killed starts again, and one that was removed does not; one
    that ends by itself ends all, with its last words.
    """
    while not stop.wait(WATCH_S):
        for node in tuple(cluster.nodes):
            code = node.exit_code()
            if code is None:
                continue
            if cluster.has_left(node):
                talk(f"{node.name} was removed from the cluster: the others go on")
            elif code >= 0:
                raise ended(node)
            else:
                talk(f"{node.name} was killed by signal {-code}: the others go on, it starts again")
                node.start()
