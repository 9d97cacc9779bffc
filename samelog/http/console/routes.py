"""The requests of the console's pages: its files, and the stream of what changes.

Everything else that pages show and do, they ask as any administrator's program does.

Invariant: whoever may not see the state may have the pages' files, and nothing else.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from msgspec import Meta

from samelog.admin.requests import AdminRequest
from samelog.admin.table import Operation, WhoMayAsk
from samelog.http.console.assets import INDEX, PAGES, Asset, assets
from samelog.http.console.producer import READERS_MAX, Producer, TooManyReaders
from samelog.http.routes import EventStream, HttpProblem, Route


class GetConsole(AdminRequest[Asset], frozen=True):
    """The page."""


class GetConsoleFile(AdminRequest[Asset], frozen=True):
    """What the page loads."""

    file: Annotated[str, Meta(max_length=100)]


class GetConsoleEvents(AdminRequest[EventStream], frozen=True):
    """What there is to show, and what changes."""


NOT_FOUND = (HTTPStatus.NOT_FOUND,)
ANY_IDENTITY, READER = WhoMayAsk.ANY_IDENTITY, WhoMayAsk.READER
PAGE_OPERATIONS = tuple(
    Operation("GET", place, "The console.", ANY_IDENTITY, GetConsole, for_browsers=True)
    for place in PAGES
)
EVENTS = Operation(
    "GET",
    "/ui/events",
    "What the console shows, live.",
    READER,
    GetConsoleEvents,
    for_browsers=True,
)
FILE = Operation(
    "GET",
    "/ui/{file}",
    "A file of the console.",
    ANY_IDENTITY,
    GetConsoleFile,
    NOT_FOUND,
    for_browsers=True,
)


async def page(request: GetConsole, identity: str) -> Asset:
    """The page."""
    return assets()[INDEX]


async def file(request: GetConsoleFile, identity: str) -> Asset:
    """A file of it. Raises HttpProblem."""
    found = assets().get(request.file)
    if found is None:
        raise HttpProblem(HTTPStatus.NOT_FOUND, f"the console has no file {request.file!r}")
    return found


FILE_ROUTES = (*(Route(each, page) for each in PAGE_OPERATIONS), Route(FILE, file))


def console_routes(producer: Producer) -> tuple[Route, ...]:
    """The pages of one node."""

    async def events(request: GetConsoleEvents, identity: str) -> EventStream:
        try:
            return EventStream(producer.open())
        except TooManyReaders as error:
            text = f"{READERS_MAX} browsers look at this node already"
            raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, text) from error

    return (Route(EVENTS, events), *FILE_ROUTES)
