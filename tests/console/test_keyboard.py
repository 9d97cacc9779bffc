"""All that pages have can be reached and done by keyboard alone, and is seen to be reached."""

from __future__ import annotations

import asyncio

from samelog.admin.requests import MoveLeadership
from tests.console.chromium import Page, needs_chromium
from tests.console.showing import PAGES, console, show

STEPS_MAX = 200
FOCUSED = "document.activeElement.textContent.trim()"
IS_SEEN = """((style) => document.activeElement === document.body
    || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1)
)(getComputedStyle(document.activeElement))"""
REACHABLE = """[...document.querySelectorAll('a, button, input, select, summary, [tabindex="0"]')]
    .filter((each) => each.checkVisibility()).length"""
REACHED = f"""(() => {{
    window.reached ??= new Set();
    window.reached.add(document.activeElement);
    return [{IS_SEEN}, window.reached.size];
}})()"""


async def fresh(page: Page, base: str, name: str) -> None:
    """Reload a page: nothing of it has the focus."""
    await page.go("about:blank")
    await page.until("!document.getElementById('main')")
    await page.go(f"{base}#/{PAGES[name]}")
    await page.until("document.getElementById('main')")
    await show(page, base, name)


async def tab_to(page: Page, label: str) -> None:
    """Press Tab until what has this text has the focus."""
    for _ in range(STEPS_MAX):
        await page.press("Tab")
        is_seen, focused = await page.value(f"[{IS_SEEN}, {FOCUSED}]")
        assert is_seen, await page.value("document.activeElement.outerHTML")
        if focused == label:
            return
    raise AssertionError(f"{label} cannot be reached")


@needs_chromium
def test_everything_on_every_page_can_be_reached() -> None:
    asyncio.run(_check_reach())


async def _check_reach() -> None:
    async with console() as (page, base, _):
        for name in PAGES:
            await fresh(page, base, name)
            wanted, reached = await page.value(REACHABLE), 0
            for _ in range(wanted):
                await page.press("Tab")
                is_seen, reached = await page.value(REACHED)
                assert is_seen, await page.value("document.activeElement.outerHTML")
            assert reached >= wanted, name
        assert not page.problems, page.problems


@needs_chromium
def test_a_page_is_opened_and_a_change_made_without_a_mouse() -> None:
    asyncio.run(_check_change())


async def _check_change() -> None:
    async with console() as (page, base, api):
        await fresh(page, base, "flow")
        await page.press("Tab")
        assert await page.value(FOCUSED) == "Skip to the page"
        await tab_to(page, "Nodes3")
        await page.press("Enter")
        await page.until("document.activeElement.id === 'main' && location.hash === '#/nodes'")
        await page.until(
            "[...document.querySelectorAll('button')].some((b) => b.textContent === 'Lead')"
        )
        await tab_to(page, "Lead")
        await page.press("Enter")
        await page.until("document.getElementById('dialog').contains(document.activeElement)")
        await page.press("Escape")
        await page.until("!document.getElementById('dialog').open")
        assert await page.value(FOCUSED) == "Lead"
        assert not any(isinstance(each, MoveLeadership) for each in api.asked)
        await page.press("Enter")
        await tab_to(page, "Move leadership")
        await page.press("Enter")
        await page.until("!document.getElementById('dialog').open")
        assert MoveLeadership(to="rt-1") in api.asked
        assert await page.value("document.getElementById('said').textContent") != ""
        assert not page.problems, page.problems


@needs_chromium
def test_the_menu_of_small_screens_opens_and_closes() -> None:
    asyncio.run(_check_menu())


async def _check_menu() -> None:
    async with console() as (page, base, _):
        await page.size(400, 900)
        await fresh(page, base, "flow")
        await tab_to(page, "Menu")
        expanded = "document.activeElement.getAttribute('aria-expanded')"
        for key, is_open in (("Enter", "true"), ("Escape", "false"), ("Enter", "true")):
            await page.press(key)
            await page.until(f"{expanded} === '{is_open}'")
            assert await page.value(FOCUSED) == "Menu"
        await tab_to(page, "Alarms2")
        await page.press("Enter")
        await page.until("document.getElementById('main').dataset.page === 'alarms'")
        assert not await page.value("document.getElementById('nav').checkVisibility()")


@needs_chromium
def test_what_a_table_has_too_much_of_scrolls_by_arrows() -> None:
    asyncio.run(_check_scroll())


async def _check_scroll() -> None:
    async with console() as (page, base, _):
        await page.size(400, 900)
        await show(page, base, "alarms")
        await page.value("document.querySelector('summary').focus()")
        await page.press("Enter")
        await page.until("!document.querySelector('details').open")
        await show(page, base, "topics")
        table = "document.querySelector('.scroll')"
        await page.value(f"{table}.focus()")
        await page.press("ArrowRight")
        await page.until(f"{table}.scrollLeft > 0")
