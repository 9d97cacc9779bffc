"""Metadata without a cluster: what is said of topics that are not known here."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from samelog.kafka.any_broker import AnyBroker, BrokerEndpoint
from samelog.kafka.apis.metadata import MetadataResponse, metadata
from samelog.kafka.broker import Broker as NodeBroker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.sequencer.state.tables.topics import Topic
from samelog.sequencer.state.types import State

TOPIC = SimpleNamespace(
    name="new", partitions=1, log_id=UUID(int=7).hex, is_placed=False, is_generated=False
)


class Broker(SimpleNamespace):
    """Knows what was committed once it has caught up; counts how often that is asked for."""

    confirm_leader = AnyBroker.confirm_leader
    nodes_of = AnyBroker.nodes_of
    behind = AnyBroker.behind
    leader_of = AnyBroker.leader_of
    epoch_of = AnyBroker.epoch_of

    def __init__(self, *, failure: ApiError | None = None) -> None:
        super().__init__(leader=0, epoch=3, cluster="c", auto_creates=True, reads=0, made=[])
        self.failure = failure
        self.known: dict[str | UUID, Any] = {}

    async def catch_up(self) -> None:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        self.known = {"new": TOPIC, UUID(TOPIC.log_id): TOPIC}

    async def create_by_default(self, name: str) -> None:
        self.made.append(name)
        self.known[name] = SimpleNamespace(
            name=name, partitions=1, log_id=UUID(int=8).hex, is_placed=False, is_generated=False
        )

    def topic(self, key: str | UUID) -> Any:
        return self.known.get(key)

    shown = topic

    def may_describe(self, *_: object) -> bool:
        return True

    def endpoints(self, _: str) -> list[Any]:
        return []

    def controller(self, _: str) -> int:
        return 0

    def nodes(self) -> list[int]:
        return [0]

    is_there = may_write = may_create = may_describe


def ask(broker: Broker, name: str | None = None, topic_id: UUID | None = None) -> Any:
    """What is said of one topic."""
    client = SimpleNamespace(listener="inside")
    call: Any = SimpleNamespace(broker=broker, client=client, version=12)
    asked = SimpleNamespace(name=name, topic_id=topic_id)
    answer: Any = metadata.handle(call, SimpleNamespace(topics=[asked]))
    found: MetadataResponse = asyncio.run(answer)
    (topic,) = found.topics
    return topic


@pytest.mark.parametrize("key", [{"name": "new"}, {"topic_id": UUID(int=7)}])
def test_a_new_topic_is_found_and_the_cluster_is_asked_once(key: Any) -> None:
    broker = Broker()
    assert (ask(broker, **key).name, broker.reads) == ("new", 1)


def test_a_topic_that_is_nowhere_is_made_and_the_cluster_is_asked_once() -> None:
    broker = Broker()
    assert (ask(broker, name="other").error_code, broker.reads) == (ErrorCode.none, 1)
    assert broker.made == ["other"]


@pytest.mark.parametrize("key", [{"name": "other"}, {"topic_id": UUID(int=9)}])
def test_nothing_is_said_of_an_unknown_topic_while_no_leader_answers(key: Any) -> None:
    broker = Broker(failure=ApiError(ErrorCode.leader_not_available, "nobody leads"))
    assert ask(broker, **key).error_code is ErrorCode.leader_not_available
    assert (broker.reads, broker.made) == (1, [])


def test_an_id_that_no_topic_has_is_unknown() -> None:
    assert ask(Broker(), topic_id=UUID(int=9)).error_code is ErrorCode.unknown_topic_id


def test_who_has_a_rack_is_sent_to_who_has_the_partition_there() -> None:
    """By the leader of the partition, whoever leads group 0."""
    topic = Topic("t" * 32, "t", {}, 1, [1], is_placed=True)
    leader, lacking = [0], list[int]()
    tested: Any = SimpleNamespace(
        number=0,
        machine=SimpleNamespace(state=State()),
        placed=SimpleNamespace(
            members=lambda *_: [0, 1],
            behind=lambda *_: lacking,
            leader=lambda *_: (1, leader[0]),
        ),
        config=SimpleNamespace(kafka=SimpleNamespace(rack="r0")),
        nodes=lambda: [0, 1, 2],
        endpoints=lambda _: [BrokerEndpoint(n, "h", 1, f"r{n}") for n in range(3)],
        _is_live=lambda _: True,
    )
    for name in ("leader_of", "nodes_of", "behind", "_is_in"):
        setattr(tested, name, partial(getattr(NodeBroker, name), tested))
    client: Any = SimpleNamespace(listener="l")

    def sent(rack: str) -> int:
        return NodeBroker.nearest(tested, client, rack, topic, 0)

    assert [sent(rack) for rack in ("r0", "r1", "r2", "")] == [-1, 1, -1, -1]
    lacking.append(1)
    assert sent("r1") == -1, "it copies the partition"
    lacking.clear()
    tested.machine.state.placement.sites.members[1] = "nyc"
    assert [sent(rack) for rack in ("nyc", "ny")] == [1, -1]
    leader[0] = 2
    assert sent("r1") == -1, "another one leads"
