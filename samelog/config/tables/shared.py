"""Tables that nodes and clients both have: PEM files, HTTP, the log.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from samelog.config.values import Address


class LogLevel(Enum):
    """The least important lines of a log that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of the PEM files for mutual TLS: authority, own certificate, its private key, and what
    the authority has revoked (None: nothing).
    """

    ca: str
    cert: str
    key: str
    crl: str | None = None
    crl_may_lack: ClassVar[bool] = False
    """Whether nothing is revoked, too, while there is no such file."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, for whoever watches them."""
        found = (self.ca, self.cert, self.key)
        return found if self.crl is None else (*found, self.crl)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles(TlsFiles):
    """Files that are replaced all at once, with the one of what is revoked or without it."""

    crl_may_lack: ClassVar[bool] = True


class HttpSecurity(Enum):
    """How HTTP connections are protected."""

    PLAINTEXT = "plaintext"
    MTLS = "mtls"


HTTP_ADDRESS = Address("127.0.0.1", 7080)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Where operators and monitoring ask over HTTP; plaintext is on loopback only. `tls`: None for
    the process's own files.
    """

    listen: Address = HTTP_ADDRESS
    security: HttpSecurity = HttpSecurity.PLAINTEXT
    tls: TlsFiles | None = None
