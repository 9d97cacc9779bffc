"""Tables that nodes and clients both have: PEM files, HTTP, the log.

Invariant: a value made by `samelog.config.load` is complete and free of contradictions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from samelog.config.schema.keys import (
    ConfigTable,
    FlatTable,
    KeyName,
    KeyProblem,
    Reload,
    Subtable,
    Without,
)
from samelog.config.schema.kinds import FILE, PRIVATE_FILE
from samelog.config.values import Address, is_loopback

SEGMENT_BYTES_MIN = 1 << 10
SEGMENT_BYTES_MAX = (1 << 31) - 1  # positions in Kafka's index files are signed 32-bit numbers
DISK_BYTES_MAX = 1 << 60
HTTP_ADDRESS = Address("127.0.0.1", 7080)


class LogLevel(Enum):
    """The least important lines of a log that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LevelKey = Annotated[
    LogLevel,
    "The lowest level of lines that are written",
    KeyName("level"),
    FlatTable("log", "What is written to stderr"),
    Reload.YES,
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles(ConfigTable):
    """Paths of the PEM files for mutual TLS: authority, own certificate, its private key, and what
    the authority has revoked (None: nothing). `crl_may_lack`: nothing is revoked, too, while there
    is no such file.
    """

    ca: Annotated[
        str,
        "The authority's certificates, PEM; several while it is being replaced",
        FILE,
        Reload.CONTENTS,
    ]
    cert: Annotated[
        str, "The certificate of this process, PEM, with its chain", FILE, Reload.CONTENTS
    ]
    key: Annotated[
        str,
        "Its private key, PEM; readable by its owner alone (0600; 0640 if it is root's)",
        PRIVATE_FILE,
        Reload.CONTENTS,
    ]
    crl: Annotated[
        str | None,
        "The authorities' revocation lists, PEM; revoked certificates are refused",
        FILE,
        Without("nobody is revoked"),
        Reload.CONTENTS,
    ] = None
    crl_may_lack: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files, to be watched."""
        found = (self.ca, self.cert, self.key)
        return found if self.crl is None else (*found, self.crl)


class HttpSecurity(Enum):
    """How HTTP connections are protected."""

    PLAINTEXT = "plaintext"
    MTLS = "mtls"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig(ConfigTable):
    """Where operators and monitoring ask over HTTP; plaintext is on loopback only. `tls`: None for
    the process's own files.
    """

    listen: Annotated[Address, "Where"] = HTTP_ADDRESS
    security: Annotated[HttpSecurity, "`plaintext` only on loopback addresses"] = (
        HttpSecurity.PLAINTEXT
    )
    tls: Annotated[
        TlsFiles | None, Subtable("Other PEM files than the process's own, for HTTP (docs/rest.md)")
    ] = None

    def check(self) -> None:
        if self.security is HttpSecurity.PLAINTEXT and not is_loopback(self.listen):
            reason = f"{self.listen} is not a loopback address, and nothing protects plaintext: "
            raise KeyProblem(
                "security", reason + 'choose security = "mtls", or listen on 127.0.0.1'
            )
