"""Ships the sessions of publishers that only write local files: every one below a directory.

A new session is noticed with watchdog, and by looking now and then. A session that somebody else
ships (an embedded publisher) is left alone, and taken over when that one ends.

Invariant: one push client for each session; a session that cannot be shipped keeps no other
waiting.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from shiplog.config.types import ClientConfig
from shiplog.logformat.errors import DirectoryInUse, LogFormatError
from shiplog.logformat.files import File, FileSystem
from shiplog.logformat.session_dir import SESSION_FILE
from shiplog.publisher.ship_lock import lock_shipping
from shiplog.replicator.push_client import PushClient
from shiplog.runtime.clock import Clock
from shiplog.runtime.loop import spawn
from shiplog.runtime.tls import ReloadingContext
from shiplog.runtime.watch import FileWatch

log = logging.getLogger(__name__)

LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class _Shipped:
    """A session that is shipped here."""

    client: PushClient
    lock: File


class PublisherSidecar:
    """Ships the sessions below `root`. All calls and callbacks are in its event loop."""

    def __init__(
        self,
        root: str,
        config: ClientConfig,
        *,
        tls: ReloadingContext,
        fs: FileSystem,
        clock: Clock,
        random: Random,
        on_progress: Callable[[str], None] = lambda path: None,
    ) -> None:
        """`on_progress` is called with a session's directory when its positions moved."""
        self._root = root
        self._config = config
        self._tls = tls
        self._fs = fs
        self._clock = clock
        self._random = random
        self._on_progress = on_progress
        self._shipped: dict[str, _Shipped] = {}
        self._others: set[str] = set()
        self._watch: FileWatch | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def clients(self) -> Mapping[str, PushClient]:
        """The push clients, by their session's directory."""
        return {path: shipped.client for path, shipped in self._shipped.items()}

    def start(self) -> None:
        """Begin, in the running event loop. Raises OSError when the root cannot be watched."""
        os.makedirs(self._root, mode=0o700, exist_ok=True)
        self._watch = FileWatch([os.path.join(self._root, SESSION_FILE)], self.look)
        self.look()
        self._task = spawn(self._look_often(), "publisher sidecar")

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Take up sessions that are new, or that nobody else ships any more."""
        for path in find_sessions(self._root):
            if path not in self._shipped:
                self._take_up(path)

    def _take_up(self, path: str) -> None:
        try:
            lock = lock_shipping(self._fs, path)
        except DirectoryInUse as error:
            if path not in self._others:
                log.info("%s is left alone: %s", path, error)
            self._others.add(path)
            return
        except LogFormatError as error:
            log.error("%s cannot be shipped: %s", path, error)
            return
        self._others.discard(path)
        client = PushClient(
            path,
            self._config,
            tls=self._tls,
            fs=self._fs,
            clock=self._clock,
            random=self._random,
            on_progress=lambda: self._on_progress(path),
        )
        client.start()
        self._shipped[path] = _Shipped(client, lock)
        log.info("shipping %s", path)

    async def stop(self) -> None:
        """Ship no more."""
        if self._watch is not None:
            self._watch.close()
        if self._task is not None:
            self._task.cancel()
        for shipped in self._shipped.values():
            await shipped.client.stop()
            shipped.lock.close()
        self._shipped.clear()


def find_sessions(root: str) -> Iterator[str]:
    """The session directories at or below `root`; none lies within another. Follows no links."""
    for directory, names, files in os.walk(root):
        if SESSION_FILE in files:
            names.clear()
            yield directory
