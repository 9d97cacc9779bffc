"""Records of up to 64 MiB by Kafka's protocol, where the node and the topic allow them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from samelog.cli.local_cluster import LOCAL_KAFKA, ClusterOptions, LocalCluster
from samelog.config.load import load_node
from samelog.config.schema.render import to_toml
from tests.patience import PATIENCE_S

LONGEST = 64 << 20


def by_kafka(boot: str, values: list[bytes]) -> list[bytes | None]:
    """What a consumer gets of what a producer wrote."""
    most = {"message.max.bytes": LONGEST + (1 << 20)}
    producer = Producer({"bootstrap.servers": boot, "linger.ms": 0, **most})
    failed: list[Any] = []
    for value in values:
        producer.produce("long", value, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error and error.str() for error in failed] == [None] * len(values)
    options = {"bootstrap.servers": boot, "group.id": "g", "fetch.message.max.bytes": 1 << 20}
    consumer = Consumer({**options, "receive.message.max.bytes": 2 * LONGEST})
    consumer.assign([TopicPartition("long", 0, OFFSET_BEGINNING)])
    found: list[bytes | None] = []
    while len(found) < len(values):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.usefixtures("starts_nodes")
def test_kafka_clients_write_and_read_long_records(tmp_path: Path) -> None:
    kafka = replace(LOCAL_KAFKA, max_request_bytes=LONGEST + (1 << 20))
    with LocalCluster(str(tmp_path), ClusterOptions(nodes=1, kafka=kafka)) as cluster:
        cluster.prepare()
        file = Path(cluster.nodes[0].config_file)
        file.write_text(to_toml(replace(load_node(str(file)), max_record_bytes=LONGEST)))
        cluster.start()
        config = cluster.client_config()
        boot = config.kafka_bootstrap
        topic = NewTopic("long", 1, 1, config={"max.message.bytes": str(LONGEST)})
        admin = AdminClient({"bootstrap.servers": boot})
        admin.create_topics([topic])["long"].result(PATIENCE_S)
        values = [b"k" * (LONGEST - 200), b"short", b"l" * (9 << 20)]
        assert by_kafka(boot, values) == values
