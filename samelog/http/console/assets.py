"""The files of the console's pages: read once, served with headers that let them do little.

Invariant: a page runs only scripts and styles of its own origin, and is shown in no other page;
only files that were there when the process started are served, by their names.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec
from aiohttp import web

CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
}
"""By the end of a file's name; other files are not served."""
SERVER = "samelog"
"""Without versions, which would tell a stranger what to try."""
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
INDEX = "index.html"
PAGES = ("/ui", "/ui/", "/")
"""Where the page is: wherever people who were told of a port look for it."""


class Asset(msgspec.Struct, frozen=True):
    """A file of the pages."""

    body: bytes
    content_type: str

    def response(self) -> web.Response:
        """The file as an answer, which browsers do not keep: a node may be upgraded."""
        headers = {"Content-Type": self.content_type, "Cache-Control": "no-cache"}
        return web.Response(body=self.body, headers=headers)


async def secure(request: web.Request, response: web.StreamResponse) -> None:
    """Let a page do little, whatever the answer is."""
    response.headers.update(SECURITY_HEADERS)
    response.headers["Server"] = SERVER


@cache
def assets() -> dict[str, Asset]:
    """Name -> file."""
    found = {}
    for each in files(__package__).joinpath("files").iterdir():
        kind = CONTENT_TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            found[each.name] = Asset(each.read_bytes(), kind)
    return found
