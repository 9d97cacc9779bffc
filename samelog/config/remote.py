"""A client's configuration from an HTTPS URL.

Invariant: nothing is fetched without TLS that was verified, nor kept waiting for longer than
FETCH_S, nor larger than a configuration may be; a token goes to the host of the URL alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from samelog.config.document import FILE_LIMIT_BYTES, ConfigText, shown_place
from samelog.config.pki.secret_files import why_shared
from samelog.config.values import ConfigError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

CA_VARIABLE = "SAMELOG_CONFIG_CA"
TOKEN_VARIABLE = "SAMELOG_CONFIG_TOKEN_FILE"
FETCH_S = 10.0
REDIRECTS_MAX = 3
_TOKEN_BYTES_MAX = 8192
_QUERY = re.compile(r"\?[^\s'\")]*")
_REDIRECTS = (
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.SEE_OTHER,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
)


def fetch_now(url: str, known: ConfigText | None = None) -> ConfigText:
    """As `fetch`, for whoever has no event loop, or must not use it. Raises ConfigError."""
    with ThreadPoolExecutor(1, "samelog-config") as pool:
        return pool.submit(lambda: asyncio.run(fetch(url, known))).result()


async def fetch(
    url: str, known: ConfigText | None = None, *, timeout_s: float = FETCH_S
) -> ConfigText:
    """What is there now; `known`, if the server says that nothing has changed since. Raises
    ConfigError.
    """
    shown = shown_place(_checked(url))
    from aiohttp import ClientConnectionError, ClientError

    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(url, known)
    except TimeoutError as error:
        raise ConfigError(f"{shown}: no answer within {timeout_s:g} s") from error
    except ClientConnectionError as error:
        raise ConfigError(f"{shown}: cannot be reached: {_without_query(error)}") from error
    except (ClientError, ValueError) as error:
        why = _without_query(error)
        raise ConfigError(f"{shown}: the answer cannot be understood: {why}") from error


def _without_query(error: Exception) -> str:
    """What it says of URLs, but not what they ask for, which may be a secret."""
    return _QUERY.sub("?…", str(error))


def _checked(url: str) -> str:
    """Raises ConfigError."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # what it says has pieces of what may be a password
        begin = url.partition("://")[0]
        raise ConfigError(f"{begin}://…: not a URL: its host or port means nothing") from None
    if parts.scheme != "https" or not parts.hostname:
        raise ConfigError(f"{shown_place(url)}: a configuration comes from https://HOST/… only")
    if parts.username is not None or parts.fragment:
        reason = f"a URL has no name, password or #; {TOKEN_VARIABLE} names the file of a token"
        raise ConfigError(f"https://{parts.hostname}: {reason}")
    return url


async def _fetch(url: str, known: ConfigText | None) -> ConfigText:
    from aiohttp import ClientSession, TCPConnector

    headers = {"Accept-Encoding": "identity", "User-Agent": "samelog"}
    if known is not None and known.tag:
        headers["If-None-Match"] = known.tag
    token, context = await asyncio.to_thread(_secrets, shown_place(url))
    connector = TCPConnector(ssl=context, limit=1, force_close=True)
    async with ClientSession(connector=connector, auto_decompress=False) as session:
        place = url
        for _ in range(REDIRECTS_MAX + 1):
            is_same_host = urlsplit(place).netloc == urlsplit(url).netloc
            secret = {"Authorization": f"Bearer {token}"} if token and is_same_host else {}
            found = await _ask(session, place, headers | secret)
            if isinstance(found, ConfigText):
                return ConfigText(url, found.data, found.tag)
            if not found:
                if known is None:
                    raise ConfigError(f"{shown_place(url)}: answered that nothing has changed")
                return known
            place = _checked(urljoin(place, found))
    raise ConfigError(f"{shown_place(url)}: more than {REDIRECTS_MAX} redirects")


async def _ask(session: ClientSession, place: str, headers: dict[str, str]) -> ConfigText | str:
    """The text; or where else to ask; or nothing, if it is known. Raises ConfigError."""
    async with session.get(place, headers=headers, allow_redirects=False) as response:
        if response.status == HTTPStatus.NOT_MODIFIED:
            return ""
        if response.status in _REDIRECTS:
            return response.headers.get("Location") or place
        if response.status != HTTPStatus.OK:
            raise ConfigError(f"{shown_place(place)}: answered {_named(response.status)}")
        return ConfigText(place, await _body(place, response), response.headers.get("ETag", ""))


async def _body(place: str, response: ClientResponse) -> bytes:
    data, connection = bytearray(), response.connection
    transport = None if connection is None else connection.transport
    try:
        async for chunk in response.content.iter_chunked(64 << 10):
            data += chunk
            if len(data) > FILE_LIMIT_BYTES:
                text = f"larger than {FILE_LIMIT_BYTES} bytes: not a configuration"
                raise ConfigError(f"{shown_place(place)}: {text}")
    finally:
        if transport is not None:
            transport.abort()  # who does not send the rest does not end TLS in good order either
    return bytes(data)


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _secrets(shown: str) -> tuple[str, ssl.SSLContext]:
    """A token, and whom to trust; from disk, so not in an event loop. Raises ConfigError."""
    return _token(), _context(shown)


def _context(shown: str) -> ssl.SSLContext:
    path = os.environ.get(CA_VARIABLE) or None
    system = ssl.get_default_verify_paths()
    files = (system.cafile, system.capath) if path is None else (path,)
    try:
        return _context_of(path, tuple(_seen(file) for file in files if file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{shown}: {CA_VARIABLE}: {path!r} cannot be used: {error}") from error


@lru_cache(maxsize=1)
def _context_of(path: str | None, seen: tuple[object, ...]) -> ssl.SSLContext:
    """One that counts while what was `seen` does: the system's authorities take 40 ms to load.
    Raises OSError, SSLError.
    """
    context = ssl.create_default_context(cafile=path)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _seen(path: str) -> tuple[str, int, int, int]:
    """Another value whenever a file, or what is in a directory, has changed."""
    try:
        status = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def _token() -> str:
    """Empty if there is none. Raises ConfigError."""
    path = os.environ.get(TOKEN_VARIABLE)
    if not path:
        return ""
    try:
        shared = why_shared(path)
        with open(path, encoding="ascii") as file:
            token = file.read(_TOKEN_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{TOKEN_VARIABLE}: {path!r} cannot be read: {error}") from error
    if shared or not token.isprintable() or " " in token or not token:
        raise ConfigError(f"{TOKEN_VARIABLE}: {shared or f'{path!r} holds no token'}")
    return token
