"""Tokens: which ones let somebody in, and whom; and keys from a file and a URL."""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.utils import base64url_encode

from samelog.config.pki.authority import CertificateRole, create_authority, issue
from samelog.config.tables.kafka import TokenIssuer
from samelog.kafka.clients.sasl import AuthenticationFailed, Authenticator
from samelog.kafka.clients.tokens import SKEW_S, TokenExchange, Tokens, UnusableKeys
from samelog.kafka.server import token_keys
from samelog.kafka.server.listener import ListenerFault
from samelog.kafka.server.token_keys import TokenKeys
from tests.kafka.token_issuer import AUDIENCE, ISSUER, Issuer
from tests.sequencer.cluster import until

ISSUED, OTHERS = Issuer(), Issuer()
HOST = "127.0.0.1"
SECRET = b"secret" * 8


def issuer(jwks: str = "jwks.json", **more: Any) -> TokenIssuer:
    return TokenIssuer(jwks=jwks, issuer=ISSUER, audience=AUDIENCE, **more)


def tokens(missed: Callable[[], None] = lambda: None, **more: Any) -> Tokens:
    made = Tokens(issuer(**more), missed)
    made.take_keys(ISSUED.key_set())
    return made


def first(token: str, name: str = "", *more: str) -> bytes:
    """What a client sends."""
    return "\x01".join([f"n,{name},", f"auth=Bearer {token}", *more, "", ""]).encode()


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_good_token_says_who_it_is(algorithm: str) -> None:
    exchange = TokenExchange(tokens())
    assert exchange.step(first(ISSUED.token(algorithm), "a=ann", "traceparent=00")) == b""
    assert exchange.user == "ann"


def test_a_name_may_be_written_as_the_rfc_has_it() -> None:
    exchange = TokenExchange(tokens())
    exchange.step(first(ISSUED.token(sub="a=b"), "a=a=3Db"))
    assert exchange.user == "a=b"


def test_another_claim_may_have_the_name() -> None:
    token = ISSUED.token(preferred_username="ann@example.com")
    assert tokens(claim="preferred_username").user_of(token) == "ann@example.com"
    with pytest.raises(AuthenticationFailed, match="preferred_username"):
        tokens(claim="preferred_username").user_of(ISSUED.token())


def test_clocks_may_differ_a_little() -> None:
    assert tokens().user_of(ISSUED.token(exp=int(time.time()) - SKEW_S // 2)) == "ann"


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": -2 * SKEW_S},
        {"exp": None},
        {"nbf": 3600},
        {"iat": 3600},
        {"iss": "https://login.example.com"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "node/n1"},
        {"sub": "a\nb"},
        {"sub": "*"},
        {"sub": "a" * 256},
    ],
    ids=repr,
)
def test_other_tokens_are_refused(claims: dict[str, Any]) -> None:
    """Times count from now."""
    now = int(time.time())
    given: dict[str, Any] = {
        name: now + it if isinstance(it, int) else it for name, it in claims.items()
    }
    with pytest.raises(AuthenticationFailed, match="the token is refused"):
        tokens().user_of(ISSUED.token(**given))


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("kind", [str, bool, lambda number: [number]])
def test_times_are_numbers(name: str, kind: Callable[[int], object]) -> None:
    """RFC 7519, 2: a NumericDate is a JSON number. The library also takes a text of digits."""
    moment = int(time.time()) + (3600 if name == "exp" else -5)
    assert tokens().user_of(ISSUED.token(**cast(Any, {name: moment}))) == "ann"
    with pytest.raises(AuthenticationFailed, match="the token is refused"):
        tokens().user_of(ISSUED.token(**cast(Any, {name: kind(moment)})))


def test_only_the_issuers_keys_sign() -> None:
    missed: list[bool] = []
    checker = tokens(lambda: missed.append(True))
    with pytest.raises(AuthenticationFailed, match="Signature"):
        checker.user_of(OTHERS.token())
    assert not missed
    with pytest.raises(AuthenticationFailed, match="names a key"):
        checker.user_of(ISSUED.token(kid="another"))
    assert missed, "it is asked whether there are new ones"
    head, body, signature = ISSUED.token().split(".")
    with pytest.raises(AuthenticationFailed, match="Signature"):
        checker.user_of(".".join([head, OTHERS.token(sub="bob").split(".")[1], signature]))
    assert checker.user_of(f"{head}.{body}.{signature}") == "ann"


def test_nobody_signs_with_a_public_key_or_not_at_all() -> None:
    public = ISSUED.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    claims = ISSUED.token().split(".")[1]
    for algorithm in ("HS256", "none"):
        header = base64url_encode(json.dumps({"alg": algorithm, "kid": "rsa"}).encode()).decode()
        signed = f"{header}.{claims}"
        mark = hmac.digest(public, signed.encode(), "sha256") if algorithm == "HS256" else b""
        with pytest.raises(AuthenticationFailed, match="alg"):
            tokens().user_of(f"{signed}.{base64url_encode(mark).decode()}")


