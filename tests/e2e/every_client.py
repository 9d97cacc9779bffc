"""One client of each kind, alive on one topic, so that tests see what an event does to each."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Producer

from samelog import Publisher, Subscriber
from samelog.admin.kept import KeptConnection
from samelog.admin.requests import PeekRecords
from tests.e2e.harness import wait_for
from tests.e2e.mirroring import TwoClusters
from tests.e2e.recreated import local_publisher, publisher_sidecar, subscriber_sidecar
from tests.patience import PATIENCE_S
from tests.spark.local import Journal

TOPIC, GROUP, SESSION, TRANSACTIONAL_ID = "t", "kg", "native", "tx"
READERS = ("subscriber", "sidecar", "spark", "kafka", "http", "mirror")


@dataclass
class Seen:
    """What each kind of reader has read, in the order of arrival."""

    values: dict[str, list[bytes]] = field(
        default_factory=lambda: {reader: [] for reader in READERS}
    )


class EveryClient:
    """Writers: a native publisher, one behind a sidecar, a transactional Kafka producer. Readers: a
    subscriber, one behind a sidecar, a Spark stream, a Kafka group, HTTP, and a mirror of another
    cluster, which a subscriber reads there.
    """

    def __init__(self, pair: TwoClusters) -> None:
        self.pair = pair
        self.world = pair.source
        self.config = self.world.cluster.client_config()
        self.bootstrap = self.config.kafka_bootstrap
        self.written: list[bytes] = []
        self.seen = Seen()
        self._numbers = count()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        world, take = self.world, self._stack.enter_context
        bootstrap = self.bootstrap
        self.native = world.publisher(SESSION, TOPIC)
        self._stack.callback(lambda: self.native.close())  # noqa: PLW0108 - it may be replaced
        self.local: Publisher = take(local_publisher(world, "local", TOPIC))
        self.shipping = take(publisher_sidecar(world))
        self.producer = self.new_producer()
        self.subscriber: Subscriber = take(world.subscriber("s", TOPIC))
        self.copying = take(subscriber_sidecar(world, TOPIC))
        copies = str(world.directory / "copies")
        self.reader = take(Subscriber(TOPIC, directory=copies, start="earliest"))
        self.write()
        options = {"subscribe": TOPIC, "startingOffsets": "earliest"}
        self.stream = Journal(config=world.cluster.client_file, **options)
        self._stack.callback(self.stream.reader.stop)
        self.consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
        )
        self.consumer.subscribe([TOPIC])
        self._stack.callback(self.consumer.close)
        self.http = KeptConnection(self.config)
        self._stack.callback(self.http.close)
        self.pair.configure([TOPIC])
        self.mirroring = take(self.pair.sidecar())
        self.mirrored: Subscriber = take(self.pair.destination.subscriber("m", f"eu.{TOPIC}"))
        self.read_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def new_producer(self) -> Producer:
        """A transactional producer, which fences one before it."""
        settings = {"transactional.id": TRANSACTIONAL_ID, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        producer.init_transactions(PATIENCE_S)
        return producer

    def replace_native(self, publisher: Publisher) -> None:
        """Write with this publisher from now on."""
        self.native.close()
        self.native = publisher

    def write(self, *without: str) -> None:
        """One record from each writer."""
        sent = {
            writer: b"%s-%d" % (writer.encode(), next(self._numbers))
            for writer in ("native", "local", "kafka")
            if writer not in without
        }
        if "native" in sent:
            self.native.append(sent["native"])
        if "local" in sent:
            self.local.append(sent["local"])
        if "kafka" in sent:
            self.produce(sent["kafka"])
        if "native" in sent:
            self.native.wait_merged(timeout=PATIENCE_S)
        self.written += sent.values()

    def produce(self, value: bytes) -> None:
        """A transaction with one record."""
        self.producer.begin_transaction()
        self.producer.produce(TOPIC, value)
        self.producer.commit_transaction(PATIENCE_S)

    def read_all(self, *without: str) -> None:
        """Every reader gets every record that was written, once."""
        wanted = sorted(self.written)
        for reader in READERS:
            if reader not in without:
                wait_for(
                    lambda r=reader: self._look(r) >= len(wanted),  # type: ignore[misc]
                    f"{reader} reads all of {wanted}, not {self.seen.values[reader]}",
                )
                assert sorted(self.seen.values[reader]) == wanted, reader

    def _look(self, reader: str) -> int:
        """How many records a reader has, after another look."""
        seen = self.seen.values[reader]
        match reader:
            case "subscriber":
                seen += _values(self.subscriber)
            case "sidecar":
                seen += _values(self.reader)
            case "mirror":
                seen += _values(self.mirrored)
            case "spark":
                seen += [value for batch in self.stream.run() for value in batch]
            case "kafka":
                message = self.consumer.poll(0.2)
                if message is not None and message.error() is None:
                    seen.append(message.value() or b"")
            case "http":
                page = self.http.ask(PeekRecords(TOPIC), PATIENCE_S)
                seen[:] = [record.value or b"" for record in page.records]
        return len(seen)


def _values(subscriber: Subscriber) -> list[bytes]:
    return [each.value or b"" for each in subscriber.batch(timeout=0.1)]
