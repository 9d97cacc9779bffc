"""Authentication by tokens: SASL/OAUTHBEARER (RFC 7628) with an OpenID provider's JSON Web Tokens.

Pure, but for the time, which the library for tokens looks at.

Invariant: an identity comes only out of a token that one of the issuer's public keys signs, that
was made by this issuer, for this audience, and is not over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jwt

from samelog.config.tables.kafka import TokenIssuer
from samelog.kafka.clients.sasl import AuthenticationFailed

OAUTHBEARER = "OAUTHBEARER"
SKEW_S = 30
"""By how much the issuer's clock may be another one."""
MESSAGE_BYTES_MAX = 16 << 10
_FAMILIES = ("RSA", "EC", "OKP")
"""Kinds of keys that have a public half: what signs with a shared secret is none."""
_NAME = re.compile(r"[A-Za-z0-9._@|:+=-]{1,250}")
"""What is like no identity of a certificate."""
_SEPARATOR = "\x01"
TIMES = ("exp", "nbf", "iat")
"""Claims that are numbers of seconds; the library also reads texts."""


class UnusableKeys(Exception):
    """What should be an issuer's public keys is not; the message says why."""


class Tokens:
    """Checks the tokens of one issuer."""

    def __init__(self, issuer: TokenIssuer, missed: Callable[[], None]) -> None:
        """`missed`: to be called when a token names a key that is not known."""
        self._issuer = issuer
        self._missed = missed
        self._keys: dict[str | None, jwt.PyJWK] = {}

    def take_keys(self, jwks: bytes) -> None:
        """Go by these keys from now on. Raises UnusableKeys, and goes by the old ones."""
        try:
            found = jwt.PyJWKSet.from_json(jwks.decode()).keys
        except (jwt.PyJWTError, AttributeError, NotImplementedError, ValueError) as error:
            raise UnusableKeys(f"they are no JSON Web Key Set: {error}") from error
        usable = [key for key in found if key.key_type in _FAMILIES and key.public_key_use != "enc"]
        if not usable:
            raise UnusableKeys("none of them is a public key for signatures")
        self._keys = {key.key_id: key for key in usable}
        if len(usable) == 1:
            self._keys[None] = usable[0]

    def user_of(self, token: str) -> str:
        """Whose it is. Raises AuthenticationFailed."""
        issuer = self._issuer
        try:
            key = self._key_of(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=issuer.issuer,
                audience=issuer.audience,
                leeway=SKEW_S,
                options={"require": ["exp", "iss", "aud", issuer.claim]},
            )
        except (jwt.PyJWTError, ValueError) as error:
            raise AuthenticationFailed(f"the token is refused: {error}") from error
        for name in TIMES:
            if name in claims and type(claims[name]) not in (int, float):
                text = f"the token is refused: {name} is not a number (RFC 7519, NumericDate)"
                raise AuthenticationFailed(text)
        return _name_in(claims[issuer.claim])

    def _key_of(self, token: str) -> jwt.PyJWK:
        """Raises PyJWTError."""
        key = self._keys.get(jwt.get_unverified_header(token).get("kid"))
        if key is None:
            self._missed()
            raise jwt.InvalidKeyError("it names a key that is not among the issuer's")
        return key


def _name_in(claim: Any) -> str:
    """Raises AuthenticationFailed."""
    if not isinstance(claim, str) or _NAME.fullmatch(claim) is None:
        raise AuthenticationFailed("the token is refused: its user's name cannot be one here")
    return claim


class TokenExchange:
    """One message: `n,[a=name],`, then pairs, of which `auth` has the token."""

    def __init__(self, tokens: Tokens) -> None:
        self.user: str | None = None
        self._tokens = tokens

    def step(self, message: bytes) -> bytes:
        """The answer, which is empty. Raises AuthenticationFailed."""
        if len(message) > MESSAGE_BYTES_MAX:
            raise AuthenticationFailed("the message is too long")
        header, *pairs = message.decode("utf-8", "replace").split(_SEPARATOR)
        fields = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        scheme, _, token = fields.get("auth", "").partition(" ")
        binding, _, authorization = header.removesuffix(",").partition(",")
        authorization = authorization.replace("=2C", ",").replace("=3D", "=")
        if binding != "n" or scheme.lower() != "bearer":
            raise AuthenticationFailed("the message is not that of OAUTHBEARER")
        user = self._tokens.user_of(token.strip())
        if authorization not in ("", f"a={user}"):
            raise AuthenticationFailed("the token is another user's")
        self.user = user
        return b""
