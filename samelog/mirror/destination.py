"""The cluster that gets the mirrors: its requests, and the session that brings the batches.

The session is one of a publisher: its files are shipped to every node, and removed once a majority
has merged them, so they are as bounded as the budget says. What an earlier process left is shipped
first; only then is asked how far the mirrors are.

Invariant: one process at a time has the session, here by a lock, in the cluster by its directory's
id; nothing is written to a partition before what was written to it earlier is merged or its fate is
known.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TypeVar

from samelog.admin import mirror_requests as asked
from samelog.admin.client import AskedNode, ask, ask_node
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import MirrorInfo, MirrorRows, SourceFollowed
from samelog.admin.mirrors import MirrorHolders, all_mirrors
from samelog.admin.requests import AdminRequest
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.mirror import MirrorConfig
from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.format.names import MIRROR_SESSIONS
from samelog.format.positions import SessionPosition
from samelog.mirror.errors import DestinationFault, MirrorStopped
from samelog.publisher.budget import NoRoom
from samelog.publisher.session_writer import SessionWriter
from samelog.publisher.shipper import lock_shipping
from samelog.replicator.client_errors import PublisherError
from samelog.replicator.push.client import PushClient, PushStatus
from samelog.replicator.push.connections import PushConnections
from samelog.runtime.clock import SystemClock
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import OsFileSystem
from samelog.wire.errors import FaultCode

ROOM_S = 0.05
RELEASED_S = 0.2
ROLLS_PER_BUDGET = 8
LASTING = (FaultCode.NOT_AUTHORISED, FaultCode.ALREADY_EXISTS, FaultCode.OUT_OF_RANGE)
"""Refusals that do not pass by themselves."""
AnswerT = TypeVar("AnswerT")


class Destination:
    """One sidecar's."""

    def __init__(self, config: MirrorConfig, cluster: ClientConfig) -> None:
        """Raises LogFormatError, TlsFault: the session's directory cannot be used, or is in use."""
        self._config = cluster
        self._fs = OsFileSystem()
        self._piece_bytes = config.budget_bytes // ROLLS_PER_BUDGET
        """Files hold as much: only whole ones are removed, and never the newest."""
        path = os.path.join(config.directory, "session")
        os.makedirs(config.directory, mode=0o700, exist_ok=True)
        self._writer = SessionWriter.open(
            self._fs,
            path,
            session=MIRROR_SESSIONS + config.name,
            cluster=cluster.cluster,
            budget_bytes=config.budget_bytes,
            roll_bytes=self._piece_bytes,
        )
        try:
            self._lock = lock_shipping(self._fs, path)
        except BaseException:
            self._writer.close()
            raise
        self._moved = asyncio.Event()
        self._push = PushClient(
            path,
            cluster,
            connections=PushConnections(SystemClock(), Random()),
            tls=ReloadingContext(cluster.tls),
            fs=self._fs,
            on_progress=self._moved.set,
        )
        self._push.beside.recreation.lets_go = True
        self._holders: MirrorHolders = {}
        """Of partitions in data groups, by the last answers."""
        self.on_wait: Callable[[str], None] = lambda reason: None
        """Called with what the start waits for, when that is news."""

    @property
    def status(self) -> PushStatus:
        """How shipping is."""
        return self._push.status

    async def start(self) -> None:
        """Ship, and return once nothing that an earlier process left is under way."""
        self._push.start()
        while not self._push.is_released and not self._push.status.lost:
            self.on_wait(self.explain())
            await asyncio.sleep(RELEASED_S)

    def explain(self) -> str:
        """What may keep the session from being shipped, for people."""
        status = self._push.status
        if status.stopped is not None:
            return str(status.stopped)
        errors = dict.fromkeys(
            problem
            for node in status.nodes
            for problem in (node.last_error, *node.problems.values())
            if problem
        )
        return "; ".join(errors)

    async def stop(self) -> None:
        """Ship no more; what is left is shipped at the next start."""
        try:
            self._writer.close()
        finally:
            await self._push.stop()
            self._lock.close()

    # --- batches ----------------------------------------------------------------------------------

    async def write(self, topic: str, partition: int, data: bytes) -> None:
        """Bring whole batches, as soon as there is room. Raises DestinationFault."""
        for piece in _pieces(data, self._piece_bytes):
            await self._write(topic, partition, piece)

    async def _write(self, topic: str, partition: int, data: memoryview) -> None:
        output = self._writer.output(topic, partition)
        while True:
            try:
                output.write(data)
            except NoRoom:
                await asyncio.sleep(ROOM_S)
            except (PublisherError, LogFormatError) as error:
                raise DestinationFault(str(error)) from error
            else:
                return

    def is_settled(self, topic: str, partition: int) -> bool:
        """Whether it is known what became of everything that was written."""
        end = self._end(topic, partition)
        reached = self._push.progress.get((topic, partition))
        return end is None or (reached is not None and reached.acknowledged >= end)

    def problem(self, topic: str, partition: int) -> str:
        """Why nodes do not take a partition; empty if any does."""
        found = [node.problems.get((topic, partition), "") for node in self._push.status.nodes]
        return found[0] if found and all(found) else ""

    async def settled(self, topic: str, partition: int) -> None:
        """Wait until that is known."""
        self._moved.clear()
        while not self.is_settled(topic, partition):
            await self._moved.wait()
            self._moved.clear()

    def is_gone(self, topic: str, partition: int) -> bool:
        """Whether the mirror was deleted since this run began to write to it."""
        end = self._end(topic, partition)
        return end is not None and self._push.status.gone.get((topic, partition), -1) >= end.run

    def _end(self, topic: str, partition: int) -> SessionPosition | None:
        ends = {(*name,): end for name, end in self._writer.positions()}
        return ends.get((topic, partition))

    # --- requests ---------------------------------------------------------------------------------

    async def mirrors(self) -> MirrorRows:
        """How far all mirrors are. Raises DestinationFault, MirrorStopped, as all of these do."""
        rows, self._holders = await self._answered(lambda: all_mirrors(self._config))
        return rows

    async def put(self, request: asked.PutMirror) -> MirrorInfo:
        """Have a mirror."""
        return await self._ask(request)

    async def leave_gap(self, request: asked.LeaveGap) -> MirrorInfo:
        """Let a mirror go on behind a gap."""
        return await self._ask(request)

    async def copy_schema(self, topic: str, follows: int, schema: str) -> None:
        """Let a mirror have a version of the schema."""
        await self._ask(asked.CopySchema(topic, follows, schema))

    async def follow(self, mirror: MirrorInfo, request: asked.FollowMirrored) -> tuple[str, ...]:
        """Set the positions of groups; return the groups that have their own. Each node sets those
        in partitions that it has.
        """
        own: dict[str, None] = {}
        for node, part in split(request, mirror.topic_id, self._holders):
            own |= dict.fromkeys((await self._answered(partial(self._follow, node, part))).own)
        return tuple(sorted(own))

    def _follow(self, node: AskedNode | None, request: asked.FollowMirrored) -> SourceFollowed:
        if node is None:
            return ask(self._config, request)
        return ask_node(self._config, node[0], request, name=node[1])

    async def _ask(self, request: AdminRequest[AnswerT]) -> AnswerT:
        return await self._answered(lambda: ask(self._config, request))

    async def _answered(self, call: Callable[[], AnswerT]) -> AnswerT:
        try:
            return await asyncio.to_thread(call)
        except AdminError as error:
            if error.code in LASTING:
                raise MirrorStopped(str(error)) from error
            raise DestinationFault(str(error)) from error


def split(
    request: asked.FollowMirrored, topic_id: str, holders: MirrorHolders
) -> list[tuple[AskedNode | None, asked.FollowMirrored]]:
    """Split a request by the nodes that have its partitions; None stands for any node."""
    positions: defaultdict[AskedNode | None, list[asked.GroupPosition]] = defaultdict(list)
    since: defaultdict[AskedNode | None, list[asked.SchemaSince]] = defaultdict(list)
    for position in request.positions:
        positions[holders.get((topic_id, position.partition))].append(position)
    for version in request.since:
        since[holders.get((topic_id, version.partition))].append(version)
    return [
        (node, asked.FollowMirrored(request.topic, tuple(positions[node]), tuple(since[node])))
        for node in dict.fromkeys((*positions, *since))
    ]


def _pieces(data: bytes, most: int) -> Iterator[memoryview]:
    """Whole batches, in pieces of at most so many bytes; one that is longer is one of its own."""
    begin = 0
    for header in kernels.batch_headers(data, 0, len(data)):
        if header[0] > begin and header[0] + header[1] - begin > most:
            yield memoryview(data)[begin : header[0]]
            begin = header[0]
    if begin < len(data):
        yield memoryview(data)[begin:]
