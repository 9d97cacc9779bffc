"""One request to one node over mutual TLS, whose answer may be a stream without end.

It is asked by HTTP/1.0, whose answers are all bytes up to the end of the connection.

Invariant: nothing is said to a peer whose certificate is not that of the node that is meant.
"""

from __future__ import annotations

import asyncio
import ssl
from email.parser import BytesParser

from samelog.admin.table import CLUSTER_HEADER
from samelog.config.tables.client import ClientConfig
from samelog.config.values import Address
from samelog.runtime.errors import RuntimeFault
from samelog.runtime.network.tls import NODE_PREFIX, http_client_context, identity_of

CONNECT_S = 5.0
ANSWER_S = 60.0
"""Until the head of an answer is there."""
CHUNK_BYTES = 64 << 10
ANSWER_BYTES_MAX = 64 << 20


class NodeUnreachable(Exception):
    """A node does not answer. `sent`: it may have got the request."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class UpstreamAnswer:
    """What a node answers."""

    def __init__(
        self,
        head: tuple[int, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        where: str,
    ) -> None:
        self.status, self.content_type = head
        self._reader, self._writer, self._where = reader, writer, where
        self.kept = b""
        """The body, once it was read as a whole."""

    async def whole(self) -> bytes:
        """The body. Raises NodeUnreachable."""
        try:
            while chunk := await self.some():
                self.kept += chunk
                if len(self.kept) > ANSWER_BYTES_MAX:
                    raise NodeUnreachable(f"{self._where} answers without end", sent=True)
        except OSError as error:
            raise NodeUnreachable(f"{self._where}: {error}", sent=True) from error
        return self.kept

    async def some(self) -> bytes:
        """The next bytes of the body; none at its end. Raises OSError."""
        return await self._reader.read(CHUNK_BYTES)

    def close(self) -> None:
        """End the connection; the node may be silent."""
        self._writer.transport.abort()


class NodeUpstream:
    """One node."""

    def __init__(self, config: ClientConfig, address: Address, name: str | None) -> None:
        self._config, self._address = config, address
        self.name = name

    async def ask(self, method: str, target: str, body: bytes | None) -> UpstreamAnswer:
        """Raises NodeUnreachable."""
        where = f"{self.name} at {self._address}" if self.name else str(self._address)
        sent = False
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await self._connect()
            sent = True
            async with asyncio.timeout(ANSWER_S):
                writer.write(self._request(method, target, body))
                head = _head(await reader.readuntil(b"\r\n\r\n"))
        except TimeoutError as error:
            raise NodeUnreachable(f"{where} does not answer in time", sent=sent) from error
        except (OSError, EOFError, ValueError, RuntimeFault, asyncio.LimitOverrunError) as error:
            raise NodeUnreachable(f"{where}: {error}", sent=sent) from error
        return UpstreamAnswer(head, reader, writer, where)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError, RuntimeFault."""
        context = http_client_context(self._config.tls)
        host, port = self._address
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="")
        try:
            self._check_identity(writer.get_extra_info("ssl_object"))
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _check_identity(self, session: ssl.SSLObject) -> None:
        """Raises IdentityFault, OSError."""
        identity = identity_of(session, server_side=False)
        expected = NODE_PREFIX + (self.name or "")
        if identity != expected if self.name else not identity.startswith(expected):
            raise OSError(f"the peer is {identity}, wanted is {expected}")

    def _request(self, method: str, target: str, body: bytes | None) -> bytes:
        lines = [
            f"{method} {target} HTTP/1.0",
            f"Host: {self._address}",
            f"{CLUSTER_HEADER}: {self._config.cluster}",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def _head(data: bytes) -> tuple[int, str]:
    """(status, content type). Raises ValueError."""
    line, _, fields = data.partition(b"\r\n")
    status = int(line.split()[1])
    return status, BytesParser().parsebytes(fields, headersonly=True).get_content_type()
