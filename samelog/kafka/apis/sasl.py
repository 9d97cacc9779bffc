"""Authentication: SaslHandshake, SaslAuthenticate."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.config.authorisation import USER_PREFIX
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.clients.sasl import MECHANISMS, AuthenticationFailed
from samelog.kafka.codec.schemas import ResponseBody

OLDEST = 1


class SaslHandshakeResponse(ResponseBody, frozen=True):
    """The response of `sasl_handshake`."""

    error_code: ErrorCode
    mechanisms: Sequence[str] = ()


@kafka_api(
    17,
    "SaslHandshake",
    0,
    1,
    flexible_from=99,
    before_authentication=True,
    notes="Version 0 is refused. PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; on `sasl_tls` only.",
)
def sasl_handshake(call: NodeCall, request: Any) -> SaslHandshakeResponse:
    """Chooses how to authenticate. Version 0 is refused: its tokens would come without Kafka's
    requests around them. It is listed all the same, because librdkafka 2.0 takes that for the sign
    that there is any SASL, and then asks for version 1.
    """
    client = call.client
    if call.version < OLDEST:
        return SaslHandshakeResponse(ErrorCode.unsupported_version)
    if client.authenticator is None or client.identity:
        return SaslHandshakeResponse(ErrorCode.illegal_sasl_state)
    client.exchange = client.authenticator.begin(request.mechanism, secrets.token_hex(16))
    is_known = client.exchange is not None
    error = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
    return SaslHandshakeResponse(error, MECHANISMS)


class SaslAuthenticateResponse(ResponseBody, frozen=True):
    """The response of `sasl_authenticate`."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    auth_bytes: bytes = b""


@kafka_api(
    36,
    "SaslAuthenticate",
    0,
    2,
    flexible_from=2,
    before_authentication=True,
    notes="Sessions do not expire.",
)
def sasl_authenticate(call: NodeCall, request: Any) -> SaslAuthenticateResponse:
    """One message of the exchange that SaslHandshake has chosen. After a failure
    the connection is closed behind the answer.
    """
    client = call.client
    if client.exchange is None:
        text = "SaslHandshake has to come first"
        return SaslAuthenticateResponse(ErrorCode.illegal_sasl_state, text)
    try:
        answer = client.exchange.step(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        client.exchange = None
        client.rejected = str(failure)
        return SaslAuthenticateResponse(ErrorCode.sasl_authentication_failed, client.rejected)
    if client.exchange.user is not None:
        client.identity = USER_PREFIX + client.exchange.user
        client.exchange = None
    return SaslAuthenticateResponse(auth_bytes=answer)
