"""The console's ground: what changes, who is told, who may ask; over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from samelog.admin.answers import ArchivePlan, CopyProgress, LeadershipMoved, PlannedArchive
from samelog.admin.requests import AdminRequest, GetIdentity, MoveLeadership
from samelog.admin.views import Whoami
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import HttpConfig, TlsFiles
from samelog.config.values import Address
from samelog.http.console import look as looking
from samelog.http.console import producer
from samelog.http.console.document import Change, Document, ShownRow, changes
from samelog.http.console.producer import READERS_MAX, Producer, TooManyReaders
from samelog.http.console.proxy import ConsoleProxy
from samelog.http.routes import problem_of
from samelog.http.server import HttpServer
from samelog.runtime.clock import SystemClock
from samelog.wire.errors import FaultCode
from tests.cli.fake_nodes import Answer, FakeCluster, FakeNode
from tests.console.seeded import document
from tests.console.seeded_node import SeededApi
from tests.patience import PATIENCE_S

KEYS = st.sampled_from(["", "a", "b", "c"])
ROWS = st.dictionaries(KEYS, st.integers(0, 3) | st.none(), max_size=2)
DOCUMENTS = st.dictionaries(KEYS, st.dictionaries(KEYS, ROWS, min_size=1, max_size=3), max_size=3)


def apply(document: Document, change: Change) -> dict[str, dict[str, ShownRow]]:
    """The document after a change, as pages make it."""
    found = {name: dict(rows) for name, rows in document.items()}
    for name, rows in change.items():
        section = found.setdefault(name, {})
        for key, row in rows.items():
            if row is None:
                section.pop(key, None)
            else:
                section[key] = row
    return {name: rows for name, rows in found.items() if rows}


@given(DOCUMENTS, DOCUMENTS)
def test_changes_make_the_next_document(before: Document, now: Document) -> None:
    assert apply(before, changes(before, now)) == now
    assert changes(now, now) == {}


def test_a_change_has_only_rows_that_differ() -> None:
    before: Document = {
        "nodes": {"a": {"lag": 1}, "b": {"lag": 2}, "c": {"lag": 3}},
        "groups": {"g": {}},
    }
    now = {"nodes": {"a": {"lag": 1}, "b": {"lag": 5}}}
    assert changes(before, now) == {"nodes": {"b": {"lag": 5}, "c": None}, "groups": {"g": None}}


class Counted:
    """Looks, counted; each differs from the one before."""

    def __init__(self, size: int = 1) -> None:
        self.looks, self._size = 0, size

    async def __call__(self) -> Document:
        self.looks += 1
        return {"rows": {"a": {"look": self.looks, "text": "x" * self._size}}}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "INTERVAL_S", 0.001)


def told(event: bytes) -> tuple[str, Any]:
    """Kind and content of an event."""
    kind, data = event.decode().strip().split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_one_look_serves_all_readers_and_nothing_runs_without_them() -> None:
    async def body() -> None:
        look = Counted()
        tested = Producer(look, SystemClock())
        async with aclosing(tested.open()) as first:  # type: ignore[type-var]
            assert told(await anext(first))[0] == "document"
            async with aclosing(tested.open()) as second:  # type: ignore[type-var]
                kind, found = told(await anext(second))
                assert kind == "document"
                seen = found["rows"]["a"]["look"]
                kind, change = told(await anext(second))
                assert (kind, change["rows"]["a"]["look"]) == ("change", seen + 1)
        looks = look.looks
        await asyncio.sleep(0.02)
        assert look.looks == looks
        assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    asyncio.run(body())


def test_readers_are_bounded() -> None:
    async def body() -> None:
        tested = Producer(Counted(), SystemClock())
        readers = [tested.open() for _ in range(READERS_MAX)]
        for each in readers:
            await anext(each)
        with pytest.raises(TooManyReaders):
            tested.open()
        await readers[0].aclose()  # type: ignore[attr-defined]
        again = tested.open()
        for each in (*readers[1:], again):
            await anext(each)
            await each.aclose()  # type: ignore[attr-defined]

    asyncio.run(body())


def test_a_slow_reader_starts_anew_with_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "READER_BYTES_MAX", 1000)

    async def body() -> None:
        look = Counted(300)
        slow = Producer(look, SystemClock()).open()
        assert told(await anext(slow))[0] == "document"
        last, kinds = 1, []
        async with asyncio.timeout(PATIENCE_S):
            while look.looks < 30:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            while "document" not in kinds:
                kind, found = told(await anext(slow))
                assert kind == "document" or found["rows"]["a"]["look"] == last + 1
                kinds.append(kind)
                last = found["rows"]["a"]["look"]
        await slow.aclose()  # type: ignore[attr-defined]

    asyncio.run(body())


def test_a_look_lets_others_run_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "SLICE_S", 0)

    async def body() -> None:
        turns, rows = 0, 20

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        found = await looking._sliced((str(number), {}) for number in range(rows))
        beside.cancel()
        assert (len(found), turns >= rows) == (rows, True)

    asyncio.run(body())


# --- over sockets ---------------------------------------------------------------------------------


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what others do."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


Body = Callable[[aiohttp.ClientSession, str], Awaitable[None]]


def serve(body: Body, connections: int = 10) -> None:
    """A seeded node's port, and so many connections to it."""

    async def main() -> None:
        config = HttpConfig(listen=Address("127.0.0.1", 0))
        server = HttpServer(config, TlsFiles(ca="", cert="", key=""), SeededApi())
        await server.start()
        try:
            several = aiohttp.TCPConnector(limit=connections)
            async with aiohttp.ClientSession(connector=several) as session:
                await body(session, f"http://{server.address}")
        finally:
            await server.close()

    asyncio.run(main())


