"""Every page in headless Chromium: no error, no overflow, nothing that axe-core finds, and it looks
as in docs/.

`make console-test` runs it; without Chromium on this host it is skipped, and says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image

from samelog.admin import placement_requests as place
from samelog.admin.mirror_requests import PromoteTopics
from samelog.admin.requests import (
    AdminRequest,
    AlterTopic,
    CreateView,
    MoveLeadership,
    PeekRecords,
    TruncatePartition,
)
from samelog.http.console import assets
from samelog.http.routes import problem_of
from samelog.wire.errors import FaultCode
from tests.console import seeded, seeded_answers
from tests.console.chromium import Page, needs_chromium
from tests.console.seeded import LOOKS, MIRROR, TOPICS, VIEW
from tests.console.showing import (
    HERE,
    PAGES,
    PICTURES,
    SCHEMES,
    TREES,
    VERSION,
    WIDE,
    console,
    difference,
    pictures,
    show,
    tree,
)

AXE = HERE / "vendor" / "axe.min.js"
SHA256 = {
    AXE: "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
    Path("inter.woff2"): "3100e775e8616cd2611beecfa23a4263d7037586789b43f035236a2e6fbd4c62",
    Path(
        "jetbrains-mono.woff2"
    ): "18be452724bfdc236c074ca94a249a7f41a86752c7d04ab258ce9ed5651f6a7e",
}
SIZES = ((400, 900), WIDE)
DIFFERS_MAX = 0.005
WRITTEN = HERE.parent.parent / "build" / "console"


def test_what_is_vendored_is_what_it_was() -> None:
    for path, known in SHA256.items():
        data = path.read_bytes() if path == AXE else assets.assets()[path.name].body
        assert hashlib.sha256(data).hexdigest() == known, path


@needs_chromium
def test_pages_fit_and_can_be_used_by_everybody() -> None:
    asyncio.run(_check_pages())


async def _check_pages() -> None:
    axe, wrong = AXE.read_text(encoding="utf-8"), list[str]()
    async with console(looks=LOOKS) as (page, base, _):
        await page.value(axe + "; true")
        for size in SIZES:
            await page.size(*size)
            for scheme in SCHEMES:
                await page.colours(scheme)
                for name in PAGES:
                    await show(page, base, name)
                    found = await _problems(page, ALL if scheme == SCHEMES[0] else COLOURS)
                    wrong += [f"{name}, {size[0]} px, {scheme}: {each}" for each in found]
        assert not wrong, "\n".join(wrong)
        assert not page.problems, page.problems


ALL: dict[str, Any] = {}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""Of another scheme: nothing else differs, as the page's elements are the same."""
RUN_AXE = """axe.run(document, %s).then((found) => found.violations.map((each) => each.id + ': '
    + each.nodes.map((node) => node.html.slice(0, 120) + node.failureSummary).join('; ')))"""


async def _problems(page: Page, rules: dict[str, Any]) -> list[str]:
    """Of the page that is shown."""
    is_wide = await page.value("document.documentElement.scrollWidth > innerWidth")
    found = await page.value(RUN_AXE % json.dumps(rules))
    return [*(["wider than the window"] if is_wide else []), *found]


@needs_chromium
def test_screen_readers_find_what_is_recorded() -> None:
    asyncio.run(_check_trees())


async def _check_trees() -> None:
    async with console(looks=LOOKS) as (page, base, _):
        for name in PAGES:
            await show(page, base, name)
            recorded = (TREES / f"{name}.txt").read_text(encoding="utf-8")
            assert await tree(page) == recorded, f"{name}: look, then make console-test --record"


def test_what_differs_in_a_picture_is_counted() -> None:
    plain = Image.new("RGB", (100, 100), (250, 250, 250))
    other = plain.copy()
    other.paste((250, 250, 240), (0, 0, 10, 6))  # to be seen
    other.paste((250, 245, 250), (50, 0, 60, 10))  # not to be seen
    assert difference(png(plain), png(plain)) == 0
    assert difference(png(plain), png(other)) == 0.006
    assert difference(png(plain), png(plain.crop((0, 0, 100, 99)))) == 1


