"""SaslHandshake (17): chooses how to authenticate. Version 0 is refused: its tokens would come
without Kafka's requests around them. It is listed all the same, because librdkafka 2.0 takes that
for the sign that there is any SASL, and then asks for version 1.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.clients.sasl import MECHANISMS
from samelog.kafka.codec.schemas import ResponseBody

OLDEST = 1


class SaslHandshakeResponse(ResponseBody, frozen=True):
    """The response of this API."""

    error_code: ErrorCode
    mechanisms: Sequence[str] = ()


def handle(call: NodeCall, request: Any) -> SaslHandshakeResponse:
    """Answer a request of this API."""
    client = call.client
    if call.version < OLDEST:
        return SaslHandshakeResponse(ErrorCode.unsupported_version)
    if client.authenticator is None or client.identity:
        return SaslHandshakeResponse(ErrorCode.illegal_sasl_state)
    client.exchange = client.authenticator.begin(request.mechanism, secrets.token_hex(16))
    is_known = client.exchange is not None
    error = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
    return SaslHandshakeResponse(error, MECHANISMS)


API = KafkaApi(
    key=17,
    name="SaslHandshake",
    first=0,
    last=1,
    flexible_from=99,
    handle=handle,
    before_authentication=True,
    notes="Version 0 is refused. PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; on `sasl_tls` only.",
)
