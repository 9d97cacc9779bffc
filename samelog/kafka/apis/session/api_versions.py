"""ApiVersions (18): which APIs, in which versions; the first request of almost every client.

A version that is newer than ours is answered as Kafka's broker does (KIP-511): with the body of
version 0, UNSUPPORTED_VERSION, and the list, from which the client picks and asks again. The list
of features stays empty: none of them is needed for what is served.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import AnyCall, KafkaApi
from samelog.kafka.codec.schemas import Tree

KEY = 18
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def answer(apis: Iterable[KafkaApi[Any]], error: ErrorCode = ErrorCode.none) -> Tree:
    """The list of what is served."""
    keys = [{"api_key": api.key, "min_version": api.first, "max_version": api.last} for api in apis]
    return {"error_code": error, "api_keys": keys}


def make(apis: Iterable[KafkaApi[Any]]) -> KafkaApi[AnyBroker]:
    """The API that lists these and itself."""

    def handle(call: AnyCall, request: Any) -> Tree:
        if call.version >= 3:
            words = request.client_software_name, request.client_software_version
            if not all(_SOFTWARE.fullmatch(word) for word in words):
                return answer(listed, ErrorCode.invalid_request)
            call.client.software = " ".join(words)
        return answer(listed)

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
    listed = sorted([*apis, api], key=lambda api: api.key)
    return api
