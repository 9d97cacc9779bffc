"""Faults of the world outside: connections, certificates, the operating system.

Invariant: foreign exceptions (OSError, ssl.SSLError, ...) are translated at the edge; above
`runtime` only these are seen, and each says what to do about it.
"""

from __future__ import annotations

from enum import Enum, unique

from samelog.wire.errors import FaultCode


@unique
class ConnectProblem(Enum):
    """Why there is no connection to a peer, or the peer will not have one with us."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    NOT_TLS = "not TLS"
    TLS_VERSION = "TLS version"
    WRONG_PROTOCOL = "wrong protocol"
    UNTRUSTED = "untrusted certificate"
    EXPIRED = "expired certificate"
    NO_CERTIFICATE = "no certificate"
    WRONG_PURPOSE = "certificate for another purpose"
    NO_IDENTITY = "certificate without identity"
    WRONG_IDENTITY = "wrong identity"
    REFUSED_BY_PEER = "refused by the peer"
    TOO_MANY = "too many connections"
    TLS = "TLS failure"


class RuntimeFault(Exception):
    """Base of every fault that a driver reports."""


class ConnectFault(RuntimeFault):
    """No usable connection came to be; `remedy` tells the operator what to do."""

    def __init__(
        self, problem: ConnectProblem, peer: str, message: str, *, remedy: str = ""
    ) -> None:
        super().__init__(f"{peer}: {message}" + (f" ({remedy})" if remedy else ""))
        self.problem = problem
        self.peer = peer
        self.message = message
        self.remedy = remedy


class ConnectionLost(RuntimeFault):
    """The peer or the network ended an established connection."""


class DeadlinePassed(RuntimeFault):
    """The peer did not do in time what it had to do; this side ended the connection."""


class PeerFault(RuntimeFault):
    """The peer ended the connection with a Fault frame."""

    def __init__(self, code: FaultCode, message: str, remedy: str) -> None:
        super().__init__(f"{code.name}: {message}" + (f" ({remedy})" if remedy else ""))
        self.code = code
        self.message = message
        self.remedy = remedy


class TlsFault(RuntimeFault):
    """Own certificate files that cannot be used: the operator's to mend."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message + (f" ({remedy})" if remedy else ""))
        self.message = message
        self.remedy = remedy


class IdentityFault(RuntimeFault):
    """A peer's certificate that says nothing samelog can act on."""

    def __init__(self, problem: ConnectProblem, message: str, *, remedy: str) -> None:
        super().__init__(f"{message} ({remedy})")
        self.problem = problem
        self.message = message
        self.remedy = remedy
