"""A schema registry that answers over HTTP what Confluent's REST API says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro

from samelog.typed.framing import HEAD


class FakeRegistry:
    """Its schemas, in the order of their ids."""

    def __init__(self) -> None:
        self.schemas: list[tuple[str, str]] = []
        """(kind, text)."""
        self.subjects: dict[str, int] = {}
        self.asked: list[str] = []
        self.authorizations: set[str | None] = set()
        self.status = HTTPStatus.OK
        self.url = ""

    def put(self, kind: str, text: str) -> int:
        """The id of a schema."""
        if (kind, text) not in self.schemas:
            self.schemas.append((kind, text))
        return 1 + self.schemas.index((kind, text))

    def answer(self, method: str, path: str, body: Any) -> tuple[HTTPStatus, dict[str, Any]]:
        """What it says."""
        self.asked.append(f"{method} {path}")
        if self.status is not HTTPStatus.OK:
            return self.status, {"error_code": 1, "message": "it is not well"}
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "POST" and parts[0] == "subjects":
            number = self.put(body.get("schemaType", "AVRO"), body["schema"])
            self.subjects[parts[1]] = number
            return HTTPStatus.OK, {"id": number}
        if parts[:2] == ["schemas", "ids"] and 0 < int(parts[2]) <= len(self.schemas):
            kind, text = self.schemas[int(parts[2]) - 1]
            of_others = {} if kind == "AVRO" else {"schemaType": kind}
            return HTTPStatus.OK, {"schema": text, **of_others}
        return HTTPStatus.NOT_FOUND, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def running() -> Iterator[FakeRegistry]:
    """One that listens."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, method: str) -> None:
            registry.authorizations.add(self.headers["Authorization"])
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            status, found = registry.answer(method, self.path, body)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:  # http.server's name
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def log_message(self, *given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(registry: FakeRegistry, fields: list[dict[str, Any]], **record: object) -> bytes:
    """A record of Avro with the id that its schema has there."""
    schema = {"type": "record", "name": "Quote", "namespace": "x.y", "fields": fields}
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return HEAD.pack(0, registry.put("AVRO", json.dumps(schema))) + stream.getvalue()