def png(picture: Image.Image) -> bytes:
    """As a file."""
    into = io.BytesIO()
    picture.save(into, "PNG")
    return into.getvalue()


@needs_chromium
def test_pages_look_as_in_the_docs() -> None:
    asyncio.run(_check_pictures())


async def _check_pictures() -> None:
    """Another version of Chromium draws otherwise: its pictures are only written."""
    WRITTEN.mkdir(parents=True, exist_ok=True)
    async with console(looks=LOOKS) as (page, base, _):
        is_recorded = await page.version() == VERSION.read_text(encoding="utf-8").strip()
        differ = {}
        async for name, picture in pictures(page, base):
            (WRITTEN / name).write_bytes(picture)
            share = difference(picture, (PICTURES / name).read_bytes())
            if is_recorded and share > DIFFERS_MAX:
                differ[name] = share
        assert not differ, f"look at {WRITTEN}"


@needs_chromium
def test_a_topic_says_which_partitions_groups_hold_back() -> None:
    asyncio.run(_check_held())


async def _check_held() -> None:
    async with console() as (page, base, _):
        await page.go(f"{base}#/topic/telemetry")
        text = "document.getElementById('main').textContent"
        await page.until(f"{text}.includes('a consumer group has not read it: partition 0, 1.')")
        assert not page.problems, page.problems


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


@needs_chromium
def test_members_of_a_host_are_listed_beside_each_other() -> None:
    asyncio.run(_check_hosts())


async def _check_hosts() -> None:
    hosts, original = {"rt-1": "a", "rt-2": "b", "rt-3": "a"}, seeded._node
    given = lambda name, *of: original(name, *of) | {"host": hosts[name]}  # noqa: E731
    with patch.object(seeded, "_node", given):
        async with console() as (page, base, _):
            await show(page, base, "nodes")
            members = (
                "[...document.querySelectorAll('table')].find((t) => t.innerText.includes('rt-3'))"
            )
            firsts = "(row) => [...row.cells].slice(0, 2).map((cell) => cell.textContent)"
            cells = f"[...{members}.tBodies[0].rows].map({firsts})"
            assert await page.value(cells) == [["a", "rt-1"], ["a", "rt-3"], ["b", "rt-2"]]
            assert not page.problems, page.problems


@needs_chromium
def test_tasks_and_nodes_are_changed_by_their_buttons() -> None:
    asyncio.run(_check_placement())


async def _check_placement() -> None:
    async with console() as (page, base, api):
        await show(page, base, "placement")
        buttons = "[...document.querySelectorAll('%s button')]"
        one = buttons + ".find((each) => each.textContent === '%s')"
        given = (
            ("Cancel", "Cancel the task", place.CancelTask(12)),
            ("Resume", "Resume", place.ResumeTask(13)),
            ("Begin no tasks", "Begin none", place.PauseTask()),
            ("Drain", "Drain", place.DrainNode("rt-1")),
            ("Let it have replicas", "Let it", place.DrainNode("rt-3", ends=True)),
            ("Balance", "Balance", place.BalanceCluster()),
        )
        for label, confirm, request in given:
            await page.until(f"({one % ('main', label)})")
            await page.value(f"({one % ('main', label)}).click()")
            await page.until("document.getElementById('dialog').open")
            await page.value(f"({one % ('dialog', confirm)}).click()")
            await page.until("!document.getElementById('dialog').open")
            assert request in api.asked, label
        assert not page.problems, page.problems


CHANGES: tuple[tuple[str, str, str, dict[str, str], list[AdminRequest[Any]]], ...] = (
    ("topic", "Change settings", "Change", {"copies": "2"}, [AlterTopic("flights", {}, (), 2)]),
    (
        "topic",
        "Empty",
        "Empty for good",
        {"confirmed": "flights"},
        [
            TruncatePartition("flights", each, confirm="flights")
            for each in range(TOPICS["flights"])
        ],
    ),
    (
        "topic",
        "Empty",
        "Empty for good",
        {"confirmed": "flights", "partition": "2"},
        [TruncatePartition("flights", 2, confirm="flights")],
    ),
    (
        "mirror",
        "Promote",
        "Promote for good",
        {"confirmed": MIRROR},
        [PromoteTopics((MIRROR,), confirm=MIRROR)],
    ),
    (
        "topics",
        "Create a view",
        "Create",
        {"view": VIEW, "query": "SELECT * FROM flights"},
        [CreateView(VIEW, "SELECT * FROM flights")],
    ),
)
"""Page, button, the dialog's button, what is filled in, and what is asked for then."""


