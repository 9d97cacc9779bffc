"""How a node with an empty directory finds its place: it asks the nodes that its configuration
names which number it has, and who else there is.

Whether its number was ever used it cannot know, so it counts for nothing until an entry of the
cluster lets it in (rules raft.1 and raft.7). `--bootstrap` is refused where a member knows
that the node has started before.

Invariant: nothing is written before some member has named this node.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Generic, TypeVar

import msgspec

from samelog.config.tables.node import NodeConfig, PeerConfig
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.log import log_event
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, connect
from samelog.sequencer.cluster.node_dir import (
    NOT_LET_IN,
    NodeDirectoryError,
    NodePlace,
    NodeRecord,
    read_record,
    write_record,
)
from samelog.sequencer.cluster.peers import make_hello
from samelog.sequencer.raft.raft_home import FOLDER, home_of, raft_path
from samelog.sequencer.state.tables.members import Member
from samelog.store.disk.files import FileSystem
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Welcome
from samelog.wire.peer_messages import MemberList

AnswerT = TypeVar("AnswerT")
log = logging.getLogger(__name__)

RETRY_S = 0.5
ANSWER_TIMEOUT_S = 5.0


class Question(Generic[AnswerT]):
    """What a node asks a member with its Hello, and nothing else. The part of transport.Handler
    that is alike, whatever is asked.
    """

    def __init__(self) -> None:
        self.answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent on this connection."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on a peer connection")

    def on_raft(self, payload: memoryview) -> None:
        """Never sent in this direction."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT from the accepting side")

    def on_writable(self) -> None:
        """One question is small."""

    def on_closed(self, error: Exception | None) -> None:
        """No answer will come."""
        if not self.answer.done():
            self.answer.set_exception(error or ConnectionResetError("the node hung up"))


class _PlaceQuestion(Question[NodePlace]):
    """Asks one member for this node's place. Implements transport.Handler."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__()
        self._config = config
        self._list: MemberList | None = None
        self.is_fresh = True
        """Whether no node has ever started under the number, as far as the member knows."""

    def open(self, connection: Connection) -> _PlaceQuestion:
        """Introduce ourselves, without a number."""
        config = self._config
        connection.send(make_hello(cluster=config.cluster, node=config.name, number=None))
        return self

    def on_message(self, message: AnyMessage) -> None:
        """The list, then Welcome: that is the answer."""
        if isinstance(message, MemberList):
            self._list = message
        elif isinstance(message, Welcome) and self._list is not None and not self.answer.done():
            self.is_fresh = message.is_fresh
            self.answer.set_result(self._place_in(self._list, message.cluster_id))

    def _place_in(self, told: MemberList, cluster_id: str) -> NodePlace:
        members = [Member(*member) for member in told.members]
        own = [member.number for member in members if member.name == self._config.name]
        if not own:
            raise ProtocolFault(FaultCode.PROTOCOL, "welcomed, but not in the member list")
        return NodePlace(
            cluster=self._config.cluster,
            node=self._config.name,
            number=own[0],
            members=members,
            members_version=told.version,
            cluster_id=cluster_id,
        )


async def find_place(config: NodeConfig, tls: ReloadingContext) -> NodePlace:
    """This node's place, as soon as some member knows it. Raises NodeDirectoryError if there is
    nobody to ask.
    """
    if {peer.name for peer in config.peers} <= {config.name}:
        raise NodeDirectoryError(
            "there are no other peers to ask for this node's place in a cluster; "
            "a new cluster begins with --bootstrap"
        )
    said = ""
    while True:
        reasons = []
        for peer in config.peers:
            if peer.name == config.name:
                continue
            try:
                return await _ask(config, peer, tls)
            except (RuntimeFault, ProtocolFault, OSError, TimeoutError) as error:
                reasons.append(f"{peer.name}: {error}")
        if (text := "; ".join(reasons)) != said:
            said = text
            log_event(
                log,
                logging.WARNING,
                "no member of the cluster yet",
                remedy=f"samelog node add {config.name} {config.advertise}; or start the others; "
                "a new cluster begins with --bootstrap",
                reasons=text,
            )
        await asyncio.sleep(RETRY_S)


async def check_never_started(config: NodeConfig, tls: ReloadingContext) -> None:
    """Raises NodeDirectoryError if a member that can be reached knows of a life of this node: then
    a bootstrap would make a second one, that has forgotten the first.
    """
    others = [peer for peer in config.peers if peer.name != config.name]
    questions = [_PlaceQuestion(config) for _ in others]
    asked = zip(questions, others, strict=True)
    answers = [_answer(question, config, peer, tls) for question, peer in asked]
    await asyncio.gather(*answers, return_exceptions=True)
    for question, peer in zip(questions, others, strict=True):
        if not question.is_fresh:
            raise NodeDirectoryError(
                f"{peer.name} knows {config.name}: it has started in this cluster before, and "
                f"{config.data} is empty. Start it without --bootstrap: the others fill it"
            )


async def _ask(config: NodeConfig, peer: PeerConfig, tls: ReloadingContext) -> NodePlace:
    return await _answer(_PlaceQuestion(config), config, peer, tls)


async def _answer(
    question: _PlaceQuestion, config: NodeConfig, peer: PeerConfig, tls: ReloadingContext
) -> NodePlace:
    connection = await connect(
        peer.address, tls, question.open, expected_identity=NODE_PREFIX + peer.name
    )
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await question.answer
    finally:
        connection.close()


def is_new(fs: FileSystem, config: NodeConfig) -> bool:
    """Whether the node has no directory yet, or lost it."""
    return not fs.exists(os.path.join(config.data, "node.json"))


def _set_aside(fs: FileSystem, directory: str, known: NodeRecord, name: str) -> str:
    aside = os.path.join(directory, f"set-aside.{known.number}.{known.boot}")
    fs.make_directory(aside)
    if fs.exists(os.path.join(directory, name)):
        fs.rename(os.path.join(directory, name), os.path.join(aside, name))
    fs.sync_directory(aside)
    fs.sync_directory(directory)
    return aside


def take_new_place(fs: FileSystem, config: NodeConfig, place: NodePlace) -> str:
    """Make a stopped node's directory one of its new number: where what was promised under the old
    one is kept.

    Merged logs stay: they are compared with the cluster's before anything is added to them.
    """
    path = config.data
    known = read_record(fs, path)
    _set_aside(fs, home_of(config), known, FOLDER)
    fs.make_directory(raft_path(config))
    aside = _set_aside(fs, path, known, "sessions")
    record: NodeRecord = msgspec.structs.replace(
        known,
        number=place.number,
        suspicion=NOT_LET_IN,
        cluster_id=place.cluster_id,
        members=list(place.members),
        members_version=place.members_version,
        voters=[],
    )
    write_record(fs, path, record)
    return aside
