"""The plain limit: what the machine does when nothing is decided, checked or ordered.

The same bytes take the same way as a record through samelog, in the simplest possible loop: one
writer process sends them over three TLS connections to three receivers; each receiver writes them
to two files (session and merged log), and one of them sends them on over a fourth connection to a
last process, which writes them to a file.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import socket
import ssl
import tempfile
import time

from samelog.config.pki.authority import CertificateRole, create_authority, issue

CHUNK = bytes(1 << 20)
HOST = "127.0.0.1"


def measure(megabytes: int) -> float:
    """MB/s through the whole way."""
    with tempfile.TemporaryDirectory() as directory:
        authority = create_authority(os.path.join(directory, "pki"), "plain")
        files = issue(os.path.join(directory, "pki"), CertificateRole.NODE, "plain", hosts=(HOST,))
        paths = (authority.cert, files.cert, files.key)
        last_port, last = _receiver(directory, "last", paths, forward=None, copies=1)
        receivers = [_receiver(directory, "first", paths, forward=last_port, copies=2)]
        receivers += [
            _receiver(directory, f"other{number}", paths, forward=None, copies=2)
            for number in (1, 2)
        ]
        started = time.monotonic()
        _send(paths, [port for port, _ in receivers], megabytes, os.path.join(directory, "source"))
        for _, process in (*receivers, (0, last)):
            process.join()
        return megabytes * len(CHUNK) / (time.monotonic() - started) / 1e6


def context_of(paths: tuple[str, str, str], *, server: bool) -> ssl.SSLContext:
    """Mutual TLS by these files: CA, certificate, key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(paths[0])
    context.load_cert_chain(paths[1], paths[2])
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _receiver(
    directory: str, name: str, paths: tuple[str, str, str], *, forward: int | None, copies: int
) -> tuple[int, multiprocessing.process.BaseProcess]:
    listener = socket.create_server((HOST, 0))
    process = multiprocessing.get_context("fork").Process(
        target=_receive,
        args=(listener, paths, [os.path.join(directory, f"{name}{n}") for n in range(copies)]),
        kwargs={"forward": forward},
    )
    process.start()
    port = int(listener.getsockname()[1])
    listener.close()
    return port, process


def _receive(
    listener: socket.socket, paths: tuple[str, str, str], names: list[str], *, forward: int | None
) -> None:
    outputs = [open(name, "wb", buffering=0) for name in names]  # noqa: SIM115 - ends with the process
    target = None if forward is None else connect_to(paths, forward)
    buffer = memoryview(bytearray(1 << 20))
    raw, _ = listener.accept()
    with context_of(paths, server=True).wrap_socket(raw, server_side=True) as source:
        while count := source.recv_into(buffer):
            for output in outputs:
                output.write(buffer[:count])
            if target is not None:
                target.sendall(buffer[:count])
    if target is not None:
        target.close()


def connect_to(paths: tuple[str, str, str], port: int) -> ssl.SSLSocket:
    """A connection to a port of this machine."""
    raw = socket.create_connection((HOST, port))
    return context_of(paths, server=False).wrap_socket(raw, server_hostname=HOST)


def _send(paths: tuple[str, str, str], ports: list[int], megabytes: int, name: str) -> None:
    targets = [connect_to(paths, port) for port in ports]
    with open(name, "wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(CHUNK)
            for target in targets:
                target.sendall(CHUNK)
    for target in targets:
        target.close()


if __name__ == "__main__":
    print(f"{measure(400):.0f} MB/s")
