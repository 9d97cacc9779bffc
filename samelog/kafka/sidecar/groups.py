"""Consumer groups for clients of the subscriber sidecar: they are the cluster's, so what is asked
about them is passed on to the node that coordinates them, and answered with what it says.

Each client has a connection of its own to the coordinator, so that one that waits for a rebalance
holds up nobody else. The sidecar says of itself that it coordinates; whenever a client asks who
does, the nodes are asked.

Invariant: nothing about groups is decided, kept or made up here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

from kio.schema.errors import ErrorCode

from samelog.config.tables.client import ClientConfig
from samelog.config.tables.kafka import Security
from samelog.config.values import Address, parse_address
from samelog.kafka.apis.groups import find_coordinator
from samelog.kafka.client import KafkaClient
from samelog.kafka.codec.errors import MalformedRequest, Unanswerable
from samelog.kafka.codec.schemas import read_response, write_request
from samelog.kafka.sidecar.upstream import Upstream
from samelog.runtime.errors import TlsFault
from samelog.runtime.network.tls import open_client_context

ASK_S = 3.0
"""How long all nodes together may take to say who coordinates."""
ASK_VERSION = 4
CLIENT_ID = "samelog-sidecar"
NO_ANSWER = ErrorCode.coordinator_not_available, "no node says who coordinates: ask again"

Found = tuple[ErrorCode, str | None]


class GroupForwarder:
    """The way to the coordinator."""

    def __init__(
        self, bootstrap: Iterable[Address], context: Callable[[], ssl.SSLContext | None]
    ) -> None:
        """`context` makes what the next connection is protected with. Raises TlsFault."""
        self._bootstrap = tuple(bootstrap)
        self._context = context
        self._coordinator: Address | None = None
        self._upstreams: dict[int, Upstream] = {}

    @classmethod
    def of(cls, config: ClientConfig) -> GroupForwarder | None:
        """By the addresses in a client's configuration; None if it has none."""
        texts = config.kafka_bootstrap.split(",")
        addresses = [address for text in texts if (address := parse_address(text.strip()))]

        def context() -> ssl.SSLContext | None:
            if config.kafka_security is Security.PLAINTEXT:
                return None
            shows = config.kafka_security is Security.MTLS
            return open_client_context(config.tls, show_certificate=shows)

        return cls(addresses, context) if addresses else None

    # --- who coordinates --------------------------------------------------------------------------

    async def find(self, kind: int, key: str) -> Found:
        """Ask the nodes who coordinates, and remember it; why there is none."""
        found: Found = NO_ANSWER
        known = () if self._coordinator is None else (self._coordinator,)
        try:
            async with asyncio.timeout(ASK_S):
                for address in (*known, *self._bootstrap):
                    found = await self._ask(address, kind, key)
                    if found[0] is not ErrorCode.coordinator_not_available:
                        break
        except TimeoutError:
            return NO_ANSWER
        return found

    async def _ask(self, address: Address, kind: int, key: str) -> Found:
        api = find_coordinator.API
        tree = {"key_type": kind, "coordinator_keys": [key]}
        body = write_request(api.key, ASK_VERSION, tree)
        try:
            upstream = await self._connect(address)
            try:
                answer = await upstream.ask(api, ASK_VERSION, CLIENT_ID, body)
                (found,) = read_response(api.key, ASK_VERSION, answer.body).coordinators
            finally:
                upstream.close()
        except (Unanswerable, MalformedRequest) as error:
            return ErrorCode.coordinator_not_available, str(error)
        if found.error_code is ErrorCode.none:
            self._coordinator = Address(found.host, found.port)
        return found.error_code, found.error_message

    async def _connect(self, address: Address) -> Upstream:
        """Raises Unanswerable."""
        try:
            context = self._context()
            async with asyncio.timeout(ASK_S):
                _, upstream = await asyncio.get_running_loop().create_connection(
                    lambda: Upstream(address), address.host, address.port, ssl=context
                )
        except (OSError, TlsFault) as error:
            raise Unanswerable(f"no connection to {address}: {error}") from error
        return upstream

    # --- passing on -------------------------------------------------------------------------------

    async def upstream_of(self, client: KafkaClient) -> Upstream:
        """A client's own connection to the coordinator. Raises Unanswerable."""
        if self._coordinator is None:
            raise Unanswerable("FindCoordinator has to come first")
        known = self._upstreams.get(id(client))
        if known is not None and not known.is_over and known.address == self._coordinator:
            return known
        upstream = await self._connect(self._coordinator)
        if known is None:
            client.at_end.append(lambda: self._ended(client))
        else:
            known.retire()
        self._upstreams[id(client)] = upstream
        return upstream

    def _ended(self, client: KafkaClient) -> None:
        self._upstreams.pop(id(client)).close()

    def close(self) -> None:
        """End all connections."""
        for upstream in self._upstreams.values():
            upstream.close()
