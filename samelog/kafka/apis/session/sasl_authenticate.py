"""SaslAuthenticate (36): one message of the exchange that SaslHandshake has chosen. After a failure
the connection is closed behind the answer.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.config.authorisation import USER_PREFIX
from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.clients.sasl import AuthenticationFailed
from samelog.kafka.codec.schemas import Tree


def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    client = call.client
    if client.exchange is None:
        text = "SaslHandshake has to come first"
        return _refused(ErrorCode.illegal_sasl_state, text)
    try:
        answer = client.exchange.step(bytes(request.auth_bytes))
    except AuthenticationFailed as failure:
        client.exchange = None
        client.rejected = str(failure)
        return _refused(ErrorCode.sasl_authentication_failed, str(failure))
    if client.exchange.user is not None:
        client.identity = USER_PREFIX + client.exchange.user
        client.exchange = None
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "auth_bytes": answer,
        "session_lifetime": 0,
    }


def _refused(code: ErrorCode, message: str) -> Tree:
    return {"error_code": code, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}


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
