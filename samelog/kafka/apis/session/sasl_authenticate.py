"""SaslAuthenticate (36): one message of the exchange that SaslHandshake has chosen. After a failure
the connection is closed behind the answer.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.config.authorisation import USER_PREFIX
from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.clients.sasl import AuthenticationFailed
from samelog.kafka.codec.schemas import ResponseBody


class SaslAuthenticateResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    auth_bytes: bytes = b""


def handle(call: NodeCall, request: Any) -> SaslAuthenticateResponse:
    """Answer a request of this API."""
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


API = KafkaApi(
    key=36,
    name="SaslAuthenticate",
    first=0,
    last=2,
    flexible_from=2,
    handle=handle,
    before_authentication=True,
    notes="Sessions do not expire.",
)
