"""What aiokafka's administrator does, on a real cluster.

It has no words for groups' offsets, nor for those of partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import OffsetOutOfRangeError

from tests.e2e.harness import World
from tests.kafka.clients import Access, Rec, Writing, client_named
from tests.kafka.features import shows
from tests.patience import PATIENCE_S

CLIENT = "aiokafka"
EXISTS, UNKNOWN, INVALID = 36, 3, 40
POLL_S = 0.05


def with_admin(boot: str, steps: Callable[[AIOKafkaAdminClient], Awaitable[None]]) -> None:
    """Run the steps with a client."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=boot)
        await admin.start()
        try:
            await steps(admin)
        finally:
            await admin.close()

    asyncio.run(run())


async def soon(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what a node says once it has applied what another one answered, as with Kafka."""
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


@shows(CLIENT, "admin: topics", "admin: partitions")
def test_topics(boot: str, topic: str) -> None:
    async def steps(admin: Any) -> None:
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert again.topic_errors[0][:2] == (topic, EXISTS)
        await admin.create_partitions({topic: NewPartitions(4)})

        async def has_four() -> bool:
            (told,) = await admin.describe_topics([topic])
            return len(told["partitions"]) == 4

        await soon(has_four)
        await admin.delete_topics([topic])
        gone = await admin.delete_topics([topic])
        assert gone.topic_error_codes[0] == (topic, UNKNOWN)
        assert topic not in await admin.list_topics()

    with_admin(boot, steps)


@shows(CLIENT, "admin: settings")
def test_settings(boot: str, topic: str) -> None:
    def change(name: str, value: str) -> ConfigResource:
        return ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})

    async def steps(admin: Any) -> None:
        (done,) = await admin.alter_configs([change("segment.bytes", "70000")])
        assert done.resources[0][0] == 0

        async def has_changed() -> bool:
            told = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            values = {entry[0]: entry[1] for entry in told[0].resources[0][4]}
            return bool(values["segment.bytes"] == "70000")

        await soon(has_changed)
        (refused,) = await admin.alter_configs([change("colour", "red")])
        assert refused.resources[0][0] == INVALID

    with_admin(boot, steps)


@shows(CLIENT, "admin: cluster")
def test_cluster(boot: str, world: World) -> None:
    async def steps(admin: Any) -> None:
        told = await admin.describe_cluster()
        assert told["cluster_id"] == world.cluster.options.cluster
        assert {(node["host"], node["port"]) for node in told["brokers"]} == {
            node.kafka for node in world.cluster.nodes
        }

    with_admin(boot, steps)


@shows(CLIENT, "admin: delete records")
def test_delete_records(boot: str, topic: str) -> None:
    records = [Rec(str(number).encode()) for number in range(5)]
    client_named(CLIENT).write(Access(bootstrap=boot), topic, records, Writing())
    partition = TopicPartition(topic, 0)

    async def steps(admin: Any) -> None:
        assert await admin.delete_records({partition: RecordsToDelete(3)}) == {partition: 3}
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({partition: RecordsToDelete(6)})

    with_admin(boot, steps)
