"""Clients that send the worst requests of every protocol, as fast as they are answered: Kafka's,
samelog's own, and HTTP.

A program, too: `python -m tests.hostile_clients client.toml`, two connections of each protocol to
each node, until it is killed. Over HTTP an administrator reads; what changes a cluster is sent by
an identity without rights.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.requests import CreateTopic
from samelog.admin.table import OPERATIONS
from samelog.config.load import load_client
from samelog.config.pki.authority import CertificateRole, files_of, issue
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.runtime.network.tls import client_context, http_client_context
from samelog.wire.messages import OpenSession, encode_message
from tests.kafka.hostile_client import CONNECTIONS, PIPELINED, Address, requests, worst_frames
from tests.replicator.worst import ID, PARTITIONS, TOPIC, WorstMessages, read_frame, worst_messages

PROTOCOLS = ("kafka", "native", "http")
SENT_BYTES = 64 << 10
"""Of each kind of native message, at least."""
FIELDS = {"topic": TOPIC}
QUERIES = {"/latest-position": f"topic={TOPIC}", "/archive/plan": "policy=time(1s)"}


def open_tls(address: Address, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A connection to a node."""
    context.check_hostname = False
    return context.wrap_socket(socket.create_connection(address, 10))


def native_frames() -> list[tuple[WorstMessages, bytes]]:
    """Of each kind of message 64 frames, or as many as 64 KiB take."""
    return [
        (worst, worst.frames(max(SENT_BYTES, PIPELINED * _size(worst))))
        for worst in worst_messages()
    ]


def _size(worst: WorstMessages) -> int:
    frame = worst.each(0)
    return len(frame if isinstance(frame, bytes) else encode_message(frame, worst.channel))


def native(
    address: Address, tls: TlsFiles, kinds: Sequence[tuple[WorstMessages, bytes]], sent: list[int]
) -> None:
    """Send each kind of native message in turn, on a connection that the node then closes."""
    context = client_context(tls)
    for number in itertools.count():
        worst, frames = kinds[number % len(kinds)]
        with suppress(OSError), open_tls(address, context) as link:
            link.sendall(encode_message(worst.hello))
            if worst.channel:
                session = f"hostile-{os.getpid()}-{threading.get_ident() % 1000}"
                link.sendall(encode_message(OpenSession(worst.channel, session, ID)))
            link.sendall(b"".join(encode_message(each, worst.channel) for each in worst.first))
            for _ in (worst.hello, *worst.first):
                read_frame(link)
            link.sendall(frames)
            sent[0] += PIPELINED
            while link.recv(1 << 16):
                pass


def http_requests(*, changes: bool) -> Iterator[bytes]:
    """The longest request of each operation: of those that have a body, or of all others."""
    for operation in OPERATIONS:
        if (operation.method == "POST") != changes:
            continue
        path = operation.path.format_map(
            {name: FIELDS.get(name, "x") for name in operation.in_path}
        )
        query, body = QUERIES.get(operation.path, ""), b""
        head = f"{operation.method} {path}{'?' * bool(query)}{query} HTTP/1.1\r\nHost: x\r\n"
        if changes:
            body = json.dumps({"x": [0] * (operation.body_bytes_max // 3 - 9)}).encode()
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        yield f"{head}\r\n".encode() + body


def http(address: Address, tls: TlsFiles, frames: Sequence[bytes], sent: list[int]) -> None:
    """Send all requests in turn, 64 on each connection, whether or not answers come."""
    turns, context = itertools.cycle(frames), http_client_context(tls)
    while True:
        with suppress(OSError), open_tls(address, context) as link:
            threading.Thread(target=_read_all, args=(link,), daemon=True).start()
            for _ in range(PIPELINED):
                link.sendall(next(turns))
                sent[0] += 1


def _read_all(link: ssl.SSLSocket) -> None:
    with suppress(OSError, ValueError):
        while link.recv(1 << 16):
            pass


def stranger(config: ClientConfig) -> TlsFiles:
    """A certificate without any grant, of the authority beside the cluster's other files."""
    who = str(Path(config.tls.ca).parent), CertificateRole.SUBSCRIBER, "stranger"
    files = files_of(*who)
    if not Path(files.cert).exists():
        issue(*who)
    return TlsFiles(ca=config.tls.ca, cert=files.cert, key=files.key)


class WorstFrames(NamedTuple):
    """What is sent of each protocol; to make all of it takes some seconds."""

    kafka: Sequence[bytes]
    native: Sequence[tuple[WorstMessages, bytes]]

    @classmethod
    def of(cls, protocols: Sequence[str]) -> WorstFrames:
        """Of these protocols; HTTP's are made by `http_requests`."""
        kafka = worst_frames() if "kafka" in protocols else ()
        return cls(kafka, native_frames() if "native" in protocols else ())


def send_all(
    config: ClientConfig, protocols: Sequence[str], sent: list[int], worst: WorstFrames
) -> None:
    """Start threads that send requests of these protocols until the process ends."""
    with suppress(AdminError):  # it is there
        ask(config, CreateTopic(TOPIC, PARTITIONS, {}))
    work: list[Callable[[], None]] = []
    places = [(node.host, node.port) for node in config.nodes]
    looks, changes = list(http_requests(changes=False)), list(http_requests(changes=True))
    unknown = stranger(config)
    for place, kafka in zip(places, config.kafka_bootstrap.split(","), strict=True):
        for number in range(CONNECTIONS):
            if "kafka" in protocols:
                host, _, port = kafka.rpartition(":")
                work.append(partial(requests, (host, int(port)), worst.kafka, sent))
            if "native" in protocols:
                work.append(partial(native, place, config.tls, worst.native, sent))
            if "http" in protocols:
                who, what = (unknown, changes) if number else (config.tls, looks)
                work.append(partial(http, place, who, what, sent))
    for each in work:
        threading.Thread(target=each, daemon=True).start()


def main() -> None:
    """Send requests of all protocols until the process ends."""
    send_all(load_client(sys.argv[1]), PROTOCOLS, [0], WorstFrames.of(PROTOCOLS))
    threading.Event().wait()


if __name__ == "__main__":
    main()
