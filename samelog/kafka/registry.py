"""All APIs that are served. What ApiVersions tells clients, and docs/kafka.md, comes from here.

Invariant: a key is here once, and the set of versions is one that clients get along with
(docs/kafka.md, "Versions").
"""

from __future__ import annotations

from collections.abc import Mapping

from samelog.kafka.api import KafkaApi
from samelog.kafka.apis.cluster import describe_cluster, metadata
from samelog.kafka.apis.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from samelog.kafka.apis.records import (
    delete_records,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from samelog.kafka.apis.session import api_versions, sasl_authenticate, sasl_handshake
from samelog.kafka.apis.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from samelog.kafka.audit import audited
from samelog.kafka.broker import Broker

GROUPS: tuple[KafkaApi[Broker], ...] = (
    offset_commit.API,
    offset_fetch.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    delete_groups.API,
    offset_delete.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
)
"""What only a coordinator answers."""
SERVED: tuple[KafkaApi[Broker], ...] = (
    sasl_handshake.API,
    sasl_authenticate.API,
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_configs.API,
    alter_configs.API,
    create_partitions.API,
    incremental_alter_configs.API,
    describe_cluster.API,
    describe_producers.API,
    find_coordinator.API,
    *GROUPS,
)
ALL: tuple[KafkaApi[Broker], ...] = (*SERVED, api_versions.make(SERVED))
CHANGES = {
    create_topics.API.key,
    delete_topics.API.key,
    delete_records.API.key,
    alter_configs.API.key,
    create_partitions.API.key,
    incremental_alter_configs.API.key,
    delete_groups.API.key,
    offset_delete.API.key,
}
"""What administrators change."""
APIS: Mapping[int, KafkaApi[Broker]] = {
    api.key: audited(api) if api.key in CHANGES else api for api in ALL
}
