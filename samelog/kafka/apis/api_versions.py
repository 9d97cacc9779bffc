"""ApiVersions (18): which APIs, in which versions; the first request of almost every client.

A version that is newer than ours is answered as Kafka's broker does (KIP-511): with the body of
version 0, UNSUPPORTED_VERSION, and the list, from which the client picks and asks again. The list
of features stays empty: none of them is needed for what is served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.codec.schemas import Entity, ResponseBody

KEY = 18
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersionsResponseKey(Entity, frozen=True):
    """An API and its versions."""

    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(ResponseBody, frozen=True):
    """The response of this API."""

    api_keys: Sequence[ApiVersionsResponseKey]
    error_code: ErrorCode = ErrorCode.none


def list_of(
    apis: Iterable[KafkaApi[Any]], error: ErrorCode = ErrorCode.none
) -> ApiVersionsResponse:
    """The list of what is served, by key."""
    ordered = sorted(apis, key=lambda api: api.key)
    keys = [ApiVersionsResponseKey(api.key, api.first, api.last) for api in ordered]
    return ApiVersionsResponse(keys, error)


def make(apis: Iterable[KafkaApi[Any]]) -> KafkaApi[AnyBroker]:
    """The API that lists these and itself."""

    def handle(call: AnyCall, request: Any) -> ApiVersionsResponse:
        if call.version >= 3:
            words = request.client_software_name, request.client_software_version
            if not all(_SOFTWARE.fullmatch(word) for word in words):
                return list_of(listed, ErrorCode.invalid_request)
            call.client.software = " ".join(words)
        return list_of(listed)

    api = KafkaApi(
        key=KEY,
        name="ApiVersions",
        first=0,
        last=4,
        flexible_from=3,
        handle=handle,
        before_authentication=True,
        notes="The list of features is empty.",
    )
    listed = [*apis, api]
    return api
