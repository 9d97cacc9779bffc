"""An HTTPS server of one configuration, with a certificate of a private authority."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from samelog.config.pki.authority import CertificateRole, create_authority, issue


@dataclass
class Answer:
    """What is answered to everybody; `hangs`: after the headers, until the server is closed."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    has_tag: bool = True
    hangs: bool = False


class ConfigServer:
    """Serves `answer` at `url`; `asked` are the headers of the requests there were."""

    def __init__(self, directory: Path) -> None:
        self.answer = Answer()
        self.asked: list[Mapping[str, str]] = []
        self.pki = str(directory / "https")
        create_authority(self.pki, "https")
        self._files = issue(self.pki, CertificateRole.NODE, "config", hosts=["127.0.0.1"])
        self._ended = threading.Event()
        self._port = 0
        self.start()

    @property
    def ca(self) -> str:
        return f"{self.pki}/ca.pem"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}/client.toml"

    def start(self) -> None:
        """Serve; on the same port as before, if there was one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._files.cert, self._files.key)
        self._ended.clear()
        self._server = _Server(("127.0.0.1", self._port), self._handler(), context)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Nobody is there any more."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(dict(self.headers))
                server._reply(self)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        return Handler

    def _reply(self, request: BaseHTTPRequestHandler) -> None:
        answer = self.answer
        tag = f'"{sha256(answer.body).hexdigest()[:16]}"'
        if answer.has_tag and answer.status == 200 and request.headers["If-None-Match"] == tag:
            request.send_response(304)
            request.end_headers()
            return
        request.send_response(answer.status)
        if answer.has_tag:
            request.send_header("ETag", tag)
        for name, value in answer.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(answer.body)))
        request.end_headers()
        if answer.hangs:
            self._ended.wait(30)
        else:
            request.wfile.write(answer.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext
    ) -> None:
        super().__init__(address, handler)
        self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust the certificate, or goes away."""
