"""What clients do wrong: their libraries get Kafka's own errors, report them or recover, and others
are served as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError, UnsupportedVersionError

from samelog.cli.local_cluster import LOCAL_KAFKA, ClusterOptions, LocalCluster
from samelog.config.pki.authority import CertificateRole
from samelog.config.tables.kafka import BrokerDefaults
from tests.chaos.faults.certificates import rotate
from tests.e2e.harness import wait_for
from tests.kafka.batches import batch, put
from tests.kafka.clients import Access, Rec, Writing, client_named
from tests.kafka.secure import Secure
from tests.kafka.test_producing import produce
from tests.kafka.wire import Wire
from tests.patience import PATIENCE_S

DESCRIBE_PRODUCERS = 61
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, starts_nodes: None) -> Iterator[Secure]:
    """One node with listeners of every kind, where no topic is made by itself."""
    path = tmp_path_factory.mktemp("strict")
    kafka = replace(LOCAL_KAFKA, defaults=BrokerDefaults(auto_create=False))
    with LocalCluster(str(path / "cluster"), ClusterOptions(nodes=1, kafka=kafka)) as cluster:
        cluster.prepare()
        secure = Secure(cluster, path)
        cluster.start()
        yield secure


@pytest.fixture
def plain(strict: Secure) -> str:
    """Where Kafka clients begin."""
    return strict.world.cluster.client_config().kafka_bootstrap


@pytest.fixture
def known(plain: str) -> str:
    """A topic of the test's own."""
    name = f"open-{next(NUMBERS)}"
    admin = AdminClient({"bootstrap.servers": plain})
    admin.create_topics([NewTopic(name, 1)])[name].result(PATIENCE_S)
    return name


def sent(producer: Any, topic: str, value: bytes = b"v", **more: Any) -> int | None:
    """The code of the error that a record ends with; None if it is delivered."""
    told: list[Any] = []
    producer.produce(topic, value, on_delivery=lambda error, _: told.append(error), **more)
    producer.flush(PATIENCE_S)
    (error,) = told
    return None if error is None else int(error.code())


def is_served(plain: str, topic: str, *, after: Sequence[bytes] = ()) -> bool:
    """Whether another client writes, and reads that behind what is there, and nothing else."""
    client, access = client_named("confluent-kafka"), Access(bootstrap=plain)
    client.write(access, topic, [Rec(b"fine")], Writing())
    found = client.read(access, topic, len(after) + 1)
    return [each.value for each in found] == [*after, b"fine"]


# --- what is not there --------------------------------------------------------------------------


def test_a_topic_that_is_not_there_and_is_not_made(plain: str, known: str) -> None:
    options = {"bootstrap.servers": plain, "topic.metadata.propagation.max.ms": 1000}
    unknown = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}
    assert sent(Producer(options), "nowhere") in unknown
    python = KafkaProducer(bootstrap_servers=plain, max_block_ms=1500)
    with pytest.raises(KafkaTimeoutError):
        python.send("nowhere", b"v").get(PATIENCE_S)
    python.close()
    reader = Consumer({"bootstrap.servers": plain, "group.id": "g", "log_level": 0})
    reader.subscribe(["nowhere"])
    told: Any = reader.poll(PATIENCE_S)
    assert told.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    reader.close()
    admin = AdminClient({"bootstrap.servers": plain})
    assert "nowhere" not in admin.list_topics(timeout=PATIENCE_S).topics
    assert is_served(plain, known)


