"""Every page in headless Chromium: no error, no overflow, nothing that axe-core finds.

`make console-test` runs it; without Chromium on this host it is skipped, and says so. `python -m
tests.console.test_pages` writes the pictures of docs/ and the recorded accessibility trees anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from samelog.admin.requests import MoveLeadership
from samelog.config.tables.shared import HttpConfig, TlsFiles
from samelog.config.values import Address
from samelog.http.console import assets, producer
from samelog.http.server import HttpServer
from tests.console.chromium import Page, chromium, executable
from tests.console.seeded import BEGAN_MS, LOOKS, SeededApi

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "docs" / "pictures" / "console"
TREES = HERE / "trees"
AXE = HERE / "vendor" / "axe.min.js"
SHA256 = {
    AXE: "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
    Path("inter.woff2"): "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62",
    Path(
        "jetbrains-mono.woff2"
    ): "18be452724bfdc236c074ca94a249a7f41a86752c7d04ab258ce9ed5651f6a7e",
}
PAGES = {
    "flow": "flow",
    "topics": "topics",
    "topic": "topic/flights",
    "records": "records?topic=flights",
    "merge": "merge?topic=flights",
    "sessions": "sessions",
    "groups": "groups",
    "group": "group/dashboards",
    "nodes": "nodes",
    "archive": "archive",
    "alarms": "alarms",
    "access": "access",
}
SIZES = ((400, 900), (1600, 1000))
SCHEMES = ("light", "dark")
needs_chromium = pytest.mark.skipif(executable() is None, reason="Chromium is not installed")


@asynccontextmanager
async def console() -> AsyncIterator[tuple[Page, str, SeededApi]]:
    """A browser at a seeded node, which has said everything."""
    api, none = SeededApi(), TlsFiles(ca="", cert="", key="")
    server = HttpServer(HttpConfig(listen=Address("127.0.0.1", 0)), none, api)
    await server.start()
    try:
        async with chromium() as page:
            base = f"http://{server.address}/ui"
            await page.size(*SIZES[1])
            await page.colours("light")
            await page.go(base)
            await page.until(
                f"document.querySelector('.figures') && ({STEP}) === {BEGAN_MS + 1000 * LOOKS}"
            )
            yield page, base, api
    finally:
        await server.close()


STEP = "+document.getElementById('main').dataset.at"


async def show(page: Page, base: str, name: str) -> None:
    """Go to a page, and wait until all of it is there."""
    await page.go(f"{base}#/{PAGES[name]}")
    main = "document.getElementById('main').dataset"
    await page.until(f"{main}.page === '{name}' && {main}.ready === 'true'")
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


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "INTERVAL_S", 0.005)
    monkeypatch.setattr(producer, "SHARE", 1)


def test_what_is_vendored_is_what_it_was() -> None:
    for path, known in SHA256.items():
        data = path.read_bytes() if path == AXE else assets.assets()[path.name].body
        assert hashlib.sha256(data).hexdigest() == known, path


@needs_chromium
def test_pages_fit_and_can_be_used_by_everybody() -> None:
    asyncio.run(_check_pages())


async def _check_pages() -> None:
    axe, wrong = AXE.read_text(encoding="utf-8"), list[str]()
    async with console() as (page, base, _):
        await page.value(axe + "; true")
        for size in SIZES:
            await page.size(*size)
            for scheme in SCHEMES:
                await page.colours(scheme)
                for name in PAGES:
                    await show(page, base, name)
                    where = f"{name}, {size[0]} px, {scheme}"
                    wide = "document.documentElement.scrollWidth - innerWidth"
                    if await page.value(wide) > 0:
                        wrong.append(f"{where}: wider than the window")
                    wrong += [f"{where}: {each}" for each in await page.value(RUN_AXE)]
        assert not wrong, "\n".join(wrong)
        assert not page.problems, page.problems


RUN_AXE = """axe.run(document).then((found) => found.violations.map((each) => each.id + ': '
    + each.nodes.map((node) => node.html.slice(0, 120) + node.failureSummary).join('; ')))"""


@needs_chromium
def test_screen_readers_find_what_is_recorded() -> None:
    asyncio.run(_check_trees())


async def _check_trees() -> None:
    async with console() as (page, base, _):
        for name in PAGES:
            await show(page, base, name)
            recorded = (TREES / f"{name}.txt").read_text(encoding="utf-8")
            assert await tree(page) == recorded, f"{name}: look, then {__doc__}"


@needs_chromium
def test_a_change_is_asked_for_first() -> None:
    asyncio.run(_check_actions())


async def _check_actions() -> None:
    async with console() as (page, base, api):
        await show(page, base, "nodes")
        await page.until(
            "[...document.querySelectorAll('button')].some((b) => b.textContent === 'Lead')"
        )
        buttons = "[...document.querySelectorAll('%s button')]"
        click = buttons + ".find((each) => each.textContent === '%s').click()"
        await page.value(click % ("main", "Lead"))
        await page.until("document.getElementById('dialog').open")
        assert not any(isinstance(each, MoveLeadership) for each in api.asked)
        await page.value(click % ("dialog", "Move leadership"))
        await page.until("!document.getElementById('dialog').open")
        assert [each for each in api.asked if isinstance(each, MoveLeadership)] == [
            MoveLeadership(to="rt-1")
        ]
        assert not page.problems, page.problems


async def record() -> None:
    """Write pictures and trees."""
    producer.INTERVAL_S, producer.SHARE = 0.005, 1
    for folder in (PICTURES, TREES):
        folder.mkdir(parents=True, exist_ok=True)
    async with console() as (page, base, _):
        for name in PAGES:
            await show(page, base, name)
            (TREES / f"{name}.txt").write_text(await tree(page), encoding="utf-8")
        for width, height in ((400, 900), (1280, 860)):
            await page.size(width, height)
            for scheme in SCHEMES:
                await page.colours(scheme)
                for name in PAGES:
                    await show(page, base, name)
                    picture = await page.picture()
                    (PICTURES / f"{name}-{width}-{scheme}.png").write_bytes(picture)
        assert not page.problems, page.problems


if __name__ == "__main__":
    sys.exit(asyncio.run(record()))
