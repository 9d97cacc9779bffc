"""A Kafka client that speaks the protocol by hand, so that tests can send anything."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from samelog.kafka.codec.descriptions import structure_of
from samelog.kafka.codec.framing import API_VERSIONS_KEY
from samelog.kafka.codec.schemas import read_response, write_message, write_request
from samelog.kafka.registry import APIS
from tests.patience import PATIENCE_S

FETCH, METADATA = 1, 3


def request_bytes(
    key: int, version: int, body: bytes, *, correlation: int = 1, client: bytes = b"test"
) -> bytes:
    """A whole frame."""
    tags = b"\0" if APIS[key].is_flexible(version) else b""
    head = struct.pack(">hhih", key, version, correlation, len(client)) + client + tags
    return struct.pack(">i", len(head) + len(body)) + head + body


def request(key: int, version: int, tree: Mapping[str, Any], *, correlation: int = 1) -> bytes:
    """A whole frame of a request by its description."""
    return request_bytes(key, version, write_request(key, version, tree), correlation=correlation)


def response(key: int, version: int, payload: bytes) -> Any:
    """An answer, its header taken off."""
    flexible = APIS[key].is_flexible(version) and key != API_VERSIONS_KEY
    body = payload[5 if flexible else 4 :]
    found = read_response(key, version, body)
    assert write_message(structure_of("response", key, version), found) == body
    return found


class Wire:
    """One connection."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, PATIENCE_S)
        self._correlation = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next answer, without its length. Raises ConnectionError when there is none."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def is_closed(self) -> bool:
        """Whether the other side closes without another word; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def ask(self, key: int, version: int, tree: Mapping[str, Any]) -> Any:
        """Ask, and wait for the answer."""
        self._correlation += 1
        self.send(request(key, version, tree, correlation=self._correlation))
        payload = self.receive()
        assert int.from_bytes(payload[:4], "big") == self._correlation
        return response(key, version, payload)


def metadata(wire: Wire, topic: str | None, version: int = 12, **more: Any) -> Any:
    topics = None if topic is None else [{"name": topic, "topic_id": None}]
    tree = {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    return wire.ask(METADATA, version, tree | more)


def fetch_tree(topic: str, at: int, **options: Any) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": options.get("epoch", -1),
        "fetch_offset": at,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": options.get("partition_max_bytes", 1 << 20),
    }
    return {
        "replica_id": -1,
        "max_wait_ms": options.get("max_wait", 0),
        "min_bytes": options.get("min_bytes", 1),
        "max_bytes": options.get("max_bytes", 1 << 20),
        "isolation_level": options.get("isolation", 0),
        "session_id": options.get("session_id", 0),
        "session_epoch": options.get("session_epoch", -1),
        "topics": [{"topic": topic, "topic_id": options.get("id"), "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": options.get("rack", ""),
    }


def fetch(wire: Wire, topic: str, at: int, version: int = 12, **options: Any) -> Any:
    answer = wire.ask(FETCH, version, fetch_tree(topic, at, **options))
    return answer.responses[0].partitions[0] if answer.responses else answer