def test_pages_are_served_with_headers_that_let_them_do_little() -> None:
    async def body(session: aiohttp.ClientSession, base: str) -> None:
        kinds = {
            **dict.fromkeys(("/", "/ui", "/ui/"), "text/html"),
            "/ui/app.js": "text/javascript",
            "/ui/inter.woff2": "font/woff2",
        }
        for path, kind in kinds.items():
            async with session.get(base + path) as answer:
                assert (answer.status, answer.content_type) == (200, kind)
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
        for path in ("/ui/none.js", "/ui/..%2fassets.py", "/ui/assets.py", "/ui/inter.LICENSE"):
            async with session.get(URL(base + path, encoded=True)) as answer:
                assert answer.status == 404, path

    serve(body)


def test_events_are_a_document_and_then_changes() -> None:
    async def body(session: aiohttp.ClientSession, base: str) -> None:
        async with session.get(f"{base}/ui/events") as answer:
            assert answer.content_type == "text/event-stream"
            assert answer.headers["Cache-Control"] == "no-store"
            events = _events(answer)
            assert told(await anext(events))[0] == "document"
            kind, change = told(await anext(events))
            assert (kind, list(change["nodes"])) == ("change", ["rt-1", "rt-2", "rt-3"])

    serve(body)


def test_fifty_browsers_cost_one_look_and_none_once_they_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, readers_there, allowed = 0, 0, asyncio.Semaphore(0)
    opened = Producer.open

    def open_counted(producing: Producer) -> AsyncIterator[bytes]:
        nonlocal readers_there
        found = opened(producing)
        readers_there += 1
        return found

    async def look(api: SeededApi) -> Document:
        nonlocal begun
        begun += 1
        await allowed.acquire()
        return document(begun)

    async def body(session: aiohttp.ClientSession, base: str) -> None:
        async with AsyncExitStack() as readers:
            asked = [
                asyncio.create_task(readers.enter_async_context(session.get(f"{base}/ui/events")))
                for _ in range(READERS_MAX)
            ]
            await until(lambda: readers_there == READERS_MAX)
            async with session.get(f"{base}/ui/events") as refused:
                assert refused.status == 503
            allowed.release()
            answers = await asyncio.gather(*asked)
            events = [told(await anext(_events(each))) for each in answers]
            check(events, "document")
            allowed.release()
            check([told(await anext(_events(each))) for each in answers], "change")
            assert begun <= 3
        allowed.release()
        await until(lambda: not any("Producer._run" in repr(each) for each in asyncio.all_tasks()))

    def check(events: list[tuple[str, Any]], wanted: str) -> None:
        """All are told the same."""
        assert {kind for kind, _ in events} == {wanted}
        assert len({found["cluster"][""]["now_ms"] for _, found in events}) == 1

    monkeypatch.setattr(SeededApi, "_look", look)
    monkeypatch.setattr(Producer, "open", open_counted)
    serve(body, connections=READERS_MAX + 1)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            yield await answer.content.readuntil(b"\n\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "stranger.example"}, 421),
        ({"Origin": "http://stranger.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_pages_of_others_get_nothing(headers: dict[str, str], status: int) -> None:
    async def body(session: aiohttp.ClientSession, base: str) -> None:
        async with session.get(f"{base}/whoami", headers=headers) as answer:
            assert answer.status == status

    serve(body)


# --- samelog ui -----------------------------------------------------------------------------------


@asynccontextmanager
async def proxy(config: ClientConfig) -> AsyncIterator[tuple[aiohttp.ClientSession, ConsoleProxy]]:
    tested = ConsoleProxy(config, Address("127.0.0.1", 0))
    await tested.start()
    jar = aiohttp.CookieJar(unsafe=True)
    try:
        async with aiohttp.ClientSession(f"http://{tested.address}", cookie_jar=jar) as session:
            yield session, tested
    finally:
        await tested.close()


def test_who_has_the_link_sees_the_cluster_and_nobody_else(tmp_path: Path) -> None:
    with FakeCluster(tmp_path) as cluster:
        for node in cluster.nodes:
            node.answer = answers(node.name, "n1")

        async def body() -> None:
            async with proxy(cluster.config) as (session, tested):
                for path in ("/ui", "/whoami", "/ui/app.js", "/login", "/login?token=x"):
                    async with session.get(path) as answer:
                        assert answer.status == 403, path
                async with session.get(tested.link) as answer:
                    assert (answer.status, answer.url.path) == (200, "/ui")
                    assert "token" not in await answer.text()
                async with session.get("/whoami") as answer:
                    assert (await answer.json())["node"] == "n0"
                async with session.post("/leadership", json={"to": "n2"}) as answer:
                    assert await answer.json() == {"leader": "n2"}
                await asyncio.to_thread(cluster.stop, 0)
                async with session.get("/whoami") as answer:
                    assert (await answer.json())["node"] == "n1"
                async with session.get("/whoami", headers={"Origin": "http://x.example"}) as answer:
                    assert answer.status == 403
                async with session.get("/whoami", headers={"Host": "x.example"}) as answer:
                    assert answer.status == 421

        asyncio.run(body())
        moved = [sum(isinstance(a, MoveLeadership) for a in n.asked) for n in cluster.nodes]
        assert moved == [1, 1, 0]  # the node that was asked refuses, and names the leader


def answers(name: str, leader: str) -> Callable[[AdminRequest[Any]], Answer]:
    """What a node says of itself; only the leader moves leadership."""

    def answer(request: AdminRequest[Any]) -> Answer:
        if isinstance(request, GetIdentity):
            return Whoami("fake", name, "0", "samelog://admin/test", may_change=True)
        if isinstance(request, MoveLeadership) and name == leader:
            return LeadershipMoved(str(request.to))
        return problem_of(FaultCode.NOT_LEADER, "not here", leader=leader)

    return answer


async def post_by_proxy(config: ClientConfig) -> tuple[int, str]:
    """Status and text of the answer to a change."""
    async with proxy(config) as (session, tested):
        async with session.get(tested.link):
            pass
        async with session.post("/leadership", json={"to": "n2"}) as answer:
            return answer.status, await answer.text()


def test_a_change_that_may_be_made_is_not_sent_again(tmp_path: Path) -> None:
    with FakeCluster(tmp_path) as cluster:
        for node in cluster.nodes:
            node.answer = lambda request: ConnectionError()
        status, text = asyncio.run(post_by_proxy(cluster.config))
        assert (status, "it may have been done" in text) == (504, True)
        assert [len(node.asked) for node in cluster.nodes] == [1, 0, 0]


def test_nothing_is_said_to_whoever_is_not_the_node(tmp_path: Path) -> None:
    with FakeCluster(tmp_path, count=1) as cluster:
        node = cluster.nodes[0]
        node.answer = answers("n0", "n0")
        status, text = asyncio.run(post_by_proxy(replace(cluster.config, node_names=("n9",))))
        assert (status, "the peer is samelog://node/n0" in text) == (503, True)
        assert not node.asked
        assert asyncio.run(post_by_proxy(cluster.config))[0] == 200


def test_plans_for_data_groups_are_those_of_all_nodes(tmp_path: Path) -> None:
    """Each plans for those that it leads; one does not answer."""

    def planned(name: str, partition: int, copies: CopyProgress) -> ArchivePlan:
        row = PlannedArchive("t", partition, 0, 9, 1, 100, "time")
        return ArchivePlan("", "", (row,), (f"held-{name}",), copies)

    plans = {
        "n0": planned("n0", 1, CopyProgress()),
        "n1": planned("n1", 0, CopyProgress("s3://b", problem="full")),
    }

    def plan_of(name: str, request: AdminRequest[Any]) -> Answer:
        return plans[name]

    with FakeCluster(tmp_path) as cluster:
        for node in cluster.nodes[:2]:
            node.answer = partial(plan_of, node.name)
        cluster.nodes[2].answer = lambda request: ConnectionError()

        async def body() -> Any:
            async with proxy(cluster.config) as (session, tested):
                async with session.get(tested.link):
                    pass
                async with session.get("/archive/plan?data_groups=true") as answer:
                    return await answer.json()

        found = asyncio.run(body())
    assert [each["partition"] for each in found["planned"]] == [0, 1]
    assert found["held"] == ["held-n0", "held-n1"]
    assert found["copies"]["problem"] == "full"


def test_a_node_that_is_not_configured_is_asked_where_another_one_names_it(tmp_path: Path) -> None:
    """Each names the next one; what names no address, or itself for ever, is what is answered."""
    with FakeCluster(tmp_path) as cluster:
        first, second, third = cluster.nodes
        names_second = problem_of(FaultCode.NOT_LEADER, "ask n1", **there(second))
        first.answer = lambda request: names_second
        second.answer = lambda request: problem_of(FaultCode.NOT_LEADER, "ask n2", **there(third))
        third.answer = lambda request: LeadershipMoved("n2")
        config = replace(cluster.config, nodes=(first.address,), node_names=("n0",))
        status, text = asyncio.run(post_by_proxy(config))
        assert (status, json.loads(text)) == (200, {"leader": "n2"})
        third.answer = lambda request: names_second
        assert asyncio.run(post_by_proxy(config))[0] == 421
        second.answer = lambda request: problem_of(FaultCode.NOT_LEADER, "ask n9", leader="n9")
        status, text = asyncio.run(post_by_proxy(config))
        assert (status, "ask n9" in text) == (421, True)
        impostor = {**there(third), "leader": "n1"}
        first.answer = lambda request: problem_of(FaultCode.NOT_LEADER, "ask n1", **impostor)
        status, text = asyncio.run(post_by_proxy(config))
        assert (status, "the peer is samelog://node/n2" in text) == (503, True)


def there(node: FakeNode) -> dict[str, str]:
    """How a refusal names a node."""
    return {"leader": node.name, "leader_address": str(node.address)}
