"""Keeps the public keys of a token issuer: from a file, or from a URL that is read again and again.

Invariant: nothing is taken over a connection whose certificate was not checked; keys that cannot be
read leave those that were.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress

from aiohttp import ClientError, ClientSession, ClientTimeout

from samelog.config.tables.kafka import TokenIssuer
from samelog.config.values import is_url
from samelog.kafka.clients.tokens import Tokens, UnusableKeys
from samelog.kafka.server.listener import ListenerFault
from samelog.runtime.log import log_event

log = logging.getLogger(__name__)

AGAIN_S = 300.0
AT_LEAST_S = 10.0
"""Between two looks, whatever tokens come."""
FETCH_S = 10.0


class TokenKeys:
    """Reads them while it is started."""

    def __init__(self, issuer: TokenIssuer) -> None:
        self.tokens = Tokens(issuer, self._missed)
        self._issuer = issuer
        self._wanted = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    @property
    def file(self) -> str | None:
        """Where they are, if that is a file."""
        return None if is_url(self._issuer.jwks) else self._issuer.jwks

    def _missed(self) -> None:
        self._wanted.set()

    def start(self) -> None:
        """Begin to ask the URL, if they are at one."""
        if self.file is None:
            self._following = asyncio.create_task(self._follow())

    def close(self) -> None:
        """Ask no more."""
        if self._following is not None:
            self._following.cancel()

    def read(self) -> None:
        """Take what the file has, if they are in one. Raises ListenerFault."""
        if self.file is None:
            return
        try:
            with open(self.file, "rb") as file:
                self.tokens.take_keys(file.read())
        except (OSError, UnusableKeys) as error:
            raise ListenerFault(f"token keys {self.file!r} cannot be read: {error}") from error

    async def _follow(self) -> None:
        while True:
            self._wanted.clear()
            try:
                self.tokens.take_keys(await self._fetch())
            except (ClientError, TimeoutError, OSError, UnusableKeys) as error:
                place = self._issuer.jwks
                log_event(log, logging.ERROR, "token keys are not there", url=place, error=error)
                self._wanted.set()
            await asyncio.sleep(AT_LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._wanted.wait()

    async def _fetch(self) -> bytes:
        context = ssl.create_default_context(cafile=self._issuer.ca)
        timeout = ClientTimeout(FETCH_S)
        async with (
            ClientSession(timeout=timeout, raise_for_status=True) as session,
            session.get(self._issuer.jwks, ssl=context, allow_redirects=False) as response,
        ):
            return await response.read()
