"""A client's configuration from an HTTPS URL, with a real server: had, kept, refused."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import shutil
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from samelog.config import client_state, load
from samelog.config.client_state import STATE_VARIABLE, last_document
from samelog.config.document import FILE_LIMIT_BYTES, ConfigText
from samelog.config.enrolment import Enrolment, enrol
from samelog.config.load import accept_client, client_document, load_client
from samelog.config.pki.authority import CertificateRole, create_authority
from samelog.config.pki.rotation import rotate
from samelog.config.remote import CA_VARIABLE, TOKEN_VARIABLE, fetch, fetch_now
from samelog.config.values import Address, ConfigError
from tests.config.serving import Answer, ConfigServer


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfigServer]:
    server = ConfigServer(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def server(one: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfigServer:
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv(CA_VARIABLE, one.ca)
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    one.asked.clear()
    one.answer = Answer(b"x = 1")
    return one


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A document that can be used."""
    path = tmp_path_factory.mktemp("enrolled")
    create_authority(str(path / "pki"), "demo")
    wanted = Enrolment(cluster="demo", nodes=("h0:7000",))
    enrol(str(path / "pki"), CertificateRole.CLIENT, "c", wanted, out=str(path / "c.toml"), days=30)
    return (path / "c.toml").read_bytes()


def test_what_has_not_changed_is_not_sent_again(server: ConfigServer) -> None:
    first = fetch_now(server.url)
    assert (first.data, first.place) == (b"x = 1", server.url)
    assert first.tag
    assert fetch_now(server.url, first) is first
    assert server.asked[1]["If-None-Match"] == first.tag
    server.answer = Answer(b"x = 2")
    assert fetch_now(server.url, first).data == b"x = 2"


def test_a_server_without_tags_will_do(server: ConfigServer) -> None:
    server.answer = Answer(b"x = 1", has_tag=False)
    first = fetch_now(server.url)
    assert fetch_now(server.url, first) == first
    assert "If-None-Match" not in server.asked[1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(status=503), "answered 503 Service Unavailable"),
        (Answer(status=404), "answered 404 Not Found"),
        (Answer(status=799), "answered 799"),
        (Answer(status=304, has_tag=False), "answered that nothing has changed"),
        (Answer(b"x" * (FILE_LIMIT_BYTES + 1)), f"larger than {FILE_LIMIT_BYTES} bytes"),
        (Answer(status=302, headers={"Location": "/client.toml"}), "more than 3 redirects"),
        (Answer(status=302, headers={"Location": "http://a/b"}), "comes from https://HOST/… only"),
        (
            Answer(status=302, headers={"Location": "file:///etc/passwd"}),
            "comes from https://HOST/",
        ),
    ],
)
def test_other_answers_are_none(answer: Answer, message: str, server: ConfigServer) -> None:
    server.answer = answer
    with pytest.raises(ConfigError, match=re.escape(message)):
        fetch_now(server.url)


@pytest.mark.parametrize(
    "headers", [{"Content-Length": "x"}, {"Location": "https://a b:x/?hidden"}]
)
def test_what_is_not_understood_is_refused_without_secrets(
    headers: dict[str, str], server: ConfigServer
) -> None:
    server.answer = Answer(status=302 if "Location" in headers else 200, headers=headers)
    with pytest.raises(ConfigError, match=r"client\.toml: |not a URL") as raised:
        fetch_now(f"{server.url}?token=hidden")
    assert "hidden" not in str(raised.value)


def test_nobody_waits_for_long(server: ConfigServer) -> None:
    server.answer = Answer(b"x = 1", hangs=True)
    with pytest.raises(ConfigError, match=r"no answer within 0\.2 s"):
        asyncio.run(fetch(server.url, timeout_s=0.2))


def test_a_server_is_trusted_by_its_authority_alone(
    server: ConfigServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CA_VARIABLE)
    with pytest.raises(ConfigError, match=r"cannot be reached: .*[Cc]ertificate"):
        fetch_now(server.url)
    with pytest.raises(ConfigError, match=r"cannot be reached: .*[Cc]ertificate"):
        fetch_now(server.url.replace("127.0.0.1", "localhost"))
    monkeypatch.setenv(CA_VARIABLE, "/nowhere")
    with pytest.raises(ConfigError, match=f"{CA_VARIABLE}: '/nowhere' cannot be used"):
        fetch_now(server.url)
    assert server.asked == []


