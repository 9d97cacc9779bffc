"""Topics that real clients use are not deleted by accident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import DeleteTopic
from samelog.wire.errors import FaultCode
from tests.e2e.commands import samelog
from tests.e2e.harness import World, wait_for
from tests.patience import PATIENCE_S

VALUES = [b"a", b"b"]


@contextmanager
def kafka_member(world: World) -> Iterator[None]:
    """A member of a group that reads and commits nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.cluster.client_config().kafka_bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])

    def reads() -> bool:
        message = consumer.poll(0.2)
        return message is not None and message.error() is None

    wait_for(reads, "it reads")
    try:
        yield
    finally:
        consumer.close()


@contextmanager
def native_member(world: World) -> Iterator[None]:
    """A member of a native group that has committed nothing."""
    with world.subscriber("member", group="n", auto_commit=False) as subscriber:
        wait_for(lambda: bool(subscriber.batch(timeout=0.2)), "it reads")
        yield


@contextmanager
def subscriber(world: World) -> Iterator[None]:
    """A subscriber of no group."""
    with world.subscriber("alone") as reading:
        wait_for(lambda: bool(reading.batch(timeout=0.2)), "it reads")
        yield


@contextmanager
def publisher(world: World) -> Iterator[None]:
    """A publisher that has not closed."""
    with world.publisher("p") as publishing:
        publishing.append(b"c")
        publishing.wait_merged(timeout=PATIENCE_S)
        yield


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (kafka_member, "group g"),
        (native_member, "group n"),
        (subscriber, "samelog://"),
        (publisher, "publisher p"),
    ],
)
def test_what_is_used_stays(
    single: World, use: Callable[[World], AbstractContextManager[None]], named: str
) -> None:
    with single.publisher("first") as first:
        first.append_many(VALUES)
        first.wait_merged(timeout=PATIENCE_S)
    config = ("--config", single.cluster.client_file)
    with use(single):
        refused = samelog("topic", "delete", "t", "--confirm", "t", *config)
        assert (refused.returncode, named in refused.stderr) == (1, True), refused.stderr
        assert "--in-use" in refused.stderr
        with pytest.raises(AdminError) as raised:
            ask(single.cluster.client_config(), DeleteTopic("t", confirm="t"))
        assert raised.value.code is FaultCode.TOPIC_IN_USE
    assert samelog("topic", "delete", "t", "--confirm", "t", *config).returncode == 0


def test_kafka_deletes_as_kafka_does(single: World) -> None:
    boot = single.cluster.client_config().kafka_bootstrap
    with publisher(single), subscriber(single):
        admin = AdminClient({"bootstrap.servers": boot})
        deleted = admin.delete_topics(["t"])
        assert deleted["t"].result(PATIENCE_S) is None
