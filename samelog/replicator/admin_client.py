"""Asks the nodes of a cluster: topics, sessions, status.

Invariant: a request that may have reached a node is never sent a second time unless it only reads;
a change is done once, or the error says that nobody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address, parse_address
from samelog.runtime.errors import ConnectFault, RuntimeFault
from samelog.runtime.network.tls import NODE_PREFIX, ReloadingContext
from samelog.runtime.network.transport import Connection, Deadlines, connect
from samelog.wire.admin import (
    AddNode,
    AdminRequest,
    AdminResponse,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Failed,
    GetStatus,
    NotLeader,
    ReadmitNode,
    RemoveNode,
    RetireSession,
    Status,
    VoidRecords,
)
from samelog.wire.admin_groups import ResetGroup
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Hello, Request, Response, Role, Welcome

TIMEOUT_S = 10.0
RETRY_S = 0.2
DEADLINES = Deadlines(close_s=0.5)
REQUEST_ID = 1
AnswerT = TypeVar("AnswerT")
CHANGES = (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    RetireSession,
    AddNode,
    RemoveNode,
    ReadmitNode,
    VoidRecords,
    ResetGroup,
)
TRY_ELSEWHERE = (FaultCode.NOT_READY, FaultCode.NOT_LEADER)


class AdminError(RuntimeFault):
    """A request that was refused, or that no node answered; the message names the node."""

    def __init__(self, message: str, *, code: FaultCode | None = None, sent: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.sent = sent
        """Whether a node may have done what was asked."""


class _Exchange:
    """One request on one connection. Implements transport.Handler."""

    def __init__(self, cluster: str, body: AdminRequest) -> None:
        self._cluster = cluster
        self._body = body
        self._connection: Connection | None = None
        self.answer: asyncio.Future[AdminResponse] = asyncio.get_running_loop().create_future()
        self.sent = False

    def open(self, connection: Connection) -> _Exchange:
        """Introduce ourselves; gives the connection's handler."""
        self._connection = connection
        connection.send(Hello(role=Role.ADMIN, cluster=self._cluster))
        return self

    def on_message(self, message: AnyMessage) -> None:
        """Welcome: send the request. Response: the answer."""
        match message:
            case Welcome() if self._connection is not None and not self.sent:
                self.sent = True
                self._connection.send(Request(REQUEST_ID, self._body))
            case Response(id=id_, body=body) if id_ == REQUEST_ID and not self.answer.done():
                self.answer.set_result(body)
            case _:
                raise ProtocolFault(FaultCode.PROTOCOL, f"unexpected {type(message).__name__}")

    def on_data(self, handle: int, file: int, byte: int, data: memoryview) -> None:
        """Never sent to an administrator."""
        raise ProtocolFault(FaultCode.PROTOCOL, "DATA on an administrator's connection")

    def on_raft(self, payload: memoryview) -> None:
        """Never sent to an administrator."""
        raise ProtocolFault(FaultCode.PROTOCOL, "RAFT on an administrator's connection")

    def on_writable(self) -> None:
        """Requests are small."""

    def on_closed(self, error: Exception | None) -> None:
        """Nothing more will come."""
        if not self.answer.done():
            self.answer.set_exception(error or ConnectionResetError("the node hung up"))


async def ask_node(
    config: ClientConfig, address: Address, body: AdminRequest, *, name: str | None = None
) -> AdminResponse:
    """What one node answers, within TIMEOUT_S; raises AdminError, also for Failed."""
    exchange = _Exchange(config.cluster, body)
    where = f"{name} at {address}" if name else str(address)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await _exchange(config, address, exchange, name=name)
    except TimeoutError as error:
        text = f"{where}: no answer within {TIMEOUT_S:g} s"
        raise AdminError(text, code=FaultCode.TIMEOUT, sent=exchange.sent) from error
    except ConnectFault as error:
        raise AdminError(str(error), sent=exchange.sent) from error
    except (RuntimeFault, ProtocolFault, OSError) as error:
        raise AdminError(f"{where}: {error}", sent=exchange.sent) from error
    if isinstance(answer, Failed):
        remedy = f" ({answer.remedy})" if answer.remedy else ""
        raise AdminError(answer.message + remedy, code=answer.code)
    return answer


