"""A client's configuration is read again while it runs: from a file, and from an HTTPS server."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from shiplog.config.enrolment import Enrolment, enrol
from shiplog.config.held import STATE_VARIABLE
from shiplog.config.load import load_client
from shiplog.config.pki import Role, create_authority
from shiplog.config.pki_rotation import refresh_lists, rotate
from shiplog.config.remote import CA_VARIABLE
from shiplog.config.types import Address, ClientConfig, LogLevel
from shiplog.runtime import following
from shiplog.runtime.following import ConfigFollower
from shiplog.runtime.reload import Problem
from shiplog.runtime.tls import ReloadingContext
from tests.config.serving import Answer, ConfigServer
from tests.runtime.peers import in_loop, until

NODE, OTHER = "h0:7000", "h1:7000"
KEPT = "configuration not taken, kept the old"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfigServer]:
    server = ConfigServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def server(one: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigServer:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv(CA_VARIABLE, one.ca)
    monkeypatch.setattr(following, "FOLLOW_S", 0.02)
    one.asked.clear()
    return one


class Documents:
    """Makes documents of one client."""

    def __init__(self, path: Path) -> None:
        self.pki, self.file = str(path / "pki"), path / "c.toml"
        create_authority(self.pki, "demo")

    def make(self, *nodes: str, cluster: str = "demo", more: str = "") -> bytes:
        wanted = Enrolment(cluster=cluster, nodes=nodes or (NODE,))
        enrol(self.pki, Role.CLIENT, "c", wanted, out=str(self.file), days=30)
        with self.file.open("a") as file:
            file.write(more)
        return self.file.read_bytes()


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    return Documents(tmp_path)


class Followed:
    """A follower, and what it told."""

    def __init__(self, place: str) -> None:
        self.told: list[ClientConfig] = []
        self.follower = ConfigFollower(load_client(place), self.told.append)


def is_problem(made: Followed, why: str) -> bool:
    return why in made.follower.problem


@asynccontextmanager
async def follow(place: str) -> AsyncIterator[Followed]:
    made = Followed(place)
    made.follower.start()
    try:
        yield made
    finally:
        made.follower.stop()


def test_a_file_is_followed_by_what_it_holds(documents: Documents) -> None:
    async def main() -> None:
        documents.make()
        async with follow(str(documents.file)) as made:
            documents.make(
                NODE, OTHER, more='\n[subscriber]\ntopics = ["t"]\n[log]\nlevel = "debug"\n'
            )
            await until(lambda: made.told)
            config = made.follower.config
            assert config.nodes == (Address("h0", 7000), Address("h1", 7000))
            assert (config.subscriber.topics, config.log_level) == (("t",), LogLevel.DEBUG)
            assert made.told == [config]

    in_loop(main)


def test_certificates_are_put_into_the_same_files(
    server: ConfigServer, documents: Documents
) -> None:
    server.answer = Answer(documents.make())

    async def main() -> str:
        async with follow(server.url) as made:
            path = made.follower.config.tls.cert
            rotate(documents.pki, Role.CLIENT, "c")
            server.answer = Answer(documents.make())
            await until(lambda: made.told)
            assert path == made.follower.config.tls.cert
            return path

    held = Path(in_loop(main))
    assert held.read_bytes() == Path(documents.pki, "client-c.pem").read_bytes()


def test_lists_of_what_is_revoked_count_when_they_come_and_no_more_when_they_go(
    documents: Documents,
) -> None:
    async def main() -> None:
        documents.make()
        async with follow(str(documents.file)) as made:
            tls = ReloadingContext(made.follower.config.tls)

            def is_asked() -> bool:
                return bool(tls.client.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF)

            async def changed(count: int) -> None:
                await until(lambda: len(made.told) == count)
                assert tls.reload_if_changed()

            assert not is_asked()
            refresh_lists(documents.pki)
            documents.make()
            await changed(1)
            assert is_asked()
            Path(documents.pki, "crl.pem").unlink()
            documents.make()
            await changed(2)
            assert not is_asked()
            rotate(documents.pki, Role.CLIENT, "c")
            documents.make()
            await changed(3)

    in_loop(main)


def test_a_problem_changes_nothing_and_is_told_once(
    server: ConfigServer, documents: Documents, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        good = documents.make()
        server.answer = Answer(good)
        async with follow(server.url) as made:

            async def asked_again() -> None:
                count = len(server.asked)
                await until(lambda: len(server.asked) > count + 3)

            for answer, why in (
                (Answer(status=503), "answered 503"),
                (Answer(b"x = 1\n" + good), "x: unknown key"),
                (Answer(documents.make(cluster="other")), "belongs to 'demo'; restart it"),
            ):
                caplog.clear()
                server.answer = answer
                await until(partial(is_problem, made, why))
                await asked_again()
                assert caplog.text.count(KEPT) == 1
                assert made.told == []
                server.answer = Answer(good)
                await until(lambda: not made.follower.problem)
            assert made.follower.config.cluster == "demo"
            server.answer = Answer(documents.make(OTHER))
            await until(lambda: made.told)

    with caplog.at_level(logging.INFO):
        in_loop(main)


def test_problems_that_take_turns_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    problem = Problem(logging.getLogger("test"))
    assert [problem.set(text) for text in "abab"] == [True] * 4
    assert not problem.set("b")
    assert caplog.text.count(KEPT) == 2
    assert problem.set("")
    assert problem.set("a")
    assert caplog.text.count(KEPT) == 3


def test_what_is_kept_counts_until_the_server_is_back(
    server: ConfigServer, documents: Documents
) -> None:
    async def main() -> None:
        server.answer = Answer(documents.make())
        load_client(server.url)
        server.answer = Answer(status=503)
        async with follow(server.url) as made:
            assert "answered 503" in made.follower.problem
            server.answer = Answer(documents.make(OTHER))
            await until(lambda: made.told)
            assert made.follower.problem == ""

    in_loop(main)


def test_what_was_refused_for_its_surroundings_is_tried_again(documents: Documents) -> None:
    async def main() -> None:
        documents.make()
        async with follow(str(documents.file)) as made:
            documents.make(OTHER)
            documents.file.chmod(0o644)
            await until(lambda: made.follower.problem or made.told)
            documents.file.chmod(0o600)
            await until(lambda: made.told)
            assert made.follower.problem == ""

    in_loop(main)


def test_what_counts_from_the_next_start_is_warned_of(
    documents: Documents, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        documents.make()
        async with follow(str(documents.file)) as made:
            documents.make(more='\n[publisher]\nroll_bytes = "2Mi"\n')
            await until(lambda: made.told)
            assert made.follower.config.publisher.roll_bytes != 2 << 20

    in_loop(main)
    assert 'counts from the next start keys="publisher.roll_bytes"' in caplog.text


def test_a_configuration_from_nowhere_stays(documents: Documents) -> None:
    documents.make()
    config = load_client(str(documents.file))
    made = ConfigFollower(
        ClientConfig(nodes=config.nodes, cluster=config.cluster, tls=config.tls), lambda found: None
    )
    made.start()
    made.stop()
    assert made.problem == ""
