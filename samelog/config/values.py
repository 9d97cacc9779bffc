"""Values that configuration keys have: addresses, sizes, URLs; and the error for one that is none.

Invariant: what is parsed here is valid by itself; nothing here reads a file.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from samelog.format.errors import InvalidName

URL_CHARACTERS = 1000
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_SECRET = re.compile(r"secret|password|token|credential|(access|account)_?key", re.IGNORECASE)
SIZE_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_SIZE = re.compile(r"(\d+) ?([A-Za-z]*)", re.ASCII)


class ConfigError(Exception):
    """The operator's configuration is unusable; the message says where, why and what is allowed."""


class Address(NamedTuple):
    """Where something listens; `host` is a name or an IP address (IPv6 without brackets)."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address | None:
    """`host:port` or `[IPv6 address]:port`; None if it is not one."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        return None
    return Address(host, int(port))


def is_loopback(address: Address) -> bool:
    """Whether only this host can reach an address."""
    try:
        return ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"


def is_unspecified(address: Address) -> bool:
    """Whether it means every address of the host."""
    try:
        return ip_address(address.host).is_unspecified
    except ValueError:
        return False


def parse_size(text: str) -> int | None:
    """A count of bytes such as 4096, 64Ki or 10G; None if it is not one."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in SIZE_UNITS:
        return None
    return int(match[1]) * SIZE_UNITS[match[2]]


def check_pattern(text: str) -> str:
    """Return a text that is exact, or a prefix followed by `*`. Raises InvalidName."""
    if "*" in text[:-1]:
        raise InvalidName(f"{text!r} has a * that is not its last character")
    return text


def is_url(text: str) -> bool:
    """Whether it is a URL; else it is a directory."""
    return "://" in text


def check_keys_url(text: str) -> str:
    """Return a URL from which public keys may be read. Raises InvalidName."""
    if not check_copy_url(text).startswith("https://"):
        raise InvalidName(f"{text!r} is not https: who answers in its place could let anybody in")
    return text


def check_copy_url(text: str) -> str:
    """Return a URL that may be used. Raises InvalidName."""
    try:
        parts = urlsplit(text)
        secrets = [key for key, _ in parse_qsl(parts.query) if _SECRET.search(key)]
    except ValueError as error:
        raise InvalidName(f"{text[:80]!r} is not a URL: {error}") from error
    if len(text) > URL_CHARACTERS or not text.isprintable() or "#" in text:
        raise InvalidName(f"{text[:80]!r} is not a URL of at most {URL_CHARACTERS} characters")
    if _SCHEME.fullmatch(parts.scheme) is None:
        raise InvalidName(f"{text!r} does not begin with a scheme, as in s3://bucket/path")
    if parts.scheme != "file" and not parts.netloc:
        raise InvalidName(f"{text!r} names no bucket or host, as in s3://bucket/path")
    if "@" in parts.netloc or secrets:
        raise InvalidName(
            "it holds credentials: everybody may see a URL. Put them where its file system looks "
            "for them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    return text
