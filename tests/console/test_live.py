"""Pages of a real cluster: lag falls while a group reads, and a killed leader is seen as gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from samelog.cli.local_cluster import LocalCluster, LocalNode
from samelog.config.load import load_client
from samelog.config.values import Address
from samelog.http.console.proxy import ConsoleProxy
from tests.console.chromium import Page, chromium, needs_chromium
from tests.e2e.harness import World
from tests.patience import PATIENCE_S

RECORDS, STEP = 600, 150
LAG = (
    "document.querySelector('tr[data-key=late] td:nth-of-type(6)')?.textContent.replace(/\\D/g, '')"
)
LEADER = "document.querySelector('#top .leader b')?.textContent"


@pytest.mark.usefixtures("starts_nodes")
@needs_chromium
def test_pages_show_lag_that_falls_and_a_leader_that_is_killed(tmp_path: Path) -> None:
    with LocalCluster(str(tmp_path / "cluster")) as cluster:
        cluster.start()
        asyncio.run(_check(World(cluster, tmp_path)))


async def _check(world: World) -> None:
    async with chromium() as page:
        await check_lag(world, page)
        await check_leader(world, page)
        assert not page.problems, page.problems


async def check_lag(world: World, page: Page) -> None:
    """A group reads a step after the other, and a page of `samelog ui` follows each."""
    await asyncio.to_thread(publish, world)
    tested = ConsoleProxy(load_client(world.cluster.client_file), Address("127.0.0.1", 0))
    await tested.start()
    try:
        await page.go(tested.link)
        await page.until("location.pathname === '/ui'")
        await follow_lag(world, page, f"http://{tested.address}/ui")
    finally:
        await page.go("about:blank")
        await tested.close()


async def follow_lag(world: World, page: Page, base: str) -> None:
    """Read a step after the other."""
    await page.go(f"{base}#/groups")
    with late_group(world.cluster.client_config().kafka_bootstrap) as consumer:
        for left in range(RECORDS - STEP, -1, -STEP):
            await asyncio.to_thread(read, consumer)
            await page.until(f"{LAG} === '{left}'")
    await page.go(f"{base}#/group/late")
    chart = "document.querySelector('.chart svg')?.getAttribute('aria-label')"
    await page.until(f"{chart} === 'Lag of the group: lag 0'")


def publish(world: World) -> None:
    """Publish what the group is to read."""
    with world.publisher("s") as publisher:
        for number in range(RECORDS):
            publisher.append(b"%d" % number)
        publisher.wait_merged(PATIENCE_S)


@contextmanager
def late_group(bootstrap: str) -> Iterator[Consumer]:
    """A member of a group that has read nothing yet."""
    options = {"group.id": "late", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **options})
    consumer.subscribe(["t"])
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer) -> None:
    """Read a step's records, and commit that."""
    found, deadline = 0, time.monotonic() + PATIENCE_S
    while found < STEP:
        assert time.monotonic() < deadline
        found += sum(each.error() is None for each in consumer.consume(STEP - found, timeout=1.0))
    consumer.commit(asynchronous=False)


async def check_leader(world: World, page: Page) -> None:
    """Another node's pages show that the leader is gone, and who leads after it."""
    killed = await asyncio.to_thread(world.leader)
    watcher = next(each for each in world.cluster.nodes if each is not killed)
    await page.go(f"http://{watcher.http}/ui#/nodes")
    await page.until(f"{LEADER} === '{killed.name}'")
    await asyncio.to_thread(killed.kill)
    await page.until(f"document.querySelector('{row(killed)} .state')?.textContent === 'offline'")
    leader = await asyncio.to_thread(world.leader)
    assert leader is not killed
    await page.until(f"{LEADER} === '{leader.name}'")
    await page.until(f"document.querySelector('tr[data-key$=\" {leader.name}\"]')")
    await page.go(f"http://{watcher.http}/ui#/alarms")
    await page.until(f"document.querySelector('[data-key=\"SamelogPeerLost {killed.name}\"]')")


def row(node: LocalNode) -> str:
    """The row of a node."""
    return f'tr[data-key="{node.name}"]'
