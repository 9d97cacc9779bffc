"""One administrative request to one node, over HTTP with mutual TLS.

It is imported when the first request is made: what it takes is most of what a command imports.
Invariant: nothing is said to a peer whose certificate is not that of the node that is meant.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from samelog.admin.errors import AdminError
from samelog.admin.requests import AdminRequest
from samelog.admin.table import CLUSTER_HEADER, Operation
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.runtime.errors import ConnectFault, ConnectProblem, IdentityFault, RuntimeFault
from samelog.runtime.faults import handshake_fault
from samelog.runtime.network.tls import NODE_PREFIX, http_client_context, identity_of
from samelog.wire.errors import FaultCode

CONNECT_S = 5.0


class Exchange:
    """One request to one node."""

    def __init__(
        self, config: ClientConfig, address: Address, name: str | None, timeout_s: float
    ) -> None:
        self._config, self._address = config, address
        self._expected = NODE_PREFIX + name if name else None
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._sent = False

    def run(
        self, operation: Operation, request: AdminRequest[Any], where: str
    ) -> tuple[int, bytes]:
        """(status, body) of the answer. Raises AdminError."""
        try:
            with closing(self.open()) as spoken:
                status, body, _ = self.converse(spoken, operation, request)
                return status, body
        except (ConnectFault, IdentityFault) as error:
            nobody_there = error.problem is ConnectProblem.UNREACHABLE
            raise AdminError(str(error), nobody_there=nobody_there) from error
        except ssl.SSLError as error:  # the node says only now that it refuses this side
            raise AdminError(str(handshake_fault(error, str(self._address)))) from error
        except TimeoutError as error:
            text = f"{where}: no answer within {self._timeout_s:g} s"
            raise AdminError(text, code=FaultCode.TIMEOUT, sent=self._sent) from error
        except (OSError, HTTPException, RuntimeFault) as error:
            raise AdminError(f"{where}: {error}", sent=self._sent) from error

    def _connect(self) -> ssl.SSLSocket:
        """A connection to the node that is wanted. Raises ConnectFault, TlsFault."""
        context = http_client_context(self._config.tls)
        try:
            connected = self._dial(context)
        except (OSError, UnicodeError) as error:
            raise handshake_fault(error, str(self._address)) from error
        try:
            self._check_identity(connected)
        except BaseException:
            connected.close()
            raise
        return connected

    def _dial(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """A connection to the first of the host's addresses that takes one. It is wrapped before it
        connects: wrap_socket forgets the socket of a peer that has just hung up.
        """
        refused = OSError("the name has no address")
        for family, kind, protocol, _, place in socket.getaddrinfo(
            *self._address, type=socket.SOCK_STREAM
        ):
            wrapped = context.wrap_socket(
                socket.socket(family, kind, protocol), do_handshake_on_connect=False
            )
            try:
                wrapped.settimeout(min(CONNECT_S, self._left_s()))
                wrapped.connect(place)
            except OSError as error:
                wrapped.close()
                refused = error
                continue
            try:
                wrapped.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wrapped.do_handshake()
            except BaseException:
                wrapped.close()
                raise
            return wrapped
        raise refused

    def _check_identity(self, connected: ssl.SSLSocket) -> None:
        try:
            identity = identity_of(connected, server_side=False)
        except IdentityFault as error:
            raise handshake_fault(error, str(self._address)) from error
        expected = self._expected
        if identity != expected if expected else not identity.startswith(NODE_PREFIX):
            raise ConnectFault(
                ConnectProblem.WRONG_IDENTITY,
                str(self._address),
                f"the peer is {identity}, wanted is {expected or f'{NODE_PREFIX}<name>'}",
                remedy="check the address, and the node's certificate",
            )

    def open(self) -> HTTPConnection:
        """A connection that can be spoken on. Raises ConnectFault, TlsFault."""
        spoken = HTTPConnection(str(self._address.host), self._address.port)
        spoken.sock = self._connect()
        return spoken

    def converse(
        self,
        spoken: HTTPConnection,
        operation: Operation,
        request: AdminRequest[Any],
        *,
        keep: bool = False,
    ) -> tuple[int, bytes, bool]:
        """(status, body) of the answer, and whether more can be asked. Raises OSError,
        HTTPException.
        """
        path, body = target_of(operation, request)
        headers = {CLUSTER_HEADER: self._config.cluster}
        if not keep:
            headers["Connection"] = "close"
        if body is not None:
            headers["Content-Type"] = "application/json"
        spoken.sock.settimeout(self._left_s())
        self._sent = True
        spoken.request(operation.method, path, body, headers)
        spoken.sock.settimeout(self._left_s())
        response = spoken.getresponse()
        return response.status, response.read(), not response.will_close

    def _left_s(self) -> float:
        return max(0.001, self._deadline - time.monotonic())


def target_of(operation: Operation, request: AdminRequest[Any]) -> tuple[str, bytes | None]:
    """(path with query, body) that say what `request` does."""
    fields: Mapping[str, Any] = msgspec.to_builtins(request)
    named = {name: _quoted(str(fields[name])) for name in operation.in_path}
    others = {name: value for name, value in fields.items() if name not in named}
    path = operation.path.format(**named)
    if operation.method == "POST":
        return path, msgspec.json.encode(others)
    return (f"{path}?{urlencode(others)}" if others else path), None


def _quoted(name: str) -> str:
    """As one part of a path; a name of dots would mean another path."""
    return name.replace(".", "%2E") if name in {".", ".."} else quote(name, safe="")
