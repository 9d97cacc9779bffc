"""A connection to whichever node answers, kept from one request to the next: for who asks often, as
members of groups do.

Invariant: a request that may have reached a node is asked again, so it must be repeatable; nothing
is said to a peer whose certificate is not that of the node that is meant.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException
from typing import TypeVar

from samelog.admin.client import TRY_ELSEWHERE, AskedNode, answer_of, known_nodes, named_node
from samelog.admin.errors import AdminError, NotLeaderError
from samelog.admin.exchange import Exchange
from samelog.admin.requests import AdminRequest
from samelog.admin.table import OPERATION_OF
from samelog.config.tables.client import ClientConfig
from samelog.format.errors import InvariantError
from samelog.runtime.errors import RuntimeFault
from samelog.wire.errors import FaultCode

AnswerT = TypeVar("AnswerT")
PASSING = (*TRY_ELSEWHERE, FaultCode.TIMEOUT, FaultCode.INTERNAL)
KEPT_S = 30.0
"""Nodes close a connection that was silent for a minute; certificates are looked at again."""


class KeptConnection:
    """For one thread at a time."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        """May be replaced; what is connected stays."""
        self._spoken: HTTPConnection | None = None
        self._where: AskedNode | None = None
        self._until = 0.0
        self._next = 0

    def ask(self, request: AdminRequest[AnswerT], timeout_s: float) -> AnswerT:
        """What the node answers that was asked last, or that it names; one attempt at each node.
        Raises AdminError.
        """
        if not OPERATION_OF[type(request)].repeatable:
            raise InvariantError(f"{type(request).__name__} is asked once only")
        deadline = time.monotonic() + timeout_s
        failures: list[AdminError] = []
        for _ in range(2 * len(self.config.nodes) + 1):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            try:
                return self._ask_one(request, left_s)
            except NotLeaderError as error:
                failures.append(error)
                self._go_to(error)
            except AdminError as error:
                if error.code is not None and error.code not in PASSING:
                    raise
                failures.append(error)
                self.close()
        told = dict.fromkeys(map(str, failures))
        raise AdminError("no node answers: " + "; ".join(told), sent=True)

    def _ask_one(self, request: AdminRequest[AnswerT], timeout_s: float) -> AnswerT:
        operation = OPERATION_OF[type(request)]
        if time.monotonic() >= self._until:
            self.close()
        address, name = self._where = self._where or self._next_node()
        where = f"{name} at {address}" if name else str(address)
        exchange = Exchange(self.config, address, name, timeout_s)
        try:
            if self._spoken is None:
                self._spoken = exchange.open()
                self._until = time.monotonic() + KEPT_S
            status, body, stays = exchange.converse(self._spoken, operation, request, keep=True)
        except (OSError, HTTPException, RuntimeFault) as error:
            self.close()
            raise AdminError(f"{where}: {error}", sent=True) from error
        if not stays:
            self.rest()
        answer: AnswerT = answer_of(operation, status, body, where)
        return answer

    def _next_node(self) -> AskedNode:
        nodes = known_nodes(self.config)
        self._next += 1
        return nodes[self._next % len(nodes)]

    def _go_to(self, error: NotLeaderError) -> None:
        """To the node that is said to lead, or to the next one."""
        self.close()
        if (told := named_node(self.config, error)) is not None:
            self._where = told

    def rest(self) -> None:
        """Nothing is asked for a while: the next request goes to the same node."""
        if self._spoken is not None:
            self._spoken.close()
        self._spoken = None

    def close(self) -> None:
        """Let go of the connection; the next request goes to another node."""
        self.rest()
        self._where = None
