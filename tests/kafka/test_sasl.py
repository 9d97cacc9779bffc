"""Names and passwords: both sides of each exchange, and whatever else may come."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.kafka.clients.sasl import (
    HASHES,
    AuthenticationFailed,
    Authenticator,
    SaslExchange,
    Verifier,
    verifier,
)

USERS = {"ann": "right", "b,o=b": "päss"}
AUTHENTICATOR = Authenticator(USERS, b"secret")


def begin(mechanism: str, nonce: str = "server") -> SaslExchange:
    exchange = AUTHENTICATOR.begin(mechanism, nonce)
    assert exchange is not None
    return exchange


def scram(
    mechanism: str, name: str, password: str, *, nonce: str = "client", again: str = ""
) -> SaslExchange:
    """A client's side of SCRAM, by RFC 5802; checks the server's signature. `again`: what the
    client's last nonce has in front, which the RFC does not know.
    """
    algorithm, exchange = HASHES[mechanism], begin(mechanism)
    bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
    first = exchange.step(f"n,,{bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    assert fields["r"].startswith(nonce)
    salted = hashlib.pbkdf2_hmac(
        algorithm, password.encode(), b64decode(fields["s"]), int(fields["i"])
    )
    key = hmac.digest(salted, b"Client Key", algorithm)
    final = f"c=biws,r={again}{fields['r']}"
    signed = f"{bare},{first},{final}".encode()
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    answer = exchange.step(f"{final},p={proof}".encode())
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    assert answer == b"v=" + b64encode(hmac.digest(server_key, signed, algorithm))
    return exchange


def set_for(password: str, mechanism: str, iterations: int = 5_000) -> Verifier:
    """What is kept of a user that was set over the protocol."""
    algorithm, salt = HASHES[mechanism], b"pepper"
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    key = hmac.digest(salted, b"Client Key", algorithm)
    stored = hashlib.new(algorithm, key).digest()
    return Verifier(salt, stored, hmac.digest(salted, b"Server Key", algorithm), iterations)


@pytest.mark.parametrize("mechanism", HASHES)
def test_users_without_a_password_here_are_known_by_what_was_set(mechanism: str) -> None:
    others = {("eve", mechanism): set_for("word", mechanism)}
    with patched_users(others):
        assert scram(mechanism, "eve", "word").user == "eve"
        with pytest.raises(AuthenticationFailed, match="invalid credentials"):
            scram(mechanism, "eve", "right")
        with pytest.raises(AuthenticationFailed, match="invalid credentials"):
            scram(next(each for each in HASHES if each != mechanism), "eve", "word")


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_file_goes_before_what_was_set(mechanism: str) -> None:
    with patched_users({("ann", mechanism): set_for("word", mechanism)}):
        assert scram(mechanism, "ann", "right").user == "ann"
        with pytest.raises(AuthenticationFailed, match="invalid credentials"):
            scram(mechanism, "ann", "word")


@contextmanager
def patched_users(others: dict[tuple[str, str], Verifier]) -> Iterator[None]:
    """The authenticator knows these, too."""
    known = Authenticator(USERS, b"secret", lambda user, mechanism: others.get((user, mechanism)))
    with patch(f"{__name__}.AUTHENTICATOR", known):
        yield


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", USERS)
def test_scram_with_the_right_password(mechanism: str, name: str) -> None:
    assert scram(mechanism, name, USERS[name]).user == name


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("name", "password"), [("ann", "wrong"), ("eve", "right"), ("eve", "")])
def test_scram_with_anything_else(mechanism: str, name: str, password: str) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials"):
        scram(mechanism, name, password)


def test_keys_are_those_of_the_rfcs_example() -> None:
    """RFC 7677, section 3: user `user`, password `pencil`."""
    known = verifier("sha256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    signed = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    ).encode()
    signature = b64encode(hmac.digest(known.server_key, signed, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain() -> None:
    for message in (b"\0ann\0right", b"ann\0ann\0right"):
        exchange = begin("PLAIN")
        assert exchange.step(message) == b""
        assert exchange.user == "ann"
    for message in (b"\0ann\0wrong", b"\0eve\0right", b"bob\0ann\0right", b"ann\0right", b"\0\0"):
        exchange = begin("PLAIN")
        with pytest.raises(AuthenticationFailed):
            exchange.step(message)
        assert exchange.user is None


def test_there_are_no_other_mechanisms() -> None:
    assert AUTHENTICATOR.begin("GSSAPI", "n") is None


@given(
    mechanism=st.sampled_from(["PLAIN", *HASHES]),
    messages=st.lists(st.binary(max_size=99), max_size=3),
)
def test_whatever_comes_nobody_gets_in(mechanism: str, messages: list[bytes]) -> None:
    exchange = begin(mechanism)
    for message in [b"n,,n=ann,r=x", *messages][mechanism == "PLAIN" :]:
        try:
            exchange.step(message)
        except AuthenticationFailed:
            break
    assert exchange.user is None


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_nonce_that_librdkafka_repeats_is_taken(mechanism: str) -> None:
    assert scram(mechanism, "ann", USERS["ann"], again="client").user == "ann"


@pytest.mark.parametrize(
    ("header", "repeated"),
    [("n,,", "y,,"), ("y,,", "n,,"), ("n,a=ann,", "n,,"), ("n,,", "n,,x"), ("n,,", "n")],
)
def test_the_header_has_to_be_repeated_under_the_proof(header: str, repeated: str) -> None:
    """RFC 5802, 5.1: else a proxy between them could have changed it."""
    exchange = begin("SCRAM-SHA-256")
    fields = exchange.step(f"{header}n=ann,r=x".encode()).decode()
    nonce = fields.split(",")[0]
    binding = b64encode(repeated.encode()).decode()
    with pytest.raises(AuthenticationFailed, match="GS2 header"):
        exchange.step(f"c={binding},{nonce},p=AAAA".encode())


def test_a_proof_for_another_nonce_is_worth_nothing() -> None:
    exchange = begin("SCRAM-SHA-256")
    exchange.step(b"n,,n=ann,r=x")
    with pytest.raises(AuthenticationFailed, match="nonce"):
        exchange.step(b"c=biws,r=other,p=AAAA")
