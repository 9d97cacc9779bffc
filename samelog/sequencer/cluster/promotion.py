"""A site was promoted: what a node does that is of before (docs/sites.md, S2).

A member of the promoted site that stays takes the cluster's new id, and goes on: it never voted, or
does not vote any more. Everybody else takes no part any more, in no later life either. A node that
may vote asks the other sites when it starts, before it says anything: it may have been away.

Invariant: whoever knows that a site was promoted without it never counts again; its directory stays
as it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass

import msgspec

from samelog.config.tables.node import NodeConfig
from samelog.config.values import parse_address
from samelog.placement.cluster_ids import ends
from samelog.runtime.errors import ConnectFault, ConnectProblem, RuntimeFault
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.sequencer.cluster.joining import Question
from samelog.sequencer.cluster.node_dir import (
    NodeRecord,
    SiteRecord,
    check_not_superseded,
    read_record,
    read_sites,
    write_record,
    write_sites,
)
from samelog.sequencer.cluster.peers import make_hello
from samelog.sequencer.state.tables.members import Member
from samelog.store.disk.files import FileSystem
from samelog.wire.bounds import Life
from samelog.wire.errors import WireError
from samelog.wire.messages import AnyMessage, Hello, Welcome
from samelog.wire.peer_messages import Superseded

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""So long a node that starts waits for an answer of each other site. Then it goes on: where the
line is cut, nobody can know (docs/sites.md, S1).
"""
AGAIN_S = 0.2
"""Behind a connection that was lost, or a fault, the same member is asked again."""


class SiteWasPromoted(Exception):
    """A site was promoted since this node's cluster had the id that it knows."""

    def __init__(self, cluster_id: str, *, stays: bool) -> None:
        super().__init__(f"a site was promoted: the cluster is {cluster_id} now")
        self.cluster_id = cluster_id
        self.stays = stays
        """The node is a member there, too."""


class PromotionOrdered(Exception):
    """An operator has this node go on as the first voter of its site."""

    def __init__(self, order: PromotionOrder) -> None:
        super().__init__(f"site {order.site!r} is promoted")
        self.order = order


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionOrder:
    """`promotion`: its random id; `others`: names of the members that stay, too."""

    site: str
    promotion: str
    others: tuple[str, ...]


def follow(fs: FileSystem, path: str, found: SiteWasPromoted) -> None:
    """What a stopped node does of which others say so. Raises NodeDirectoryError if it is not
    among those who stay.
    """
    record = read_record(fs, path)
    if not ends(found.cluster_id, record.cluster_id):
        return
    log_event(log, logging.WARNING, "a site was promoted", stays=found.stays, now=found.cluster_id)
    if found.stays:
        write_record(fs, path, msgspec.structs.replace(record, cluster_id=found.cluster_id))
        write_sites(fs, path, SiteRecord())
    else:
        write_sites(fs, path, SiteRecord(superseded=found.cluster_id))
    check_not_superseded(fs, path)


class _FarQuestion(Question[Superseded | None]):
    """Introduces a node to a member of another site, to hear what that says. Implements
    transport.Handler.
    """

    def __init__(self, hello: Hello) -> None:
        super().__init__()
        self._hello = hello

    def open(self, connection: Connection) -> _FarQuestion:
        """Introduce the node."""
        connection.send(self._hello)
        return self

    def on_message(self, message: AnyMessage) -> None:
        """Welcome: nobody was promoted, as far as that member knows."""
        if isinstance(message, Welcome | Superseded) and not self.answer.done():
            self.answer.set_result(message if isinstance(message, Superseded) else None)


async def ask_far_sites(fs: FileSystem, config: NodeConfig, tls: ReloadingContext) -> None:
    """Before a node that has a directory starts. Raises SiteWasPromoted."""
    if not fs.exists(os.path.join(config.data, "node.json")):
        return
    record = read_record(fs, config.data)
    hello = _introduction(config, record)
    sites = [_ask_site(hello, members, tls) for members in read_sites(fs, config.data).far.values()]
    for found in await asyncio.gather(*sites):
        if found is not None:
            raise SiteWasPromoted(found.cluster_id, stays=found.stays)


def _introduction(config: NodeConfig, record: NodeRecord) -> Hello:
    """In the life that is over; nothing that it held is told."""
    life = Life(
        record.boot,
        record.incarnation,
        tuple(record.predecessors),
        is_sure=False,
        cluster_id=record.cluster_id,
        term=0,
        last_index=0,
        last_term=0,
    )
    return make_hello(cluster=config.cluster, node=config.name, number=record.number, life=life)


async def _ask_site(
    hello: Hello, members: list[Member], tls: ReloadingContext
) -> Superseded | None:
    """What the first member of a site says that answers; None, too, if none does in time."""
    asked = [asyncio.ensure_future(_ask_until(hello, each, tls)) for each in members]
    try:
        for answer in asyncio.as_completed(asked, timeout=ANSWER_S):
            try:
                return await answer
            except (RuntimeFault, WireError, OSError) as error:
                log_event(log, logging.INFO, "another site does not answer", error=error)
    except TimeoutError:
        log_event(log, logging.WARNING, "no other site answers; going on", after_s=ANSWER_S)
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return None


async def _ask_until(hello: Hello, member: Member, tls: ReloadingContext) -> Superseded | None:
    """What a member says, which may be busy at first. Raises ConnectFault if nobody is there."""
    while True:
        try:
            return await _ask(hello, member, tls)
        except (RuntimeFault, WireError, OSError) as error:
            if isinstance(error, ConnectFault) and error.problem is ConnectProblem.UNREACHABLE:
                raise
            log_event(log, logging.INFO, "another site does not answer yet", error=error)
            await asyncio.sleep(AGAIN_S)


async def _ask(hello: Hello, member: Member, tls: ReloadingContext) -> Superseded | None:
    address = parse_address(member.address)
    if address is None:
        raise ConnectFault(ConnectProblem.UNREACHABLE, member.name, "it has no address")
    question = _FarQuestion(hello)
    connection = await connect(
        address, tls, question.open, expected_identity=NODE_PREFIX + member.name
    )
    try:
        return await question.answer
    finally:
        connection.close()
