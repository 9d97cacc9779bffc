"""The HTTP server itself: who may ask, certificates, limits, defects, the audit log."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from samelog.admin.requests import AdminRequest, CreatePartitions
from samelog.admin.table import OPERATIONS, Operation, WhoMayAsk
from samelog.config.tables.shared import HttpConfig, HttpSecurity, TlsFiles
from samelog.config.values import Address
from samelog.format.errors import InvariantError
from samelog.format.steps import finished
from samelog.http import application as connection
from samelog.http import application as served
from samelog.http import routes
from samelog.http.metrics.common import Metrics
from samelog.http.openapi import AnswerSchemas, openapi
from samelog.http.probes import probe_routes
from samelog.http.routes import HttpProblem, Route
from samelog.http.server import HttpFault, HttpServer
from samelog.runtime.network.tls import open_client_context
from tests.patience import PATIENCE_S
from tests.runtime.pki import Authority

ADMIN = "samelog://client/admin"


class Done(NamedTuple):
    """It is done."""

    done: bool


class Look(AdminRequest[Done], frozen=True):
    """Looks."""


class Use(AdminRequest[Done], frozen=True):
    """Looks at what the handler says that one may."""


class Change(AdminRequest[Done], frozen=True):
    """Changes."""


class Send(AdminRequest[Done], frozen=True):
    """Has a long body."""

    group: str
    values: tuple[int, ...] = ()


class OneApi:
    """Implements routes.HttpApi: `/look`, `/use` and `/change` do what the test says."""

    title, cluster = "a test", "tested"
    values_max = 200_000

    def __init__(self, act: Callable[[], Awaitable[object]] | None = None) -> None:
        async def handle(request: object, identity: str) -> object:
            return Done(done=True) if act is None else await act()

        look = Route(Operation("GET", "/look", "Look.", WhoMayAsk.READER, Look), handle)
        change = Route(Operation("POST", "/change", "Change.", WhoMayAsk.ADMIN, Change), handle)
        use = Route(Operation("GET", "/use", "Use.", WhoMayAsk.TOPIC_USER, Use), handle)
        self.problem = ""
        probes = probe_routes(self, lambda: self.problem, Metrics({}, ()))
        send = Route(
            Operation(
                "POST",
                "/groups/{group}/send",
                "Send.",
                WhoMayAsk.GROUP_USER,
                Send,
                body_bytes_max=4 << 20,
            ),
            handle,
        )
        self.routes = (*probes, look, use, change, send)

    def may_read(self, identity: str) -> bool:
        return identity == ADMIN

    def may_change(self, identity: str) -> bool:
        return identity == ADMIN

    def may_send(self, who_may: WhoMayAsk, path: Mapping[str, str], identity: str) -> bool:
        return path["group"] == "mine"


class Asking:
    """Asks one server."""

    def __init__(self, server: HttpServer, context: ssl.SSLContext | None) -> None:
        self._context = context
        scheme = "http" if context is None else "https"
        self._base = f"{scheme}://{server.address}"
        self.address = server.address.host, server.address.port

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
        if method == "POST":
            options.setdefault("json", {})
        connector = aiohttp.TCPConnector(ssl=True if self._context is None else self._context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, self._base + path, **options) as response,
        ):
            return response.status, await response.json(content_type=None)


@asynccontextmanager
async def serving(
    api: OneApi, config: HttpConfig, files: TlsFiles, client: ssl.SSLContext | None = None
) -> AsyncIterator[Asking]:
    """A server on a free port."""
    server = HttpServer(config, files, api)
    await server.start()
    try:
        yield Asking(server, client)
    finally:
        await server.close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


LOOPBACK = HttpConfig(listen=Address("127.0.0.1", 0))
MUTUAL = HttpConfig(listen=Address("127.0.0.1", 0), security=HttpSecurity.MTLS)
NO_FILES = TlsFiles(ca="", cert="", key="")


def client_of(files: TlsFiles, *, show: bool) -> ssl.SSLContext:
    context = open_client_context(files, show_certificate=show)
    context.check_hostname = False
    return context


def test_on_loopback_everybody_looks_and_nobody_changes(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            assert await ask("GET", "/look") == (200, {"done": True})
            status, problem = await ask("POST", "/change")
            assert (status, problem["remedy"]) == (403, "grant admin in the node's configuration")

    with caplog.at_level(logging.INFO, "samelog.audit"):
        asyncio.run(main())
    [line] = caplog.messages
    assert 'who="samelog://user/anonymous"' in line
    assert "is no administrator" in line


def test_no_long_body_is_decoded_without_the_right_to_send_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []
    original = routes.request_of_post

    def decode(operation: Operation, path: Mapping[str, str], body: bytes, values: int) -> Any:
        decoded.append(len(body))
        return original(operation, path, body, values)

    monkeypatch.setattr("samelog.http.application.request_of_post", decode)
    body = {"values": [1] * 100_000}

    async def main() -> None:
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            status, problem = await ask("POST", "/groups/other/send", json=body)
            assert (status, decoded) == (403, [])
            assert "who may use the group" in problem["detail"]
            assert (await ask("POST", "/groups/mine/send", json=body))[0] == 200
            assert len(decoded) == 1

    asyncio.run(main())


def test_with_certificates_identities_count(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    admin = authority.issue("admin", ADMIN)
    stranger = Authority(authority.directory / "other").issue("admin", ADMIN)

    async def asked(client: TlsFiles, *, show: bool = True) -> list[int]:
        context = client_of(client, show=show)
        async with serving(OneApi(), MUTUAL, authority.node("n0"), context) as ask:
            paths = ("/healthz", "/readyz", "/openapi.json", "/use", "/look")
            found = [(await ask("GET", path))[0] for path in paths]
            return [*found, (await ask("POST", "/change"))[0]]

    with caplog.at_level(logging.INFO, "samelog.audit"):
        assert asyncio.run(asked(admin)) == [200] * 6
        assert asyncio.run(asked(authority.publisher("p"))) == [200, 200, 200, 200, 403, 403]
        assert asyncio.run(asked(admin, show=False)) == [200, 200, 403, 403, 403, 403]
    whose = [line.split("who=")[1].split('"')[1] for line in caplog.messages]
    assert whose == [ADMIN, "samelog://publisher/p", "nobody"]
    context = client_of(stranger, show=True)
    context.load_verify_locations(authority.ca_path)

    async def ask_as_stranger() -> None:
        async with serving(OneApi(), MUTUAL, authority.node("n0"), context) as ask:
            await ask("GET", "/healthz")

    with pytest.raises(aiohttp.ClientError):
        asyncio.run(ask_as_stranger())


def test_certificates_are_taken_over_while_it_runs(authority: Authority) -> None:
    async def main() -> None:
        files = authority.node("n0")
        async with serving(OneApi(), MUTUAL, files, client_of(files, show=True)) as ask:
            assert (await ask("GET", "/look"))[0] == 403
            other = Authority(authority.directory)  # the same file names
            other.node("n0")
            context = client_of(other.issue("admin", ADMIN), show=True)
            ask._context = context
            async with asyncio.timeout(PATIENCE_S):
                while not await _is_let_in(ask):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.05)

    asyncio.run(main())


async def _is_let_in(ask: Asking) -> bool:
    try:
        return (await ask("GET", "/look"))[0] == 200
    except aiohttp.ClientError:
        return False


def test_not_ready_says_why() -> None:
    async def main() -> None:
        api = OneApi()
        api.problem = "it catches up"
        async with serving(api, LOOPBACK, NO_FILES) as ask:
            status, problem = await ask("GET", "/readyz")
            assert (status, problem["detail"]) == (503, "it catches up")
            assert (await ask("GET", "/healthz"))[0] == 200

    asyncio.run(main())


async def _fails() -> object:
    raise ZeroDivisionError("a secret")


async def _breaks() -> object:
    raise InvariantError("it is not so")


async def _refuses() -> object:
    raise HttpProblem(HTTPStatus.CONFLICT, "not now", remedy="later", code="")


@pytest.mark.parametrize(("act", "status"), [(_fails, 500), (_breaks, 500), (_refuses, 409)])
def test_defects_are_logged_and_not_told(
    act: Callable[[], Awaitable[object]], status: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken: list[BaseException] = []

    async def main() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: broken.append(context["exception"]))
        async with serving(OneApi(act), LOOPBACK, NO_FILES) as ask:
            found, problem = await ask("GET", "/look")
            assert found == status
            return problem

    problem = asyncio.run(main())
    assert "secret" not in str(problem)
    assert [type(error) for error in broken] == ([InvariantError] if act is _breaks else [])
    if act is _refuses:
        assert (problem["remedy"], "code" in problem) == ("later", False)
    else:
        assert "GET /look failed" in caplog.text


@pytest.mark.parametrize(("ends", "result"), [(True, "done"), (False, "may be done all the same")])
def test_a_change_is_written_down_when_its_client_has_gone(
    ends: bool, result: str, caplog: pytest.LogCaptureFixture, authority: Authority
) -> None:
    admin = authority.issue("admin", ADMIN)

    async def main() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def act() -> object:
            asked.set()
            await go_on.wait()
            return Done(done=True)

        context = client_of(admin, show=True)
        async with serving(OneApi(act), MUTUAL, authority.node("n0"), context) as ask:
            change = asyncio.create_task(ask("POST", "/change"))
            await asked.wait()
            change.cancel()
            await asyncio.wait([change])
            if ends:
                go_on.set()
                async with asyncio.timeout(PATIENCE_S):
                    while not caplog.messages:  # noqa: ASYNC110 - nobody tells
                        await asyncio.sleep(0)

    with caplog.at_level(logging.INFO, "samelog.audit"):
        asyncio.run(main())
    [line] = [each for each in caplog.messages if "audit" in each]
    assert ADMIN in line
    assert result in line


def test_what_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUEST_S", 0.05)

    async def main() -> None:
        async with serving(OneApi(asyncio.Event().wait), LOOPBACK, NO_FILES) as ask:
            assert (await ask("GET", "/look"))[0] == 504

    asyncio.run(main())


def test_requests_and_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUESTS_MAX", 1)
    monkeypatch.setattr(served, "CONNECTIONS_MAX", 2)

    async def main() -> None:
        go_on = asyncio.Event()
        async with serving(OneApi(go_on.wait), LOOPBACK, NO_FILES) as ask:
            first = asyncio.create_task(ask("GET", "/look"))
            async with asyncio.timeout(PATIENCE_S):
                while (await ask("GET", "/healthz"))[0] != 503:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0)
            second = asyncio.create_task(ask("GET", "/look"))
            assert (await second)[0] == 503
            go_on.set()
            assert (await first)[0] == 200

    asyncio.run(main())


def test_who_keeps_a_request_waiting_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAIT_S", 0.2)

    async def main() -> None:
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            host, _, port = ask._base.removeprefix("http://").rpartition(":")
            whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for begun in (b"", b"GET /healthz HT", whole + b"GET /he"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(begun)
                async with asyncio.timeout(PATIENCE_S):
                    said = await reader.read()
                assert (b"alive" in said) == (begun.count(b"GET") == 2)
                writer.close()
                await writer.wait_closed()

    asyncio.run(main())


def test_a_place_that_is_taken_is_an_operators_mistake(authority: Authority) -> None:
    async def main() -> None:
        async with serving(OneApi(), LOOPBACK, NO_FILES) as ask:
            port = int(ask._base.rpartition(":")[2])
            with pytest.raises(HttpFault, match="cannot answer HTTP on"):
                await HttpServer(
                    HttpConfig(listen=Address("127.0.0.1", port)), NO_FILES, OneApi()
                ).start()
        with pytest.raises(HttpFault, match="cannot be"):
            await HttpServer(MUTUAL, NO_FILES, OneApi()).start()

    asyncio.run(main())


def test_the_description_has_every_route() -> None:
    document = finished(openapi(OneApi()))
    assert set(document["paths"]) == {
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/metrics",
        "/look",
        "/use",
        "/change",
        "/groups/{group}/send",
    }
    assert document["components"]["schemas"]["Done"]["properties"] == {"done": {"type": "boolean"}}


def test_two_types_of_one_name_are_a_mistake() -> None:
    schemas = AnswerSchemas()
    schemas.of(Done)
    with pytest.raises(TypeError, match="two types are called Done"):
        schemas.of(another_done())
    with pytest.raises(TypeError, match="no schema"):
        schemas.of(object())


def another_done() -> type:
    """Another type of the same name."""

    class Done(NamedTuple):
        x: int

    return Done


def test_an_error_of_the_body_begins_with_the_field() -> None:
    operation = next(each for each in OPERATIONS if each.request is CreatePartitions)
    body = b'{"partitions": 99999999999}'
    with pytest.raises(HttpProblem, match="cannot be taken: partitions: Expected `int` <= "):
        asyncio.run(routes.request_of_post(operation, {"topic": "t"}, body, 100))
    with pytest.raises(HttpProblem, match="cannot be taken: Object missing required field"):
        asyncio.run(routes.request_of_post(operation, {"topic": "t"}, b"{}", 100))
