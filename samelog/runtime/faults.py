"""Translations at the edge: foreign exceptions to our own, our own to what a peer is told.

Invariant: total functions; a peer is told the type of an unexpected error but never its text.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType

from samelog.format.errors import CorruptBatch, InvalidName
from samelog.runtime.errors import (
    ConnectFault,
    ConnectionLost,
    ConnectProblem,
    DeadlinePassed,
    IdentityFault,
)
from samelog.wire.bounds import TEXT_LIMIT_CHARACTERS
from samelog.wire.errors import FaultCode, FrameError, ProtocolFault
from samelog.wire.messages import Fault

_RENEW = "give it a certificate of this cluster's authority that is valid now"
_OWN_RENEW = "give this side a certificate of the peer's authority that is valid now"

_REASONS: Mapping[str, tuple[ConnectProblem, str, str]] = MappingProxyType(
    {
        # what this side found
        "WRONG_VERSION_NUMBER": (
            ConnectProblem.NOT_TLS,
            "the peer does not speak TLS",
            "connect with TLS 1.3, to samelog's own port",
        ),
        "HTTP_REQUEST": (
            ConnectProblem.NOT_TLS,
            "the peer speaks plain HTTP",
            "connect with TLS 1.3, to samelog's own port",
        ),
        "UNSUPPORTED_PROTOCOL": (
            ConnectProblem.TLS_VERSION,
            "the peer does not speak TLS 1.3",
            "upgrade its TLS library",
        ),
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": (
            ConnectProblem.NO_CERTIFICATE,
            "the peer has sent no certificate",
            _RENEW,
        ),
        # what the peer says it found
        "TLSV1_ALERT_PROTOCOL_VERSION": (
            ConnectProblem.TLS_VERSION,
            "the peer refuses TLS 1.3",
            "connect to samelog's own port, or upgrade the peer's TLS library",
        ),
        "TLSV1_ALERT_UNKNOWN_CA": (
            ConnectProblem.REFUSED_BY_PEER,
            "the peer does not trust the authority of this side's certificate",
            _OWN_RENEW,
        ),
        "TLSV1_ALERT_DECRYPT_ERROR": (
            ConnectProblem.REFUSED_BY_PEER,
            "the peer finds a wrong signature on this side's certificate",
            _OWN_RENEW,
        ),
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": (
            ConnectProblem.REFUSED_BY_PEER,
            "the peer says that this side's certificate has expired",
            "renew this side's certificate; if it is valid, check the clocks",
        ),
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": (
            ConnectProblem.REFUSED_BY_PEER,
            "the peer wants a certificate",
            _OWN_RENEW,
        ),
    }
)


def fault_of(error: Exception) -> Fault:
    """The Fault for the peer when `error` ends its connection."""
    match error:
        case ProtocolFault():
            return make_fault(error.code, error.message, error.remedy)
        case IdentityFault() | ConnectFault():
            return make_fault(FaultCode.NOT_AUTHORISED, error.message, error.remedy)
        case FrameError():
            return make_fault(FaultCode.PROTOCOL, str(error), "speak version 1 of the protocol")
        case InvalidName():
            return make_fault(FaultCode.INVALID_NAME, str(error), "use a name of the grammar")
        case CorruptBatch():
            return make_fault(FaultCode.INVALID_BATCH, str(error), "send whole, valid batches")
        case _:
            text = f"the other side failed with {type(error).__name__}"
            return make_fault(FaultCode.INTERNAL, text, "see its log")


def make_fault(code: FaultCode, message: str, remedy: str = "") -> Fault:
    """A Fault whose texts are short enough for the wire."""
    return Fault(code, message[:TEXT_LIMIT_CHARACTERS], remedy[:TEXT_LIMIT_CHARACTERS])


def handshake_fault(error: Exception, peer: str) -> ConnectFault:
    """Why there was no handshake with `peer`, or why the peer took it back."""
    match error:
        case ConnectFault():
            return error
        case IdentityFault():
            return ConnectFault(error.problem, peer, error.message, remedy=error.remedy)
        case ssl.SSLCertVerificationError():
            return _verification_fault(error, peer)
        case ssl.SSLError():
            return _tls_fault(error, peer)
        case TimeoutError() | DeadlinePassed():
            text, remedy = "no answer in time", "check address, network and the peer's load"
            return ConnectFault(ConnectProblem.TIMEOUT, peer, text, remedy=remedy)
        case _:
            text = str(error) or type(error).__name__
            remedy = "check address and network, and whether the peer runs"
            return ConnectFault(ConnectProblem.UNREACHABLE, peer, text, remedy=remedy)


def lost(error: Exception | None) -> ConnectionLost:
    """An established connection that broke without a word."""
    text = "the connection was cut" if error is None else f"the connection broke: {error}"
    return ConnectionLost(text)


def _verification_fault(error: ssl.SSLCertVerificationError, peer: str) -> ConnectFault:
    text = f"the peer's certificate is not accepted: {error.verify_message}"
    match error.verify_code:
        case 9 | 10:
            problem, remedy = ConnectProblem.EXPIRED, "renew it; if it is valid, check the clocks"
        case 26:
            problem = ConnectProblem.WRONG_PURPOSE
            remedy = "issue it with extended key usage clientAuth and serverAuth"
        case _:
            problem, remedy = ConnectProblem.UNTRUSTED, _RENEW
    return ConnectFault(problem, peer, text, remedy=remedy)


def _tls_fault(error: ssl.SSLError, peer: str) -> ConnectFault:
    reason = error.reason or "unknown"
    known = _REASONS.get(reason)
    if known is not None:
        problem, text, remedy = known
        return ConnectFault(problem, peer, text, remedy=remedy)
    problem = ConnectProblem.REFUSED_BY_PEER if "_ALERT_" in reason else ConnectProblem.TLS
    text = f"TLS failed: {reason.lower().replace('_', ' ')}"
    return ConnectFault(problem, peer, text, remedy="see the peer's log")