def test_a_partition_that_is_not_there(plain: str, known: str) -> None:
    producer = Producer({"bootstrap.servers": plain})
    assert sent(producer, known, partition=7) == KafkaError._UNKNOWN_PARTITION
    assert sent(producer, known, partition=0) is None
    reader = Consumer({"bootstrap.servers": plain, "group.id": "g", "log_level": 0})
    with pytest.raises(KafkaException) as refused:
        reader.get_watermark_offsets(TopicPartition(known, 7), PATIENCE_S)
    assert refused.value.args[0].code() in {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    reader.close()


# --- what is not taken --------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_record_that_is_too_long(plain: str, known: str, *, idempotent: bool) -> None:
    options = {"message.max.bytes": 10_000_000, "enable.idempotence": idempotent}
    producer = Producer({"bootstrap.servers": plain, **options})
    assert sent(producer, known, b"before") is None
    assert sent(producer, known, b"x" * (2 << 20)) == KafkaError.MSG_SIZE_TOO_LARGE
    assert sent(producer, known, b"after") is None
    assert is_served(plain, known, after=[b"before", b"after"])


def test_an_old_message_format(plain: str, known: str) -> None:
    producer = KafkaProducer(bootstrap_servers=plain, api_version=(0, 10), retries=0)
    with pytest.raises(UnsupportedVersionError):
        producer.send(known, b"v").get(PATIENCE_S)
    producer.close()
    assert is_served(plain, known)


def test_a_codec_that_nobody_knows(strict: Secure, plain: str, known: str) -> None:
    address = strict.world.cluster.nodes[0].kafka
    assert address is not None
    with Wire(address) as wire:
        found = produce(wire, known, put(21, ">H", 5)(batch(b"v")))
        assert found.error_code == KafkaError.UNSUPPORTED_COMPRESSION_TYPE
        assert "codec" in found.error_message
    assert is_served(plain, known)


def test_a_producer_of_an_older_epoch(strict: Secure, plain: str, known: str) -> None:
    options = {"bootstrap.servers": plain, "enable.idempotence": True, "log_level": 0}
    producer = Producer(options)
    assert sent(producer, known, b"mine") is None
    address = strict.world.cluster.nodes[0].kafka
    assert address is not None
    with Wire(address) as wire:
        asked = {"topics": [{"name": known, "partition_indexes": [0]}]}
        (mine,) = wire.ask(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
        newer = {"producer_id": mine.producer_id, "producer_epoch": mine.producer_epoch + 1}
        assert produce(wire, known, batch(b"newer", base_sequence=0, **newer)).error_code == 0
    assert sent(producer, known, b"again") == KafkaError.INVALID_PRODUCER_EPOCH
    assert is_served(plain, known, after=[b"mine", b"newer"])


# --- who is not let in --------------------------------------------------------------------------


def errors_of(options: dict[str, Any]) -> set[int]:
    """What a client says that cannot get in."""
    told: list[Any] = []
    client = AdminClient(options | {"error_cb": told.append})

    def is_told() -> bool:
        client.poll(0.1)
        return bool(told)

    wait_for(is_told, "an error")
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    return {int(error.code()) for error in told}


def test_wrong_credentials(strict: Secure, plain: str, known: str) -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "ann"}
    wrong = strict.options("sasl", sasl_password="wrong", **login)
    assert KafkaError._AUTHENTICATION in errors_of(wrong)
    assert is_served(plain, known)


def test_a_certificate_that_has_expired(strict: Secure, plain: str, known: str) -> None:
    rotate(Path(strict.pki), CertificateRole.SUBSCRIBER, "late", lifetime_s=-1)
    late = strict.options("mtls", **strict.certificate("subscriber-late"))
    assert errors_of(late) & {KafkaError._SSL, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
    good = strict.options("mtls", **strict.certificate("client-local"))
    assert known in AdminClient(good).list_topics(timeout=PATIENCE_S).topics
    assert is_served(plain, known)


# --- who is not a member any more ---------------------------------------------------------------


def member(plain: str, group: str, **more: Any) -> Any:
    """A consumer of the classic protocol."""
    options = {
        "bootstrap.servers": plain,
        "group.id": group,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 500,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    return Consumer(options | {name.replace("_", "."): value for name, value in more.items()})


def assigned(consumer: Any) -> None:
    """Until it has the topic's partition."""

    def has_it() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_for(has_it, "an assignment")


def test_a_commit_of_an_older_generation(plain: str, known: str) -> None:
    idle = member(plain, known, max_poll_interval_ms=6000)
    idle.subscribe([known])
    assigned(idle)
    other = member(plain, known)
    other.subscribe([known])
    assigned(other)  # the idle one does not poll, thus loses its place
    with pytest.raises(KafkaException) as refused:
        idle.commit(offsets=[TopicPartition(known, 0, 5)], asynchronous=False)
    assert refused.value.args[0].code() in {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
    assert other.committed([TopicPartition(known, 0)], PATIENCE_S)[0].offset < 0
    other.close()
    assigned(idle)
    idle.commit(offsets=[TopicPartition(known, 0, 0)], asynchronous=False)
    idle.close()


def test_two_static_members_with_one_id(plain: str, known: str) -> None:
    older = member(plain, known, group_instance_id="one")
    older.subscribe([known])
    assigned(older)
    newer = member(plain, known, group_instance_id="one")
    newer.subscribe([known])
    assigned(newer)
    found: list[int] = []

    def is_fenced() -> bool:
        message = older.poll(0.1)
        if message is not None and message.error() is not None:
            found.append(int(message.error().code()))
        return bool(found)

    wait_for(is_fenced, "the older one is told")
    assert set(found) <= {KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL}
    newer.commit(offsets=[TopicPartition(known, 0, 0)], asynchronous=False)
    older.close()
    newer.close()
