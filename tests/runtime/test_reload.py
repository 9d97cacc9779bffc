"""A client's configuration is read again while it runs: from a file, and from an HTTPS server."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from samelog.config.client_state import STATE_VARIABLE, last_document, save_client_state
from samelog.config.document import ConfigText
from samelog.config.enrolment import Enrolment, enrol
from samelog.config.load import client_config, client_document, load_client
from samelog.config.pki.authority import CertificateRole, create_authority
from samelog.config.pki.rotation import refresh_lists, rotate
from samelog.config.remote import CA_VARIABLE
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import LogLevel
from samelog.config.values import Address
from samelog.runtime import reload
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.reload import ConfigFollower, ConfigProblem
from tests.config.serving import Answer, ConfigServer
from tests.runtime.peers import in_loop, until

NODE, OTHER = "h0:7000", "h1:7000"
KEPT = "configuration refused, kept the old"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfigServer]:
    server = ConfigServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def server(one: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigServer:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv(CA_VARIABLE, one.ca)
    monkeypatch.setattr(reload, "FOLLOW_S", 0.02)
    one.asked.clear()
    return one


class Documents:
    """Makes documents of one client."""

    def __init__(self, path: Path) -> None:
        self.pki, self.file = str(path / "pki"), path / "c.toml"
        create_authority(self.pki, "demo")

    def make(self, *nodes: str, cluster: str = "demo", more: str = "") -> bytes:
        wanted = Enrolment(cluster=cluster, nodes=nodes or (NODE,))
        enrol(self.pki, CertificateRole.CLIENT, "c", wanted, out=str(self.file), days=30)
        with self.file.open("a") as file:
            file.write(more)
        return self.file.read_bytes()

    def make_paths(self) -> None:
        """As before, but for paths instead of texts."""
        names = {"ca": "ca.pem", "cert": "client-c.pem", "key": "client-c.key"}
        lines = [f'{key} = "{self.pki}/{name}"' for key, name in names.items()]
        self.file.write_text("\n".join([f'nodes = ["{NODE}"]', 'cluster = "demo"', *lines]))

    def forget_lists(self) -> None:
        Path(self.pki, "crl.pem").unlink()

    def is_held(self, config: ClientConfig) -> bool:
        """Whether the newest texts are in the files."""
        try:
            found = Path(config.tls.cert).read_bytes()
        except OSError:
            return False
        return found == Path(self.pki, "client-c.pem").read_bytes()


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
            rotate(documents.pki, CertificateRole.CLIENT, "c")
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
            documents.forget_lists()
            documents.make()
            await changed(2)
            assert not is_asked()
            rotate(documents.pki, CertificateRole.CLIENT, "c")
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
    problem = ConfigProblem(logging.getLogger("test"))
    assert [problem.set(text) for text in "abab"] == [True] * 4
    assert not problem.set("b")
    assert caplog.text.count(KEPT) == 2
    assert problem.set("")
    assert problem.set("a")
    assert caplog.text.count(KEPT) == 3


def test_what_another_process_took_away_is_put_back(
    server: ConfigServer, documents: Documents
) -> None:
    old = documents.make()
    rotate(documents.pki, CertificateRole.CLIENT, "c")
    server.answer = Answer(documents.make())
    old_document = client_document(ConfigText(server.url, old))

    async def main() -> None:
        async with follow(server.url) as made:
            config = made.follower.config
            held = os.path.dirname(config.tls.cert)
            for ruin in (lambda: save_client_state(old_document), lambda: os.unlink(held)):
                ruin()
                assert not documents.is_held(config)
                await until(lambda: documents.is_held(config))
            assert made.told == []

    in_loop(main)
    kept = last_document(server.url)
    assert kept is not None
    assert kept.data == server.answer.body


def test_whatever_goes_wrong_is_a_problem_and_passes(
    documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        documents.make()
        async with follow(str(documents.file)) as made:
            monkeypatch.setattr(reload, "client_config", lambda document: 1 // 0)
            documents.make(OTHER)
            await until(partial(is_problem, made, "ZeroDivisionError: integer"))
            monkeypatch.setattr(reload, "client_config", client_config)
            await until(lambda: made.told)
            assert made.follower.problem == ""

    in_loop(main)


def test_a_callback_that_fails_is_called_again(documents: Documents) -> None:
    async def main() -> None:
        documents.make()
        config, told = load_client(str(documents.file)), 0

        def fail_once(found: ClientConfig) -> None:
            nonlocal told
            told += 1
            if told == 1:
                raise KeyError("once")

        follower = ConfigFollower(config, fail_once)
        follower.start()
        documents.make(OTHER)
        await until(lambda: told == 2 and not follower.problem)
        follower.stop()

    in_loop(main)


def said(caplog: pytest.LogCaptureFixture) -> str:
    """As it was logged: a session of Spark has every handler of its process write JSON."""
    return "\n".join(caplog.messages)


def test_files_in_use_stay_when_paths_take_the_place_of_texts(
    documents: Documents, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> ClientConfig:
        documents.make()
        async with follow(str(documents.file)) as made:
            documents.make_paths()
            await until(lambda: made.told)
            assert documents.is_held(made.follower.config)
            return made.follower.config

    config = in_loop(main)
    assert "configuration reloaded" not in said(caplog)
    assert re.search(r'next start keys="[^"]*key_pem', said(caplog))
    load_client(str(documents.file))  # a start: nobody needs them
    assert not documents.is_held(config)
    assert not list(Path(config.tls.key).parent.parent.glob("tls*"))


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
    assert 'counts from the next start keys="publisher.roll_bytes"' in said(caplog)


def test_a_configuration_from_nowhere_stays(documents: Documents) -> None:
    documents.make()
    config = load_client(str(documents.file))
    made = ConfigFollower(
        ClientConfig(nodes=config.nodes, cluster=config.cluster, tls=config.tls), lambda found: None
    )
    made.start()
    made.stop()
    assert made.problem == ""
