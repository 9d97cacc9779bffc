"""The process of one sequencer node.

Invariant: SIGTERM and SIGINT stop it cleanly (leadership handed over, everything durable) with exit
code 0; anything that ends it otherwise is one message and a non-zero exit.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
from typing import Any

from samelog.cli.output import NoLongerAMember, fail, talk
from samelog.http.application import HttpApplication
from samelog.http.node_api import NodeApi
from samelog.http.server import HttpServer
from samelog.kafka.broker import BrokerParts
from samelog.kafka.event_writer import EventWriter
from samelog.kafka.groups.desk import GroupDesk
from samelog.kafka.producer_log import ProducerLog
from samelog.kafka.service import KafkaService, ListenerFault
from samelog.runtime.clock import SystemClock
from samelog.runtime.descriptors import descriptors
from samelog.runtime.log import start_log
from samelog.runtime.loop import handle_exception, is_abandoned, run, settle_heap
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.reload import NodeReload
from samelog.runtime.watch import FileWatch
from samelog.sequencer.cluster.members import NotAMember
from samelog.sequencer.cluster.node_dir import NodeDirectoryError, NodePlace, check_usable
from samelog.sequencer.host import Host, NodeResources
from samelog.sequencer.node import Node
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.serving import serve_node
from samelog.store.disk.files import DiskFault, OsFileSystem
from samelog.store.disk.open_files import OpenFiles

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that writes a snapshot may hold up the event loop, and the loop the thread."""


def _allow_many_files() -> None:
    """Every partition and input has files open: take what the system allows, not Debian's 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _file_system(data: str) -> OsFileSystem:
    """Return the file system, with the bound of the files that logs keep open."""
    return OsFileSystem(OpenFiles(descriptors().files, os.stat(data).st_dev))


def run_node(config_file: str, *, bootstrap: bool) -> None:
    """Run a node until SIGTERM or SIGINT. Raises ConfigError, and OperatorError for its faults."""
    reload = NodeReload(config_file)
    start_log(reload.config.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    try:
        run(serve(reload, bootstrap=bootstrap))
    except NotAMember as error:
        raise NoLongerAMember(str(error)) from error
    except (NodeDirectoryError, RaftStoreError, DiskFault, ListenerFault) as error:
        fail(str(error))


async def serve(reload: NodeReload, *, bootstrap: bool) -> None:
    """Run a node until it is told to stop. Raises whatever a part of it fails with."""
    config = reload.config
    check_usable(OsFileSystem(), config)
    fs, stop = _file_system(config.data), asyncio.Event()
    tls = ReloadingContext(config.tls, own=NODE_PREFIX + config.name)
    loop, api = asyncio.get_running_loop(), NodeApi(config, stop.is_set)
    administration = HttpApplication(api, is_local=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    running: Node | None = None

    def read_again() -> None:
        if reload.read_again():
            start_log(reload.config.log_level)
            if running is not None:
                running.reconfigure(reload.config, reload.problem)

    def make(place: NodePlace | None) -> Node:
        nonlocal running
        host = Host(open_http=administration.open)
        given = NodeResources(reload.config, fs, SystemClock(), tls, random.Random(), host)
        running = node = Node(given, bootstrap=bootstrap, place=place)
        node.services.group_desk = desk = _group_desk(node)
        node.services.all.append(desk)
        if config.kafka.listeners:
            batches = ProducerLog(config.name, node.peers.number, node.logs)
            node.services.all.append(KafkaService(_kafka_parts(node, desk, batches)))
        machine, groups = node.logs.machine, node.data_groups
        writer = EventWriter(config.name, node.peers.number, node.raft, machine, groups)
        node.services.all.append(writer)
        api.node = node
        return node

    def started(node: Node, port: int) -> None:
        loop.set_exception_handler(lambda loop, context: _unhandled(node, loop, context))
        where = f"{config.listen.host}:{port}"
        talk(f"node {config.name} of cluster {config.cluster} listens on {where}")
        settle_heap()

    loop.add_signal_handler(signal.SIGHUP, read_again)
    watch = FileWatch((reload.path,), read_again)
    http = None if config.http is None else HttpServer(config.http, config.tls, api)
    if http is not None:
        await http.start()  # before the node: its probes are to be answered while it starts
        talk(f"node {config.name} answers HTTP on {http.address}")
    await administration.start()
    try:
        await serve_node(
            config, make, stop, fs=fs, tls=tls, bootstrap=bootstrap, on_started=started
        )
    finally:
        watch.close()
        await administration.close()
        if http is not None:
            await http.close()


def _group_desk(node: Node) -> GroupDesk:
    member = node.member
    return GroupDesk(node.raft, node.logs.machine, member.clock, member.config.kafka.groups)


def _kafka_parts(node: Node, desk: GroupDesk, batches: ProducerLog) -> BrokerParts:
    return BrokerParts(
        node.member,
        node.logs,
        node.raft,
        node.peers,
        lambda: node.care.archive.policy.policy,
        node.data_groups,
        desk.driver,
        batches,
    )


def _unhandled(node: Node, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Stop the node after an error in a callback or a task, which stopped halfway."""
    handle_exception(loop, context)
    error = context.get("exception")
    if error is not None and not is_abandoned(context):
        node.fail(error)