def test_shared_secrets_are_no_keys() -> None:
    secret = {"kty": "oct", "kid": "shared", "k": base64url_encode(SECRET).decode()}
    checker = tokens()
    checker.take_keys(ISSUED.key_set(secret))
    claims = jwt.decode(ISSUED.token(), options={"verify_signature": False})
    token = jwt.encode(claims, SECRET, "HS256", {"kid": "shared"})
    with pytest.raises(AuthenticationFailed, match="names a key"):
        checker.user_of(token)
    with pytest.raises(UnusableKeys):
        checker.take_keys(json.dumps({"keys": [secret]}).encode())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": 1}', b"\xff", b'{"keys": [{"kty": "RSA", "alg": "none"}]}'],
)
def test_what_are_no_keys_leaves_the_old_ones(data: bytes) -> None:
    checker = tokens()
    with pytest.raises(UnusableKeys):
        checker.take_keys(data)
    assert checker.user_of(ISSUED.token()) == "ann"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0ann\0right",
        b"n,,",
        b"n,,\x01auth=Basic eA==\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x.y.z\x01\x01",
        first(ISSUED.token(), "a=bob"),
        b"n,,\x01auth=Bearer " + b"x" * (1 << 14),
    ],
)
def test_whatever_comes_is_refused(message: bytes) -> None:
    exchange = TokenExchange(tokens())
    with pytest.raises(AuthenticationFailed):
        exchange.step(message)
    assert exchange.user is None


@given(st.binary(max_size=200) | st.text(max_size=200).map(first))
def test_noise_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        TokenExchange(tokens()).step(message)


def test_the_mechanism_is_there_where_there_is_an_issuer() -> None:
    without, made = Authenticator({}, b"secret"), tokens()
    assert without.begin("OAUTHBEARER", "nonce") is None
    assert "OAUTHBEARER" not in without.mechanisms
    with_it = Authenticator({}, b"secret", more={"OAUTHBEARER": lambda: TokenExchange(made)})
    assert with_it.mechanisms[-1] == "OAUTHBEARER"
    assert isinstance(with_it.begin("OAUTHBEARER", "nonce"), TokenExchange)


# --- keys ---------------------------------------------------------------------------------------


def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    keys = TokenKeys(issuer(str(file)))
    with pytest.raises(ListenerFault, match="cannot be read"):
        keys.read()
    file.write_bytes(ISSUED.key_set())
    keys.read()
    assert keys.tokens.user_of(ISSUED.token()) == "ann"
    file.write_bytes(Issuer("new-").key_set())
    keys.read()
    with pytest.raises(AuthenticationFailed):
        keys.tokens.user_of(ISSUED.token())


class Provider:
    """Answers with what it is given, over TLS."""

    def __init__(self, path: Path) -> None:
        self.answers: list[bytes | int] = []
        self.asked = 0
        authority = create_authority(str(path), "provider")
        files = issue(str(path), CertificateRole.NODE, "provider", hosts=[HOST])
        self.authority = authority.cert
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(files.cert, files.key)

    async def _answer(self, request: web.Request) -> web.Response:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, int):
            return web.Response(status=answer, headers={"Location": "http://127.0.0.1/"})
        return web.Response(body=answer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """At this URL."""
        app = web.Application()
        app.router.add_get("/keys", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, HOST, 0, ssl_context=self._context).start()
        try:
            yield f"https://{HOST}:{runner.addresses[0][1]}/keys"
        finally:
            await runner.cleanup()


async def lets_in(keys: TokenKeys, made_by: Issuer) -> None:
    """Wait until its tokens are good; each that is not asks for new keys."""

    def is_let_in() -> bool:
        with suppress(AuthenticationFailed):
            return keys.tokens.user_of(made_by.token()) == "ann"
        return False

    await until(is_let_in, "it is let in")


def test_keys_of_a_url_are_asked_for_until_they_come_and_when_they_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "AT_LEAST_S", 0.01)
    provider, new = Provider(tmp_path), Issuer("new-")
    provider.answers = [503, 302, b"no keys", ISSUED.key_set(), b"broken", new.key_set()]

    async def scenario() -> None:
        async with provider.serving() as url:
            keys = TokenKeys(issuer(url, ca=provider.authority))
            keys.read()
            keys.start()
            try:
                await lets_in(keys, ISSUED)
                await lets_in(keys, new)
            finally:
                keys.close()
        assert provider.asked == len(provider.answers)

    asyncio.run(scenario())


def test_who_has_another_certificate_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_keys, "AT_LEAST_S", 0.01)
    provider = Provider(tmp_path)
    provider.answers = [ISSUED.key_set()]

    async def scenario() -> None:
        async with provider.serving() as url:
            keys = TokenKeys(issuer(url))
            keys.start()
            await until(lambda: "token keys are not there" in caplog.text, "it is told")
            keys.close()
        with pytest.raises(AuthenticationFailed):
            keys.tokens.user_of(ISSUED.token())

    asyncio.run(scenario())
    assert provider.asked == 0
