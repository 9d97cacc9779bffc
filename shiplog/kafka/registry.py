"""All APIs that are served. What ApiVersions tells clients, and docs/kafka.md, comes from here.

Invariant: a key is here once, and the set of versions is one that clients get along with
(docs/kafka.md, "Versions").
"""

from __future__ import annotations

from collections.abc import Mapping

from shiplog.kafka.api import Api
from shiplog.kafka.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_producers,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)

SERVED: tuple[Api, ...] = (
    fetch.API,
    list_offsets.API,
    metadata.API,
    create_topics.API,
    delete_topics.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    alter_configs.API,
    create_partitions.API,
    incremental_alter_configs.API,
    describe_cluster.API,
    describe_producers.API,
)
APIS: Mapping[int, Api] = {api.key: api for api in (*SERVED, api_versions.make(SERVED))}
