"""Authentication by name and password: SASL/PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677); who
does what tokens take (tokens.py) is given.

Pure: the nonce is given. A user that does not exist is treated as one that does, up to the same
failure, so that names cannot be guessed by how the server answers.

Invariant: an identity comes out of an exchange only when the client has proven that it knows the
password; whatever bytes come, the exchange goes on or fails.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

PLAIN = "PLAIN"
HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISM_NUMBERS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""As Kafka's messages name them (ScramMechanism)."""
ITERATIONS = 4096
MESSAGE_BYTES_MAX = 4096
VERIFIERS_KEPT = 1024


class AuthenticationFailed(Exception):
    """The client has not proven who it is; the message is for the node's log and the client."""


WRONG = "authentication failed: invalid credentials"


class SaslExchange(Protocol):
    """One authentication under way."""

    user: str | None
    """Who the client has proven to be."""

    def step(self, message: bytes) -> bytes:
        """The answer to a message of the client. Raises AuthenticationFailed."""


class PlainExchange:
    """One message: authorization id, name and password, each behind a NUL but the first."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user: str | None = None
        self._passwords = passwords

    def step(self, message: bytes) -> bytes:
        """The answer, which is empty. Raises AuthenticationFailed."""
        parts = message[:MESSAGE_BYTES_MAX].split(b"\0")
        if len(parts) != 3 or len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("the message is not that of SASL/PLAIN")
        authorization, name, password = (part.decode("utf-8", "replace") for part in parts)
        known = self._passwords.get(name)
        is_right = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None or not is_right or authorization not in ("", name):
            raise AuthenticationFailed(WRONG)
        self.user = name
        return b""


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a server keeps of a password to check proofs with."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int = ITERATIONS


FindVerifier = Callable[[str, str], Verifier | None]
"""(user, mechanism) -> what is kept of a user whose password is not known here."""


@lru_cache(maxsize=VERIFIERS_KEPT)
def verifier(algorithm: str, password: str, salt: bytes) -> Verifier:
    """The verifier of a password; takes some milliseconds the first time."""
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    server_key = hmac.digest(salted, b"Server Key", algorithm)
    return Verifier(salt, hashlib.new(algorithm, client_key).digest(), server_key)


class ScramExchange:
    """client-first, server-first, client-final, server-final."""

    def __init__(
        self,
        mechanism: str,
        passwords: Mapping[str, str],
        *,
        nonce: str,
        secret: bytes,
        others: FindVerifier = lambda user, mechanism: None,
    ) -> None:
        """`nonce`: this exchange's own; `secret`: the server's, from which salts come; `others`:
        users without a password here.
        """
        self.user: str | None = None
        self._mechanism = mechanism
        self._algorithm = HASHES[mechanism]
        self._others = others
        self._is_known = False
        self._passwords = passwords
        self._nonce = nonce
        self._secret = secret
        self._name = ""
        self._header = ""
        """The GS2 header, which the client repeats under its proof."""
        self._bare = ""
        self._first = ""
        self._verifier: Verifier | None = None

    def step(self, message: bytes) -> bytes:
        """The answer to a message. Raises AuthenticationFailed."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("the message is too long")
        try:
            text = message.decode("utf-8")
            return (self._begin(text) if self._verifier is None else self._end(text)).encode()
        except (ValueError, KeyError) as error:
            raise AuthenticationFailed("the message is not that of SCRAM") from error

    def _begin(self, text: str) -> str:
        """client-first: `n,[a=authzid],n=name,r=nonce[,extensions]`."""
        binding, authorization, bare = text.split(",", 2)
        fields = _fields(bare)
        self._name = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if binding not in ("n", "y") or authorization not in ("", f"a={fields['n']}"):
            raise AuthenticationFailed(
                "channel binding and other authorization ids are unsupported"
            )
        self._header = f"{binding},{authorization},"
        known = self._verifier = self._find()
        self._nonce = fields["r"] + self._nonce
        self._bare = bare
        salt = b64encode(known.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={known.iterations}"
        return self._first

    def _find(self) -> Verifier:
        """Who has a password in the file is known by that alone."""
        password = self._passwords.get(self._name)
        other = None if password is not None else self._others(self._name, self._mechanism)
        self._is_known = password is not None or other is not None
        if other is not None:
            return other
        salt = hmac.digest(self._secret, self._name.encode(), "sha256")[:16]
        return verifier(self._algorithm, password or "", salt)

    def _end(self, text: str) -> str:
        """client-final: `c=binding,r=nonce,p=proof`."""
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        if b64decode(fields["c"], validate=True) != self._header.encode():
            raise AuthenticationFailed("c= does not repeat the GS2 header of the first message")
        known = self._verifier
        # librdkafka before 2.6 puts its own nonce in front once more; Kafka takes that, too.
        if known is None or not fields["r"].endswith(self._nonce):
            raise AuthenticationFailed("the nonce is not that of this exchange")
        signed = f"{self._bare},{self._first},{without_proof}".encode()
        signature = hmac.digest(known.stored_key, signed, self._algorithm)
        given = b64decode(proof, validate=True)
        key = bytes(a ^ b for a, b in zip(given, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(self._algorithm, key).digest(), known.stored_key)
        if not is_right or not self._is_known:
            raise AuthenticationFailed(WRONG)
        self.user = self._name
        return "v=" + b64encode(hmac.digest(known.server_key, signed, self._algorithm)).decode()


def _fields(text: str) -> dict[str, str]:
    """`a=b,c=d`. Raises ValueError."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise ValueError(f"no attribute: {part!r}")
        found[key] = value
    return found


class Authenticator:
    """The users of a node's listeners."""

    def __init__(
        self,
        passwords: Mapping[str, str],
        secret: bytes,
        others: FindVerifier = lambda user, mechanism: None,
        more: Mapping[str, Callable[[], SaslExchange]] = MappingProxyType({}),
    ) -> None:
        """`secret`: the node's own, never told; salts come from it. `others`: users for SCRAM that
        have no password here. `more`: what begins exchanges of other mechanisms.
        """
        self._passwords = passwords
        self._others = others
        self._secret = hashlib.sha256(secret).digest()
        self._more = more

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What a client may choose from."""
        return (PLAIN, *HASHES, *self._more)

    def begin(self, mechanism: str, nonce: str) -> SaslExchange | None:
        """An exchange; None if there is no such mechanism."""
        if mechanism == PLAIN:
            return PlainExchange(self._passwords)
        if mechanism in HASHES:
            return ScramExchange(
                mechanism, self._passwords, nonce=nonce, secret=self._secret, others=self._others
            )
        begin = self._more.get(mechanism)
        return None if begin is None else begin()
