"""Asks a process over HTTP, as any client would."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from samelog.config.values import Address
from tests.patience import PATIENCE_S


class Answer(NamedTuple):
    """What came back."""

    status: int
    kind: str
    body: Any


def ask(
    address: Address | None, method: str, path: str, body: Any = None, **headers: str
) -> Answer:
    """One request; a body that is no bytes goes as JSON."""
    assert address is not None
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    try:
        if body is not None and not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        kind = response.headers.get_content_type()
        text = response.read().decode()
        return Answer(response.status, kind, json.loads(text) if text and "json" in kind else text)
    finally:
        connection.close()


def get(address: Address | None, path: str) -> Any:
    """What is answered with success."""
    answer = ask(address, "GET", path)
    assert answer.status == 200, answer
    return answer.body