@needs_chromium
def test_topics_views_and_mirrors_are_changed_by_their_buttons() -> None:
    asyncio.run(_check_topics())


async def _check_topics() -> None:
    one = "[...document.querySelectorAll('%s button')].find((each) => each.textContent === '%s')"
    kinds = tuple({type(each) for *_, wanted in CHANGES for each in wanted})
    async with console() as (page, base, api):
        for name, label, confirm, given, wanted in CHANGES:
            await show(page, base, name)
            before = len(api.asked)
            await page.until(one % ("main", label))
            await page.value((one + ".click()") % ("main", label))
            await page.until("document.getElementById('dialog').open")
            for field, text in given.items():
                place = f"document.getElementById('field-{field}')"
                await page.value(f"{place}.value = {json.dumps(text)}")
            await page.value((one + ".click()") % ("dialog", confirm))
            await page.until("!document.getElementById('dialog').open")
            assert [each for each in api.asked[before:] if isinstance(each, kinds)] == wanted
        assert not page.problems, page.problems


@needs_chromium
def test_records_of_a_view_are_looked_for_among_many() -> None:
    asyncio.run(_check_view_records())


async def _check_view_records() -> None:
    """Also by a page that asks before the node has said which views there are."""
    wanted = PeekRecords(VIEW, 0, last=100_000, limit=50)
    async with console() as (page, base, api):
        for _ in range(2):
            before = len(api.asked)
            await page.go(f"{base}#/records?topic={VIEW}")
            await page.until("document.querySelector('.record')")
            assert wanted in api.asked[before:]
            await page.go("about:blank")
        assert not page.problems, page.problems


@needs_chromium
def test_a_node_that_may_not_do_it_says_who_may() -> None:
    def refuse(request: MoveLeadership) -> object:
        raise problem_of(FaultCode.NOT_LEADER, "rt-1 does not lead: ask rt-2", leader="rt-2")

    with patch.dict(seeded_answers.ANSWERS, {MoveLeadership: refuse}):
        asyncio.run(_check_refusal())


async def _check_refusal() -> None:
    async with console() as (page, base, _):
        await show(page, base, "nodes")
        click = "[...document.querySelectorAll('%s button')].find((b) => b.textContent === '%s')"
        await page.until(click % ("main", "Lead"))
        await page.value((click + ".click()") % ("main", "Lead"))
        await page.value((click + ".click()") % ("dialog", "Move leadership"))
        told = "document.querySelector('dialog .problem').textContent"
        await page.until(f"{told}.includes('Open the console of rt-2')")


@needs_chromium
def test_records_are_shown_as_they_are() -> None:
    asyncio.run(_check_records())


async def _check_records() -> None:
    """By the topic's types, with every digit; as bytes where they are no text."""
    async with console() as (page, base, _):
        await show(page, base, "records")
        text = "document.querySelectorAll('.record')[%d].querySelector('.whole').textContent"
        typed, binary = await page.value(text % 0), await page.value(text % 7)
        assert "flightint321400" in typed, "name, type and value of a field"
        assert "delayint32–" in await page.value(text % 1), "a field that is not there"
        assert '"id": 9007199254740993' in typed, "more digits than a number of JavaScript has"
        assert "00 01 02 03" in binary
        assert "Text" not in binary
        assert not page.problems, page.problems


@needs_chromium
def test_what_a_reader_has_closed_stays_closed() -> None:
    asyncio.run(_check_closed())


async def _check_closed() -> None:
    async with console() as (page, base, _):
        await show(page, base, "alarms")
        await page.value("document.querySelector('details').open = false")
        await page.value("dispatchEvent(new HashChangeEvent('hashchange'))")  # it is redrawn
        await page.until("document.getElementById('main').dataset.ready === 'true'")
        opened = "[...document.querySelectorAll('details')].map((each) => each.open)"
        first, *others = await page.value(opened)
        assert not first
        assert others
        assert all(others)
