"""A node's life as a process sees it: it finds its place, runs, and begins again in another place
when the cluster has given it one.

Invariant: whatever ends it, the node is stopped, or the error that ended it is raised.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from samelog.config.tables.node import NodeConfig
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import ReloadingContext
from samelog.sequencer.cluster.joining import (
    check_never_started,
    find_place,
    is_new,
    take_new_place,
)
from samelog.sequencer.cluster.lives import HasForgotten
from samelog.sequencer.cluster.members import NotAMember
from samelog.sequencer.cluster.node_dir import NodePlace, suspect
from samelog.sequencer.cluster.promotion import (
    PromotionOrder,
    PromotionOrdered,
    SiteWasPromoted,
    ask_far_sites,
    follow,
)
from samelog.sequencer.node import Node
from samelog.sequencer.recovery import SitePromotion, begin_anew
from samelog.store.disk.files import FileSystem

log = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")


async def serve_node(
    config: NodeConfig,
    make: Callable[[NodePlace | None], Node],
    stop: asyncio.Event,
    *,
    fs: FileSystem,
    tls: ReloadingContext,
    bootstrap: bool,
    on_started: Callable[[Node, int], None],
) -> None:
    """Run a node until `stop` is set. Raises whatever a part of it fails with, NotAMember once it
    was removed, and NodeDirectoryError once a site was promoted without it.
    """
    place = None
    if is_new(fs, config):
        if bootstrap:
            await _unless_stopped(check_never_started(config, tls), stop)
        else:
            place = await _unless_stopped(find_place(config, tls), stop)
    while not stop.is_set():
        try:
            await _unless_stopped(ask_far_sites(fs, config, tls), stop)
        except SiteWasPromoted as error:
            follow(fs, config.data, error)
        node = make(place)
        on_started(node, await node.start())
        try:
            await _unless_stopped(node.run_until_failure(), stop)
        except SiteWasPromoted as error:
            await node.stop()
            follow(fs, config.data, error)
        except PromotionOrdered as error:
            await node.stop()
            _promote(fs, config, error.order)
        except HasForgotten as error:
            await node.stop()
            suspect(fs, config.data, error.found)
            log_event(log, logging.WARNING, "begins again, as a suspect", reason=error)
        except NotAMember as error:
            await node.stop()
            if error.number is None:
                raise
            log_event(log, logging.WARNING, "begins again", reason=error)
            kept = take_new_place(fs, config, _place_told(node, error.number))
            log_event(log, logging.WARNING, "old promises set aside", directory=kept)
        else:
            await node.stop()


def _promote(fs: FileSystem, config: NodeConfig, order: PromotionOrder) -> None:
    """Raises as `begin_anew`: then the directory is as it was."""
    found, kept = begin_anew(
        fs,
        config,
        kind="site-promoted",
        wall_ms=time.time_ns() // 1_000_000,
        others=order.others,
        promotes=SitePromotion(site=order.site, promotion=order.promotion),
    )
    place = f"entry {found.last_index} of term {found.last_term}"
    log_event(log, logging.WARNING, "site promoted", site=order.site, behind=place, kept=kept)


def _place_told(node: Node, number: int) -> NodePlace:
    """The place that others told a node of: whoever they are, its configuration may name nobody."""
    members, record = node.peers.members, node.member.directory.record
    return NodePlace(
        cluster=record.cluster,
        node=record.node,
        number=number,
        members=list(members.all.values()),
        members_version=members.version,
        cluster_id=record.cluster_id,
    )


async def _unless_stopped(work: Awaitable[ValueT], stop: asyncio.Event) -> ValueT | None:
    """The outcome of `work`, or None if `stop` is set before."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