async def _exchange(
    config: ClientConfig, address: Address, exchange: _Exchange, *, name: str | None
) -> AdminResponse:
    tls = ReloadingContext(config.tls)
    identity = NODE_PREFIX + name if name else None
    connection = await connect(
        address, tls, exchange.open, expected_identity=identity, deadlines=DEADLINES
    )
    try:
        return await exchange.answer
    finally:
        connection.close()
        await connection.wait_ended()


async def ask(config: ClientConfig, body: AdminRequest) -> AdminResponse:
    """What the cluster answers: any node's answer, or the leader's where a node points to it.

    Tries every node until one answers or TIMEOUT_S is over; raises AdminError.
    """
    deadline = asyncio.get_running_loop().time() + TIMEOUT_S
    while True:
        failures = []
        for address, name in _nodes(config):
            try:
                answer = await _ask_or_follow(config, body, address, name)
            except AdminError as error:
                _raise_if_final(error, body)
                failures.append(error)
                continue
            if not isinstance(answer, NotLeader):
                return answer
            failures.append(AdminError(f"{address}: knows no leader", code=FaultCode.NOT_LEADER))
        if asyncio.get_running_loop().time() >= deadline or not _may_pass(failures):
            raise AdminError("no node answers: " + "; ".join(map(str, failures)))
        await asyncio.sleep(RETRY_S)


async def _ask_or_follow(
    config: ClientConfig, body: AdminRequest, address: Address, name: str | None
) -> AdminResponse:
    answer = await ask_node(config, address, body, name=name)
    if isinstance(answer, NotLeader) and answer.node is not None:
        known = {name: address for address, name in _nodes(config)}
        told = known.get(answer.node) or parse_address(answer.address or "")
        if told is not None:
            return await ask_node(config, told, body, name=answer.node)
    return answer


def _raise_if_final(error: AdminError, body: AdminRequest) -> None:
    """Raise errors that another node can't mend."""
    if error.sent and isinstance(body, CHANGES):
        raise AdminError(f"{error}; it may have been done all the same: look, then repeat")
    if error.code is not None and error.code not in (*TRY_ELSEWHERE, FaultCode.TIMEOUT):
        raise error


def _may_pass(failures: Sequence[AdminError]) -> bool:
    """Whether waiting may help: some node is there, but not ready."""
    return any(error.code in TRY_ELSEWHERE for error in failures)


def _nodes(config: ClientConfig) -> list[tuple[Address, str | None]]:
    names = config.node_names or (None,) * len(config.nodes)
    return list(zip(config.nodes, names, strict=True))


def request(config: ClientConfig, body: AdminRequest, answer_type: type[AnswerT]) -> AnswerT:
    """What the cluster answers, for callers without an event loop; raises AdminError."""
    return _expect(asyncio.run(ask(config, body)), answer_type)


def node_status(config: ClientConfig, address: Address) -> Status:
    """The cluster as the node at `address` sees it; raises AdminError."""
    return asyncio.run(_status_of(config, address))


def all_statuses(config: ClientConfig) -> list[Status | AdminError]:
    """What every node of the configuration says, asked side by side, in its order."""

    async def answer_of(address: Address) -> Status | AdminError:
        try:
            return await _status_of(config, address)
        except AdminError as error:
            return error

    async def gather() -> list[Status | AdminError]:
        return await asyncio.gather(*map(answer_of, config.nodes))

    return asyncio.run(gather())


async def _status_of(config: ClientConfig, address: Address) -> Status:
    name = dict(_nodes(config)).get(address)
    return _expect(await ask_node(config, address, GetStatus(), name=name), Status)


def _expect(answer: AdminResponse, answer_type: type[AnswerT]) -> AnswerT:
    if not isinstance(answer, answer_type):
        raise AdminError(f"a node answered {type(answer).__name__}, not {answer_type.__name__}")
    return answer
