"""Pages of a seeded node in a browser: their names and sizes, and what there is to see and hear.

`python -m tests.console.showing` writes the pictures of docs/, the recorded accessibility trees and
the version of Chromium that showed them last.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image, ImageChops

from samelog.config.tables.shared import HttpConfig, TlsFiles
from samelog.config.values import Address
from samelog.http import application as http
from samelog.http.console import producer
from samelog.http.server import HttpServer
from tests.console.chromium import Page, chromium
from tests.console.seeded import BEGAN_MS, LOOKS
from tests.console.seeded_node import SeededApi

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "docs" / "pictures" / "console"
TREES = HERE / "trees"
VERSION = TREES / "chromium-version"
PAGES = {
    "flow": "flow",
    "topics": "topics",
    "topic": "topic/flights",
    "keyed": "topic/orders",
    "mirror": "topic/us.quotes",
    "view": "topic/late-flights",
    "internal": "topic/__consumer_offsets",
    "records": "records?topic=flights",
    "merge": "merge?topic=flights",
    "sessions": "sessions",
    "groups": "groups",
    "group": "group/dashboards",
    "nodes": "nodes",
    "placement": "placement",
    "archive": "archive",
    "alarms": "alarms",
    "access": "access",
}
PICTURE_SIZES = ((400, 900), (1280, 860))
SCHEMES = ("light", "dark")
WIDE = (1600, 1000)
LOOKS_ALIKE = 8
"""Of 255: so much may a colour differ."""
STEP = "+document.getElementById('main').dataset.at"
ENDS_MS = BEGAN_MS + 1000 * LOOKS
HOUR_S = 3600.0
FEW = 3
"""Looks that make rates; what shows charts, of two minutes, takes all LOOKS."""
IS_LIVE = "document.querySelector('#top .live').textContent === 'live'"


@asynccontextmanager
async def console(*, looks: int = FEW) -> AsyncIterator[tuple[Page, str, SeededApi]]:
    """A browser at a seeded node that has said so much; a slow page misses nothing of it."""
    api = SeededApi(looks)
    async with _served(api) as base, chromium() as page:
        await page.size(*WIDE)
        await page.colours("light")
        with patch.multiple(producer, INTERVAL_S=0.005, SHARE=1, READER_BYTES_MAX=1 << 30):
            await page.go(base)
            await page.until(f"document.querySelector('.figures') && ({STEP}) === {ENDS_MS}")
        yield page, base, api


@asynccontextmanager
async def _served(api: SeededApi) -> AsyncIterator[str]:
    """The address of the pages; their stream ends only with this."""
    none = TlsFiles(ca="", cert="", key="")
    server = HttpServer(HttpConfig(listen=Address("127.0.0.1", 0)), none, api)
    await server.start()
    try:
        with patch.object(producer, "STREAM_S", HOUR_S), patch.object(http, "REQUEST_S", HOUR_S):
            yield f"http://{server.address}/ui"
    finally:
        await server.close()


async def show(page: Page, base: str, name: str) -> None:
    """Go to a page, and wait until all of it is there."""
    await page.go(f"{base}#/{PAGES[name]}")
    main = "document.getElementById('main')"
    of, _, topic = PAGES[name].split("?")[0].partition("/")
    shown = f"{main}.querySelector('.page')?.dataset.key === '{of} {topic}'"
    await page.until(f"{shown} && {main}.dataset.ready === 'true' && {IS_LIVE}")
    await page.value("document.fonts.ready.then(() => true)")


async def tree(page: Page) -> str:
    """What a screen reader finds: roles and names, indented."""
    found = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    by_id = {each["nodeId"]: each for each in found}
    lines: list[str] = []

    def add(node: dict[str, Any], depth: int) -> None:
        role, name = node["role"]["value"], node.get("name", {}).get("value", "")
        is_told = not node["ignored"] and role not in ("none", "generic", "InlineTextBox")
        if is_told:
            lines.append(f"{'  ' * depth}{role} {name}".rstrip())
        for child in node.get("childIds", []):
            if child in by_id:
                add(by_id[child], depth + is_told)

    add(found[0], 0)
    return "\n".join(lines) + "\n"


async def pictures(page: Page, base: str) -> AsyncIterator[tuple[str, bytes]]:
    """File name and content of every page, in the sizes and colours of docs/."""
    for size in PICTURE_SIZES:
        await page.size(*size)
        for scheme in SCHEMES:
            await page.colours(scheme)
            for name in PAGES:
                await show(page, base, name)
                yield f"{name}-{size[0]}-{scheme}.png", await page.picture()


def difference(one: bytes, other: bytes) -> float:
    """Which share of two pictures differs; of those of two sizes, all."""
    first, second = (Image.open(io.BytesIO(each)).convert("RGB") for each in (one, other))
    if first.size != second.size:
        return 1.0
    bands = ImageChops.difference(first, second).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return sum(most.histogram()[LOOKS_ALIKE + 1 :]) / (first.width * first.height)


async def record() -> None:
    """Write pictures and trees."""
    for folder in (PICTURES, TREES):
        folder.mkdir(parents=True, exist_ok=True)
    async with console(looks=LOOKS) as (page, base, _):
        VERSION.write_text(f"{await page.version()}\n", encoding="utf-8")
        for name in PAGES:
            await show(page, base, name)
            (TREES / f"{name}.txt").write_text(await tree(page), encoding="utf-8")
        async for name, picture in pictures(page, base):
            (PICTURES / name).write_bytes(picture)
        assert not page.problems, page.problems


if __name__ == "__main__":
    sys.exit(asyncio.run(record()))
