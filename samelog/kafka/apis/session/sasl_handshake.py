"""SaslHandshake (17): chooses how to authenticate. Version 0 is refused: its tokens would come
without Kafka's requests around them. It is listed all the same, because librdkafka 2.0 takes that
for the sign that there is any SASL, and then asks for version 1.
"""

from __future__ import annotations

import secrets
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall
from samelog.kafka.clients.sasl import MECHANISMS
from samelog.kafka.codec.schemas import Tree

OLDEST = 1


def handle(call: NodeCall, request: Any) -> Tree:
    """Answer a request."""
    client = call.client
    if call.version < OLDEST:
        return {"error_code": ErrorCode.unsupported_version, "mechanisms": []}
    if client.authenticator is None or client.identity:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    client.exchange = client.authenticator.begin(request.mechanism, secrets.token_hex(16))
    is_known = client.exchange is not None
    error = ErrorCode.none if is_known else ErrorCode.unsupported_sasl_mechanism
    return {"error_code": error, "mechanisms": list(MECHANISMS)}


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