@pytest.mark.parametrize(
    "url",
    ["http://a/b", "ftp://a/b", "https:///b", "https://u:p@a/b", "https://a/b#c", "https://a:x/"],
)
def test_other_urls_are_refused_and_hide_what_is_secret(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        fetch_now(f"{url}?token=hidden")
    assert "hidden" not in str(raised.value)
    assert "u:p" not in str(raised.value)


def test_the_event_loop_does_not_wait_for_authorities(
    server: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are loaded in a thread, and again only when they have changed."""
    made: list[threading.Thread] = []
    make = ssl.create_default_context

    def spy(*, cafile: str | None) -> ssl.SSLContext:
        made.append(threading.current_thread())
        return make(cafile=cafile)

    monkeypatch.setattr(ssl, "create_default_context", spy)
    ca = tmp_path / "own.pem"
    ca.write_bytes(Path(server.ca).read_bytes())
    monkeypatch.setenv(CA_VARIABLE, str(ca))

    def fetch_twice() -> int:
        for _ in range(2):
            asyncio.run(fetch(server.url))
        return len(made)

    assert fetch_twice() == 1
    ca.write_bytes(Path(server.ca).read_bytes() * 2)
    assert fetch_twice() == 2
    assert threading.current_thread() not in made
    monkeypatch.delenv(CA_VARIABLE)
    with pytest.raises(ConfigError, match="cannot be reached"):
        asyncio.run(fetch(server.url))  # the system's authorities did not sign it
    assert len(made) == 3


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hidden@a/b",
        "https://user:hidden@a/b",
        "https://user:hidden",
        "https://user:hid/den@a/b",
        "ftp://hidden@a/b?hidden#hidden",
        "http://a/b#hidden",
    ],
)
def test_passwords_are_never_shown(url: str, server: ConfigServer) -> None:
    shown = []
    with pytest.raises(ConfigError) as raised:
        fetch_now(url)
    shown.append(str(raised.value))
    server.answer = Answer(status=302, headers={"Location": url})
    with pytest.raises(ConfigError) as raised:
        fetch_now(server.url)
    shown.append(str(raised.value))
    for text in shown:
        assert "hid" not in text
        assert "user" not in text


def test_a_token_goes_to_the_host_that_it_is_for(
    server: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    monkeypatch.setenv(TOKEN_VARIABLE, str(token))
    with pytest.raises(ConfigError, match="can be used by others"):
        fetch_now(server.url)
    token.chmod(0o600)
    fetch_now(server.url)
    assert server.asked[0]["Authorization"] == "Bearer s3cret"
    other = ConfigServer(tmp_path)
    try:
        other.answer = Answer(b"x = 1")
        both = tmp_path / "both.pem"
        both.write_bytes(Path(server.ca).read_bytes() + Path(other.ca).read_bytes())
        monkeypatch.setenv(CA_VARIABLE, str(both))
        server.answer = Answer(status=302, headers={"Location": other.url})
        found = fetch_now(server.url)
        assert (found.place, found.data) == (server.url, b"x = 1")
        assert "Authorization" not in other.asked[0]
    finally:
        other.stop()
    token.write_text("two words")
    with pytest.raises(ConfigError, match="holds no token"):
        fetch_now(server.url)


def test_what_was_used_last_is_used_while_nothing_better_is_there(
    server: ConfigServer, enrolled: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = Answer(status=503)
    with pytest.raises(ConfigError, match="answered 503"):
        load_client(server.url)
    server.answer = Answer(enrolled)
    first = load_client(server.url)
    assert Path(first.tls.key).read_text() in enrolled.decode()
    server.asked.clear()
    assert load_client(server.url) == first
    assert "If-None-Match" in server.asked[0]
    for answer in (Answer(status=503), Answer(b"nodes = 1"), Answer(b"\xff")):
        server.answer = answer
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = load_client(server.url)
        assert found == first
        assert "used last is used again" in caplog.text
        assert found.document is not None
        assert found.document.text.problem
    server.answer = Answer(enrolled)
    found = load_client(server.url)
    assert found.document is not None
    assert found.document.text.problem == ""


def test_who_falls_back_takes_nothing_newer_away(
    server: ConfigServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one waits for the server in vain, another has had a newer document."""
    pki, out = str(tmp_path / "pki"), tmp_path / "c.toml"
    create_authority(pki, "demo")

    def enrolled(node: str) -> bytes:
        wanted = Enrolment(cluster="demo", nodes=(node,))
        enrol(pki, CertificateRole.CLIENT, "c", wanted, out=str(out), days=30)
        return out.read_bytes()

    server.answer = Answer(enrolled("h0:7000"))
    load_client(server.url)
    rotate(pki, CertificateRole.CLIENT, "c")
    newer = enrolled("h1:7000")

    def in_vain(url: str, known: ConfigText | None) -> ConfigText:
        accept_client(client_document(ConfigText(url, newer)))
        raise ConfigError("no answer")

    monkeypatch.setattr(load, "fetch_now", in_vain)
    found = load_client(server.url)
    assert found.nodes == (Address("h1", 7000),)
    assert Path(found.tls.cert).read_bytes() == Path(pki, "client-c.pem").read_bytes()
    kept = last_document(server.url)
    assert kept is not None
    assert kept.data == newer
    shutil.rmtree(Path(found.tls.cert).parent.resolve())
    assert Path(load_client(server.url).tls.cert).exists()  # what is lost is written again


def test_a_full_disk_matters_only_if_something_is_to_be_written(
    server: ConfigServer,
    enrolled: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.answer = Answer(enrolled)
    first = load_client(server.url)

    def full(path: str, data: bytes, mode: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    def read_only(path: str, flags: int) -> int:
        raise OSError(errno.EROFS, "read-only")

    for name, fails in (("replace_file", full), ("_open_private", read_only)):
        with monkeypatch.context() as hindered:
            hindered.setattr(client_state, name, fails)
            caplog.clear()
            server.answer = Answer(enrolled)
            assert load_client(server.url) == first
            assert caplog.text == ""
            server.answer = Answer(enrolled.replace(b"h0:", b"h1:"))
            assert load_client(server.url).nodes == (Address("h1", 7000),)
            assert "cannot be kept" in caplog.text
            assert load_client(server.url).tls == first.tls
            shutil.rmtree(Path(first.tls.cert).parent.resolve())
            with pytest.raises(ConfigError, match="certificates cannot be kept"):
                load_client(server.url)
        server.answer = Answer(enrolled)
        load_client(server.url)


def test_paths_of_a_url_are_absolute(server: ConfigServer, enrolled: bytes) -> None:
    server.answer = Answer(enrolled + b'[publisher]\ndir = "sessions"\n')
    with pytest.raises(ConfigError, match=r"publisher\.dir: 'sessions' is not an absolute path"):
        load_client(server.url)
    server.answer = Answer(enrolled + b'[publisher]\ndir = "/sessions"\n')
    assert load_client(server.url).publisher.directory == "/sessions"


def test_a_document_is_never_shown() -> None:
    assert "hidden" not in repr(ConfigText("https://a/b", b"hidden"))
