"""The Kafka listeners of one node. Implements sequencer.host.Service.

Invariant: nothing is answered before the node knows what was committed when it started. While it
still copies merged logs, whoever wants to read what it lacks is sent to the leader.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from samelog.config.tables.kafka import Security
from samelog.config.tables.node import NodeConfig
from samelog.kafka.broker import Broker, BrokerParts
from samelog.kafka.clients.quotas import Allowances
from samelog.kafka.clients.sasl import MECHANISM_NUMBERS, Authenticator, Verifier
from samelog.kafka.clients.tokens import OAUTHBEARER, TokenExchange
from samelog.kafka.registry import APIS
from samelog.kafka.server.dispatch import ApiDispatcher
from samelog.kafka.server.listener import Listener, ListenerFault
from samelog.kafka.server.token_keys import TokenKeys
from samelog.runtime.errors import TlsFault
from samelog.runtime.log import log_event
from samelog.runtime.watch import FileWatch
from samelog.sequencer.state.tables.members import Advertised, SetListeners

log = logging.getLogger(__name__)

ADVERTISE_AGAIN_S = 0.05
PASSWORD_CHARACTERS_MAX = 1024

__all__ = ["KafkaService", "ListenerFault"]


class KafkaService:
    """Opened while the node becomes Live, closed when it stops."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._secret = secrets.token_bytes(32)
        self._advertising: asyncio.Task[None] | None = None
        config = parts.member.config.kafka
        self._broker = Broker(parts)
        dispatcher = ApiDispatcher(self._broker, APIS)
        self._allowances = Allowances(config.quotas, parts.logs.machine)
        self.listeners = [
            Listener(
                each,
                config,
                dispatcher,
                node_tls=parts.member.config.tls,
                allowances=self._allowances,
            )
            for each in config.listeners
        ]
        parts.member.measures.kafka = {each.config.name: each.tally for each in self.listeners}
        self._keys = None if config.oauth is None else TokenKeys(config.oauth)
        self._watch: FileWatch | None = None

    def reconfigure(self, config: NodeConfig) -> None:
        """Go by its quotas from now on."""
        self._allowances.change(config.kafka.quotas)

    async def start(self) -> None:
        """Open every listener. Raises ListenerFault."""
        self._broker.batches.start()
        self._read_users()
        if self._keys is not None:
            self._keys.read()
            self._keys.start()
        for listener in self.listeners:
            await listener.start()
        files = tuple(self._files())
        self._watch = FileWatch(files, self._reload) if files else None
        self._advertising = asyncio.create_task(self._advertise())

    def _files(self) -> Iterator[str]:
        """Files that may be replaced while the node runs."""
        secure = [x for x in self.listeners if x.config.security is not Security.PLAINTEXT]
        for listener in secure:
            yield from listener.files.paths
        yield from (user.password_file for user in self._parts.member.config.kafka.users)
        if self._keys is not None and self._keys.file is not None:
            yield self._keys.file

    def _reload(self) -> None:
        """Take changed files over for new connections; unusable ones change nothing, and keep no
        others from being taken.
        """
        takes = [self._read_users, *(listener.renew for listener in self.listeners)]
        if self._keys is not None:
            takes.append(self._keys.read)
        for take in takes:
            try:
                take()
            except (ListenerFault, TlsFault) as fault:
                log_event(log, logging.ERROR, "Kafka listeners keep their old files", error=fault)

    def _read_users(self) -> None:
        """Raises ListenerFault."""
        passwords = {
            user.name: read_password(user.password_file)
            for user in self._parts.member.config.kafka.users
        }
        keys = self._keys
        more = {} if keys is None else {OAUTHBEARER: partial(TokenExchange, keys.tokens)}
        authenticator = Authenticator(passwords, self._secret, self._verifier_of, more)
        for listener in self.listeners:
            if listener.config.security is Security.SASL_TLS:
                listener.authenticator = authenticator

    def _verifier_of(self, user: str, mechanism: str) -> Verifier | None:
        """Of a user that was set over the Kafka protocol."""
        for number, known in self._broker.access.credentials.get(user, {}).items():
            if MECHANISM_NUMBERS[number] == mechanism:
                return Verifier(known.salt, known.stored_key, known.server_key, known.iterations)
        return None

    async def _advertise(self) -> None:
        """Let the cluster know where clients find this node, however long there is no leader."""
        config = self._parts.member.config.kafka
        found = [
            Advertised(each.name, each.advertise.host, each.advertise.port, config.rack)
            for each in config.listeners
        ]
        number = self._parts.peers.number
        while self._parts.logs.machine.state.members.listeners.get(number) != found:
            with suppress(TimeoutError):
                await self._parts.raft.proposer.propose(SetListeners(number, found))
                await asyncio.sleep(ADVERTISE_AGAIN_S)

    async def close(self) -> None:
        """End every connection."""
        if self._advertising is not None:
            self._advertising.cancel()
        if self._watch is not None:
            self._watch.close()
        if self._keys is not None:
            self._keys.close()
        for listener in self.listeners:
            await listener.close()
        self._broker.batches.close()
        self._broker.placed.close()


def read_password(path: str) -> str:
    """What stands in a file, but for the line's end. Raises ListenerFault."""
    try:
        with open(path, encoding="utf-8") as file:
            password = file.read(PASSWORD_CHARACTERS_MAX + 1).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ListenerFault(f"password file {path!r} cannot be read: {error}") from error
    if not 0 < len(password) <= PASSWORD_CHARACTERS_MAX:
        text = f"password file {path!r} must hold 1 to {PASSWORD_CHARACTERS_MAX} characters"
        raise ListenerFault(text)
    return password
