"""Clients that send what costs much: others do not feel it, and it is counted as theirs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from samelog.config.tables.kafka import ClientQuota
from samelog.format.compression import Codec
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.apis import checks
from samelog.kafka.apis.produce import produce as produce_api
from samelog.kafka.clients.pipeline import PipelineLimits
from samelog.kafka.clients.quotas import Allowances, Memory
from samelog.kafka.clients.refusals import REFUSALS, WITHIN_S, Refusals
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.produce import ProduceResponse
from samelog.kafka.record_check import unpacked_limit
from samelog.kafka.server import connection
from samelog.kafka.server.connection import KafkaConnection
from samelog.kafka.server.dispatch import StartedRequest
from samelog.runtime import slices
from tests.e2e.harness import World
from tests.kafka.batches import batch, packed, put
from tests.kafka.test_producing import PRODUCE, consume, produce, produce_tree
from tests.kafka.wire import Wire, request
from tests.runtime.peers import until

UNREADABLE = put(61, ">B", 0x7E)(batch(b"x"))
LARGE = 3 << 20


@pytest.fixture
def address(world: World) -> tuple[str, int]:
    found = world.cluster.nodes[0].kafka
    assert found is not None
    return found


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_is_too_large_for_a_turn_is_taken_in_its_order(
    address: tuple[str, int], boot: str, topic: str, codec: Codec
) -> None:
    large = packed(codec, *[bytes(LARGE // 4)] * 4)
    with Wire(address) as wire:
        for number, data in enumerate((batch(b"before"), large, batch(b"after"))):
            wire.send(request(PRODUCE, 9, produce_tree(topic, data), correlation=number))
        for number in range(3):
            assert wire.receive()[:4] == number.to_bytes(4, "big")
    sizes = [len(each.value()) for each in consume(boot, topic, 6)]
    assert sizes == [6, *[LARGE // 4] * 4, 5]


def test_a_bomb_is_refused_and_others_are_served(
    address: tuple[str, int], boot: str, topic: str
) -> None:
    data = packed(Codec.ZSTD, bytes(unpacked_limit(1 << 20)))
    with Wire(address) as bad, Wire(address) as good:
        bad.send(request(PRODUCE, 9, produce_tree(topic, data)))
        assert produce(good, topic, batch(b"fine")).error_code is ErrorCode.none
        bad.receive()
        assert produce(bad, topic, data).error_code is ErrorCode.invalid_record
    assert [each.value() for each in consume(boot, topic, 1)] == [b"fine"]


def test_who_sends_what_nobody_can_read_again_and_again_is_closed(
    address: tuple[str, int], topic: str
) -> None:
    with Wire(address) as wire:
        for _ in range(REFUSALS):
            assert produce(wire, topic, UNREADABLE).error_code is ErrorCode.invalid_record
        assert wire.is_closed()
    with Wire(address) as wire:
        assert produce(wire, topic, batch(b"fine")).error_code is ErrorCode.none


class Turns:
    """Stands in for a dispatcher: says in which turn of the loop each request was begun."""

    def __init__(self) -> None:
        self.number = 0
        self.begun: list[int] = []
        self._tick()

    def _tick(self) -> None:
        self.number += 1
        asyncio.get_running_loop().call_soon(self._tick)

    def start(self, client: KafkaClient, frame: memoryview) -> StartedRequest:
        """Note it, and answer nothing."""
        self.begun.append(self.number)
        return StartedRequest(None, produce_api, 9, b"", len(frame))


def test_requests_of_one_connection_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TURN_S", 0.0)

    async def body() -> None:
        turns, memory = Turns(), Memory[KafkaConnection](1 << 20)
        admit = partial(KafkaClient, "samelog://user/ann", "l", "h")
        asking = KafkaConnection(
            cast(Any, turns),
            PipelineLimits(),
            memory,
            admit=lambda *_: admit(),
            ended=lambda *_: None,
        )
        asking.connection_made(MagicMock())
        asking.data_received((b"\0\0\0\1" + b"x") * 20)
        await until(lambda: len(turns.begun) == 20)
        assert len(set(turns.begun)) == 20

    asyncio.run(body())


def test_parts_of_one_request_give_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TURN_S", 0.0)
    monkeypatch.setattr(slices, "SLICE_S", 0.0)

    async def body() -> None:
        turns, begun = Turns(), list[int]()

        async def answer(_: int) -> None:
            begun.append(turns.number)

        await checks.answer_each(range(20), answer, lambda *_: None)
        assert len(set(begun)) == 20

    asyncio.run(body())


def test_refusals_count_while_they_are_near_each_other() -> None:
    refusals = Refusals()
    for number in range(3 * REFUSALS):
        refusals.add(number * (WITHIN_S / (REFUSALS - 1) + 0.001))
        assert not refusals.reason
    for _ in range(REFUSALS - 1):
        refusals.add(1000.0)
        assert not refusals.reason
    refusals.add(1000.0)
    assert refusals.reason


def test_a_quota_is_charged_for_what_was_unpacked() -> None:
    quota = ClientQuota(identity="*", producer_byte_rate=1000)
    client = KafkaClient("samelog://user/ann", "l", "h", allowances=Allowances([quota]))
    started = StartedRequest(None, produce_api, 9, b"", 100)
    assert started.encode(ProduceResponse([]), client, 0.0)[1] == 0.0
    client.uncharged.unpacked_bytes = 2900
    assert started.encode(ProduceResponse([]), client, 0.0)[1] == pytest.approx(2.1)
    assert client.uncharged.unpacked_bytes == 0
