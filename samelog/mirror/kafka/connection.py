"""A client's connection to one of Kafka's brokers: requests go one after the other.

Messages are laid out by Kafka's own descriptions (samelog.kafka.codec).

Invariant: whatever a broker answers raises SourceUnreadable or is what was asked for.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samelog.config.tables.mirror import KafkaSource
from samelog.config.values import Address
from samelog.kafka.codec.descriptions import structure_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import InvalidResponse, MalformedRequest
from samelog.kafka.codec.schemas import read_response, write_request
from samelog.mirror.errors import SourceUnreadable

CLIENT_ID = "samelog-mirror"
CONNECT_S = 5.0
ANSWER_S = 35.0
ANSWER_BYTES_MAX = 128 << 20
_HEAD = struct.Struct(">ihhih")
_LENGTH = struct.Struct(">i")
SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18


@dataclass(frozen=True, slots=True)
class Entrance:
    """How brokers let this client in. `context` is None without TLS."""

    context: ssl.SSLContext | None
    user: str
    password: str


def entrance_of(config: KafkaSource) -> Entrance:
    """What a configuration says. Raises OSError."""
    context = None
    if config.ca is not None:
        context = ssl.create_default_context(cafile=config.ca)
        if config.cert is not None:
            context.load_cert_chain(config.cert, config.key)
    password = ""
    if config.password_file is not None:
        password = Path(config.password_file).read_text("utf-8").strip()
    return Entrance(context, config.user, password)


class BrokerConnection:
    """Made by `open`."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()
        self._number = 0

    @classmethod
    async def open(cls, address: Address, entrance: Entrance) -> BrokerConnection:
        """Connect, and authenticate if there is a user. Raises SourceUnreadable."""
        try:
            async with asyncio.timeout(CONNECT_S):
                streams = await asyncio.open_connection(
                    address.host, address.port, ssl=entrance.context
                )
        except (OSError, TimeoutError) as error:
            raise SourceUnreadable(f"no connection to broker {address}: {error}") from error
        made = cls(address, *streams)
        try:
            if entrance.user:
                await made._authenticate(entrance)
        except BaseException:
            made.close()
            raise
        return made

    async def _authenticate(self, entrance: Entrance) -> None:
        answer = await self.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        check(answer.error_code, f"broker {self.address}: SASL PLAIN")
        token = f"\0{entrance.user}\0{entrance.password}".encode()
        answer = await self.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        check(answer.error_code, f"broker {self.address}: {answer.error_message}")

    async def ask(self, key: int, version: int, request: Mapping[str, Any]) -> Any:
        """What is answered. Raises SourceUnreadable; the connection is over then."""
        try:
            async with self._turn, asyncio.timeout(ANSWER_S):
                return await self._ask(key, version, request)
        except (OSError, EOFError, TimeoutError, MalformedRequest) as error:
            self.close()
            raise SourceUnreadable(f"broker {self.address}: {str(error) or 'no answer'}") from error
        except BaseException:
            self.close()  # whoever asks next would get this one's answer
            raise

    async def _ask(self, key: int, version: int, request: Mapping[str, Any]) -> Any:
        try:
            body = write_request(key, version, request)
        except InvalidResponse as error:
            raise SourceUnreadable(f"request {key} cannot be written: {error}") from error
        is_flexible = structure_of("request", key, version).is_flexible
        name = CLIENT_ID.encode()
        self._number += 1
        size = _HEAD.size - 4 + len(name) + is_flexible + len(body)
        head = _HEAD.pack(size, key, version, self._number, len(name))
        self._writer.write(head + name + b"\0" * is_flexible + body)
        await self._writer.drain()
        frame = await self._frame()
        if _LENGTH.unpack_from(frame)[0] != self._number:
            raise MalformedRequest("it answered another request")
        skip = 4 + (is_flexible and key != API_VERSIONS)
        return read_response(key, version, frame[skip:])

    async def _frame(self) -> bytes:
        size = _LENGTH.unpack(await self._reader.readexactly(4))[0]
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise MalformedRequest(f"its answer would have {size} bytes")
        return await self._reader.readexactly(size)

    @property
    def is_over(self) -> bool:
        """Whether it is closed."""
        return self._writer.is_closing()

    def close(self) -> None:
        """Close it."""
        self._writer.close()


def check(code: int, what: str) -> None:
    """Raises SourceUnreadable for an error code."""
    if code:
        name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
        raise SourceUnreadable(f"{what}: {name}")
