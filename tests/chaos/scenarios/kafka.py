"""Kafka clients instead of publishers: idempotent producers of confluent-kafka, with acks=all.

Each record that a producer was told is delivered has to be there, once, in its order; nobody but
the client sends anything again.

Invariant: every node that is killed is started again, and every link is clear after `Field.heal`.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import replace

from samelog.config.tables.node import NodeConfig
from samelog.config.values import Address
from tests.chaos.faults.proxy import HELD, PRODUCER, Network, Weather
from tests.chaos.field import Field, LoadProcess
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.registry import scenario
from tests.chaos.scenarios.processes import kill_and_restart

RATE = 500.0
CUTS = Weather(cut_share=0.05)


def need_client() -> str | None:
    """Why there can be no producers; None if there can."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return "needs confluent-kafka"
    return None


def producers(field: Field) -> None:
    """Kafka clients write, instead of publishers."""
    field.publishers = [
        LoadProcess(field, "producer", load.name, RATE) for load in field.publishers
    ]


def producers_through_proxies(field: Field) -> None:
    """Kafka clients write, and are told addresses behind which there are links."""
    producers(field)
    network = Network(field)
    found = []
    for node in field.nodes:
        assert node.kafka is not None
        there = network.connect(PRODUCER, node.name, node.kafka)
        _advertise(node, there)
        found.append(str(there))
    field.client = replace(field.client, kafka_bootstrap=",".join(found))
    field.equip(network)


def _advertise(node: ChaosNode, there: Address) -> None:
    def edit(config: NodeConfig) -> NodeConfig:
        listeners = tuple(replace(each, advertise=there) for each in config.kafka.listeners)
        return replace(config, kafka=replace(config.kafka, listeners=listeners))

    node.change(edit)


@scenario("kafka-kill-leader", prepare=producers, needs=(need_client,))
def kill_leader(field: Field) -> None:
    """Kafka producers; SIGKILL of the leader at random moments, again and again."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        kill_and_restart(field, [field.leader()])


@scenario("kafka-kill-nodes", prepare=producers, needs=(need_client,))
def kill_nodes(field: Field) -> None:
    """Kafka producers; SIGKILL of one to all nodes at random moments, again and again."""
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        victims = field.random.sample(field.nodes, field.random.randint(1, 3))
        kill_and_restart(field, victims)


@scenario("kafka-cut", prepare=producers_through_proxies, needs=(need_client,))
def cut(field: Field) -> None:
    """Kafka producers; their connections cut in mid-frame, reset, or silent for up to 3 s."""
    network = field.tool(Network)
    end = time.monotonic() + field.seconds

    def is_theirs(source: str, _: str) -> bool:
        return source == PRODUCER

    while time.monotonic() < end:
        network.set(field.random.choice((CUTS, HELD)), is_theirs)
        wait(field.random.uniform(0.1, 3))
        network.clear()
        network.reset(lambda source, _: source == PRODUCER and field.random.random() < 0.5)
        wait(field.random.uniform(0, 1))
