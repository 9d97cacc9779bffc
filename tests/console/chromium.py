"""A headless Chromium of this host, driven by its own protocol over one WebSocket."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests import tiers
from tests.patience import PATIENCE_S

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-back-forward-cache",  # a page that was left would keep its stream: a host has six
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--force-device-scale-factor=1",
    "--remote-debugging-port=0",
    "about:blank",
)
POLL_S = 0.05
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "ArrowRight": (39, "")}
"""Of a key: its number, and what it types."""
LOUD = ("error", "warning", "assert")


def executable() -> str | None:
    """Where it is; None: this host has none."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


needs_chromium = pytest.mark.usefixtures("starts_browser")


class Page:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._next = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []
        """What the page wrote into its console as an error or a warning, or threw."""

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for message in self._socket:
            found = json.loads(message.data)
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            elif found["method"] == "Runtime.exceptionThrown":
                details = found["params"]["exceptionDetails"]
                self.problems.append(str(details.get("exception", details).get("description")))
            elif found["method"] == "Log.entryAdded":
                entry = found["params"]["entry"]
                if entry["level"] in LOUD:
                    self.problems.append(f"{entry['text']} {entry.get('url', '')}")
            elif found["method"] == "Runtime.consoleAPICalled":
                kind, told = found["params"]["type"], found["params"]["args"]
                self.problems += [json.dumps(told)] if kind in LOUD else []

    async def call(self, method: str, **parameters: Any) -> Any:
        """What the browser answers."""
        self._next += 1
        answer = self._answers[self._next] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._next, "method": method, "params": parameters})
        async with asyncio.timeout(PATIENCE_S):
            found = await answer
        assert "error" not in found, (method, found["error"])
        return found["result"]

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript is, once it is."""
        options = {"returnByValue": True, "awaitPromise": True}
        found = await self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.value(f"Boolean({expression})"):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    async def version(self) -> str:
        """Of the browser."""
        return str((await self.call("Browser.getVersion"))["product"]).rpartition("/")[2]

    async def go(self, address: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=address)

    async def size(self, width: int, height: int) -> None:
        """Be so large."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def colours(self, scheme: str) -> None:
        """Prefer light or dark, and no motion."""
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        given = [{"name": name, "value": value} for name, value in features.items()]
        await self.call("Emulation.setEmulatedMedia", features=given)

    async def press(self, key: str) -> None:
        """Press a key of KEYS, and let it go."""
        code, text = KEYS[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await asyncio.gather(
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **given),
            self.call("Input.dispatchKeyEvent", type="keyUp", **given),
        )

    async def picture(self) -> bytes:
        """What it looks like now, all of it, as PNG."""
        found = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])


@asynccontextmanager
async def chromium() -> AsyncIterator[Page]:
    """A browser with one page."""
    tiers.require("starts_browser")
    program = executable()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--user-data-dir={directory}",
            *FLAGS,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                port = await _port(process)
            async with aiohttp.ClientSession() as session, _page(session, port) as page:
                yield page
        finally:
            process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> int:
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(b"DevTools listening on "):
            return int(line.split(b":")[2].split(b"/")[0])
    raise AssertionError("the browser has ended")


@asynccontextmanager
async def _page(session: aiohttp.ClientSession, port: int) -> AsyncIterator[Page]:
    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
        (target,) = [each for each in await answer.json() if each["type"] == "page"]
    async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
        page = Page(socket)
        listening = asyncio.create_task(page.listen())
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            await page.call(f"{domain}.enable")
        # What has the focus is to look so, whether or not the browser takes itself to have it.
        await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        yield page
        listening.cancel()
