"""What the connections of a listener may hold together."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.cli.local_cluster import LOCAL_KAFKA, ClusterOptions, LocalCluster
from samelog.kafka.clients.quotas import Memory
from tests.e2e.harness import wait_for
from tests.kafka.batches import batch
from tests.kafka.test_producing import PRODUCE, produce_tree
from tests.kafka.wire import FETCH, Wire, fetch, fetch_tree, metadata, request

LIMIT = 4 << 20


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60))))
def test_the_total_and_the_state_are_those_of_a_plain_sum(steps: list[tuple[int, int]]) -> None:
    calls: list[bool] = []
    memory: Memory[int] = Memory(100, lambda: calls.append(memory.is_short))
    held: dict[int, int] = {}
    short, expected = False, []
    for holder, size in steps:
        memory.hold(holder, size)
        held[holder] = size
        total = sum(held.values())
        was, short = short, total > (75 if short else 100)
        expected += [short] if short != was else []
        assert (memory.total, memory.is_short) == (total, short)
        assert memory.left == (0 if short else 100 - total)
        largest = memory.largest()
        assert held.get(largest, 0) == max(held.values()) if largest is not None else not total
    assert calls == expected
    assert memory.spells == sum(expected)


@pytest.fixture
def address(tmp_path: Path, starts_nodes: None) -> Iterator[tuple[str, int]]:
    """One node that holds little for its clients."""
    kafka = replace(
        LOCAL_KAFKA, max_request_bytes=LIMIT // 4, max_memory_bytes=LIMIT, request_s=3600
    )
    options = ClusterOptions(nodes=1, kafka=kafka)
    with LocalCluster(str(tmp_path / "cluster"), options) as cluster:
        cluster.start()
        found = cluster.nodes[0].kafka
        assert found is not None
        yield found


def test_begun_requests_that_fill_the_memory_give_way(address: tuple[str, int]) -> None:
    """Clients that begin large requests, and never end them, do not stop others."""
    begun = (LIMIT // 4).to_bytes(4, "big") + bytes(LIMIT // 4 - 1)
    hogs = [socket.create_connection(address, 20) for _ in range(6)]
    for hog in hogs:
        hog.setblocking(False)  # what the node does not read must not hold up the test
        hog.send(begun)
    rest = dict.fromkeys(hogs, begun[LIMIT // 8 :])

    def push() -> bool:
        """Send on what can be sent, until somebody is told to go."""
        for hog in hogs:
            try:
                rest[hog] = rest[hog][hog.send(rest[hog]) :] if rest[hog] else b""
                if hog.recv(1) == b"":
                    return True
            except BlockingIOError:
                continue
            except OSError:
                return True
        return False

    wait_for(push, "a connection is closed")
    with Wire(address) as wire:
        assert metadata(wire, None).brokers
    for hog in hogs:
        hog.close()


def answer_sizes(wire: Wire, count: int) -> Iterator[int]:
    """Those that come: who holds most while the memory stays full is told to go."""
    with suppress(ConnectionError):
        for _ in range(count):
            yield len(wire.receive())


def test_answers_that_nobody_reads_are_not_made(address: tuple[str, int]) -> None:
    """Fetches are answered without records while the memory is full, and with them afterwards."""
    with Wire(address) as wire:
        metadata(wire, "t", allow_auto_topic_creation=True)
        for _ in range(10):
            wire.ask(PRODUCE, 9, produce_tree("t", batch(bytes(900_000))))
        tree = fetch_tree("t", 0, max_bytes=8 << 20, partition_max_bytes=8 << 20)
        idlers = [Wire(address) for _ in range(10)]
        for idler in idlers:
            idler.send(request(FETCH, 12, tree) * 20)
        for idler in idlers[:5]:
            idler.socket.close()
        sizes = [size for idler in idlers[5:] for size in answer_sizes(idler, 20)]
        assert max(sizes) > 900_000
        assert min(sizes) < 1000
        wait_for(lambda: fetch(wire, "t", 0).records, "records come again")
        for idler in idlers:
            idler.socket.close()
