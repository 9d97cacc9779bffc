"""What begins a connection: ApiVersions, SaslHandshake, SaslAuthenticate.

A version of ApiVersions that is newer than ours is answered as Kafka's broker does (KIP-511): with
the body of version 0, UNSUPPORTED_VERSION, and the list, from which the client picks and asks
again. Of the features that Kafka's brokers have, one changes how clients talk: with version 2 of
transactions (KIP-890) each has an epoch of its own, and takes partitions in by their batches.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from samelog.config.authorisation import USER_PREFIX
from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, KafkaApi, NodeCall, kafka_api
from samelog.kafka.clients.sasl import AuthenticationFailed
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import Entity, ResponseBody

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
    notes="Version 0 is refused. PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; on `sasl_tls` "
    "only.",
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
    return SaslHandshakeResponse(error, client.authenticator.mechanisms)


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


KEY = 18
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersionsResponseKey(Entity, frozen=True):
    """An API and its versions."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(Entity, frozen=True):
    """A feature, and the versions of it that this node has."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(Entity, frozen=True):
    """A feature that the cluster goes by."""

    name: str
    max_version_level: int
    min_version_level: int


TRANSACTION_VERSION = "transaction.version"
EPOCH_EACH = 2
"""Of transactions; 0 is without."""
KNOWS_VERSION_0 = 4
"""Java clients that ask by an older version end at a feature whose versions begin with 0."""


class ApiVersionsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    api_keys: Sequence[ApiVersionsResponseKey]
    error_code: ErrorCode = ErrorCode.none
    supported_features: Sequence[SupportedFeature] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[FinalizedFeature] = ()


def list_of(
    apis: Iterable[KafkaApi[Any]],
    error: ErrorCode = ErrorCode.none,
    *,
    asked_by: int | None = None,
) -> ApiVersionsResponse:
    """The list of what is served, by key. `asked_by`: the version of a request that is told that
    there are transactions.
    """
    ordered = sorted(apis, key=lambda api: api.key)
    keys = [ApiVersionsResponseKey(api.key, api.first, api.last) for api in ordered]
    if asked_by is None:
        return ApiVersionsResponse(keys, error)
    first = 0 if asked_by >= KNOWS_VERSION_0 else 1
    supported = SupportedFeature(TRANSACTION_VERSION, first, EPOCH_EACH)
    finalized = FinalizedFeature(TRANSACTION_VERSION, EPOCH_EACH, EPOCH_EACH)
    return ApiVersionsResponse(keys, error, [supported], EPOCH_EACH, [finalized])


def make(apis: Iterable[KafkaApi[Any]]) -> KafkaApi[AnyBroker]:
    """The API that lists these and itself."""

    def handle(call: AnyCall, request: Any) -> ApiVersionsResponse:
        if call.version >= 3:
            words = request.client_software_name, request.client_software_version
            if not all(_SOFTWARE.fullmatch(word) for word in words):
                return list_of(listed, ErrorCode.invalid_request)
            call.client.software = " ".join(words)
        has_transactions = call.broker.transactions is not None
        return list_of(listed, asked_by=call.version if has_transactions else None)

    api = KafkaApi(
        key=KEY,
        name="ApiVersions",
        first=0,
        last=4,
        flexible_from=3,
        handle=handle,
        before_authentication=True,
        notes="The only feature is `transaction.version`, at nodes.",
    )
    listed = [*apis, api]
    return api
