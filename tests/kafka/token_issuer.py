"""Somebody who makes tokens: keys, and what is signed with them."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://login.example.com/", "samelog"


class Issuer:
    """Has one key of each of two kinds."""

    def __init__(self, prefix: str = "") -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self._names = {"RS256": f"{prefix}rsa", "ES256": f"{prefix}ec"}

    def key_set(self, *more: dict[str, Any]) -> bytes:
        """The public keys, as a JSON Web Key Set."""
        rsa_key = RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)
        ec_key = ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)
        own = [rsa_key | {"kid": self._names["RS256"]}, ec_key | {"kid": self._names["ES256"]}]
        return json.dumps({"keys": [*own, *more]}).encode()

    def token(self, algorithm: str = "RS256", /, *, kid: str | None = None, **claims: Any) -> str:
        """A good one, but for what is said here; a claim that is None is left out."""
        now = int(time.time())
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 600}
        said = {name: value for name, value in (usual | claims).items() if value is not None}
        key = self.rsa if algorithm == "RS256" else self.ec
        return jwt.encode(said, key, algorithm, {"kid": kid or self._names[algorithm]})
