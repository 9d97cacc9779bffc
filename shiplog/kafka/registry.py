"""All APIs that are served. What ApiVersions tells clients, and docs/kafka.md, comes from here.

Invariant: a key is here once, and the set of versions is one that clients get along with
(docs/kafka.md, "Versions").
"""

from __future__ import annotations

from collections.abc import Mapping

from shiplog.kafka.api import Api
from shiplog.kafka.apis import api_versions

SERVED: tuple[Api, ...] = ()
APIS: Mapping[int, Api] = {api.key: api for api in (*SERVED, api_versions.make(SERVED))}
