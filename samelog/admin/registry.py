"""Asks a schema registry with Confluent's REST API (Confluent's own, Karapace, Apicurio) for the
schemas of ids, and to register one.

Invariant: what an id means is asked once, and never changes.
"""

from __future__ import annotations

import base64
import time
from http import HTTPStatus
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

import msgspec

from samelog.typed.framing import AVRO, Registered
from samelog.typed.schema import NobodyAnswers, NoSchema

TIMEOUT_S = 10.0
ANSWER_BYTES = 4 << 20
ASK_AGAIN_S = 10.0
"""An id that the registry did not have is asked for again after this."""
MISSING = 1024
"""Of those, so many are remembered."""
_TYPE = "application/vnd.schemaregistry.v1+json"


class _Registration(msgspec.Struct):
    """What is used of any answer."""

    schema: str = ""
    kind: str = msgspec.field(default=AVRO, name="schemaType")
    number: int = msgspec.field(default=-1, name="id")
    message: str = ""


_decoder = msgspec.json.Decoder(_Registration)


class SchemaRegistry:
    """One. Implements SchemaIds. Names and passwords are in the URL."""

    def __init__(self, url: str) -> None:
        """Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no URL of a registry, as http://registry:8081")
        place = parts.netloc.rpartition("@")[2]
        self.url = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if parts.username is not None:
            who = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(who).decode()}"
        self._known: dict[int, Registered] = {}
        self._missing: dict[int, tuple[float, str]] = {}

    def schema(self, number: int) -> Registered:
        """See SchemaIds."""
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._learn(number)
        return known

    def _learn(self, number: int) -> Registered:
        """Values that begin with a zero byte by chance do not ask each time."""
        asked_at, problem = self._missing.get(number, (0.0, ""))
        if problem and time.monotonic() < asked_at + ASK_AGAIN_S:
            raise NoSchema(problem)
        try:
            found = self._ask(f"/schemas/ids/{number}")
        except NobodyAnswers:
            raise
        except NoSchema as error:
            if len(self._missing) >= MISSING:
                self._missing.clear()
            self._missing[number] = time.monotonic(), str(error)
            raise
        return Registered(found.kind, found.schema)

    def register(self, subject: str, schema: Registered) -> int:
        """See SchemaIds."""
        body = {"schemaType": schema.kind, "schema": schema.text}
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._ask(path, msgspec.json.encode(body)).number

    def _ask(self, path: str, body: bytes | None = None) -> _Registration:
        request = Request(self.url + path, body, self._headers)  # http or https
        try:
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return _decoder.decode(answer.read(ANSWER_BYTES))
        except HTTPError as error:
            raise self._refused(error) from error
        except (URLError, OSError, msgspec.MsgspecError) as error:
            raise NobodyAnswers(f"the registry {self.url} does not answer: {error}") from error

    def _refused(self, error: HTTPError) -> NoSchema:
        with error:
            try:
                said = _decoder.decode(error.read(ANSWER_BYTES)).message
            except (OSError, msgspec.MsgspecError):
                said = ""
        text = f"the registry {self.url} says {error.code}: {said or error.reason}"
        is_final = HTTPStatus.BAD_REQUEST <= error.code < HTTPStatus.INTERNAL_SERVER_ERROR
        return NoSchema(text) if is_final else NobodyAnswers(text)
