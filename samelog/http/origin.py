"""Which requests come from a page that may ask: browsers send those of any page, with our rights.

Invariant: a page of another site can neither read nor change anything, by whatever name it calls
this host.
"""

from __future__ import annotations

from aiohttp import web

from samelog.config.values import Address, is_loopback


def host_of(request: web.Request) -> str:
    """The Host that a request names, or ""; aiohttp would make one up."""
    return request.headers.get("Host", "")


def is_of_this_host(host: str) -> bool:
    """Whether a request means this host. A page of a stranger, open in a browser here, may lead to
    its own name, which it lets mean this host: it must not get to see anything.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return bool(name) and is_loopback(Address(name.strip("[]"), 0))


def is_of_another_page(request: web.Request) -> bool:
    """Whether a browser says that a page which is not ours asks. Following a link is no asking."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != host_of(request):
        return True
    site = request.headers.get("Sec-Fetch-Site", "none")
    is_link = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    return site not in ("none", "same-origin") and not is_link
