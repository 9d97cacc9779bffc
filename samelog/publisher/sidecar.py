"""Ships the sessions of publishers that only write local files: every one below a directory.

A new session is noticed with watchdog, and by looking now and then. A session that somebody else
ships (an embedded publisher) is left alone, and taken over when that one ends. A session whose
directory was away (removed, unmounted) is opened again when a directory of its name is back: it may
be another one.

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

from samelog.admin.known_schemas import KnownSchemas
from samelog.config.tables.client import ClientConfig
from samelog.format.errors import DirectoryInUse, LogFormatError
from samelog.format.file_names import SESSION_FILE
from samelog.publisher.shipper import lock_shipping
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.connections import PushConnections
from samelog.runtime.clock import Clock
from samelog.runtime.loop import spawn
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.used_directory import UsedDirectory
from samelog.runtime.watch import FileWatch
from samelog.store.disk.files import File, FileSystem
from samelog.store.session.directory import SessionDirectory

log = logging.getLogger(__name__)

RESCAN_S = 2.0
RESCAN_SHARE = 0.02
"""Share of the time that looking at all directories may take, however many there are."""


@dataclass(slots=True)
class _Shipped:
    """A session that is shipped here. `was_away`: its directory was not there any more."""

    client: PushClient
    lock: File
    id: str
    identity: tuple[int, int]
    was_away: bool = False


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
        """`on_progress` is called with a session's directory when its positions moved.

        Raises DirectoryUnusable.
        """
        self.directory = UsedDirectory(fs, root, self._has_known_sessions)
        self.faults: dict[str, str] = {}
        """Session directory -> why it cannot be shipped."""
        self._root = root
        self._config = config
        self._tls = tls
        self._fs = fs
        self._connections = PushConnections(clock, random)
        self._on_progress = on_progress
        self._shipped: dict[str, _Shipped] = {}
        self._known: set[str] = set()
        """The ids of the sessions that there were when the directory was there last."""
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._others: set[str] = set()
        self._watch: FileWatch | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def clients(self) -> Mapping[str, PushClient]:
        """The push clients, by their session's directory."""
        return {path: shipped.client for path, shipped in self._shipped.items()}

    def start(self) -> None:
        """Begin, in the running event loop. Raises OSError when the root cannot be watched."""
        self._watch = FileWatch([os.path.join(self._root, SESSION_FILE)], self._root_changed)
        self.rescan()
        self._task = spawn(self._rescan_often(), "publisher sidecar")

    async def _rescan_often(self) -> None:
        now, took_s = self._connections.clock.now, 0.0
        while True:
            await asyncio.sleep(rescan_pause_s(took_s))
            begun = now()
            self.rescan()
            took_s = now() - begun

    def _root_changed(self) -> None:
        """Take up new sessions in the root itself; others, and what has gone, `rescan` finds."""
        try:
            names = set(os.listdir(self._root))
        except OSError:
            names = {SESSION_FILE}
        if SESSION_FILE in names:
            self._rescan_sessions()
            return
        known = self._shipped.keys() | self._ending.keys() | self._others | self.faults.keys()
        for path in sorted({os.path.join(self._root, name) for name in names} - known):
            if os.path.exists(os.path.join(path, SESSION_FILE)):
                self._take_up(path)

    def rescan(self) -> None:
        """Look at the directory, and take up sessions that are new, or that nobody else ships any
        more.
        """
        self.directory.check()
        self._rescan_sessions()
        if self.directory.is_unchanged():  # then it is in it that nobody found the others
            self._known = {each.id for each in self._shipped.values() if not each.was_away}

    def _rescan_sessions(self) -> None:
        found = set(find_sessions(self._root))
        for path, shipped in tuple(self._shipped.items()):
            if path not in found:
                shipped.was_away = True
            elif shipped.was_away or self._is_another(path, shipped):
                self._let_go(path)
        for path in self.faults.keys() - found:
            del self.faults[path]
        for path in sorted(found):
            if path not in self._shipped and path not in self._ending:
                self._take_up(path)

    # --- sessions that come and go ------------------------------------------------------------

    def _has_known_sessions(self) -> bool:
        """Whether a session that was shipped lies below the root; or none was."""
        return not self._known or any(map(self._is_known, find_sessions(self._root)))

    def _is_known(self, path: str) -> bool:
        try:
            return SessionDirectory.open(self._fs, path).record.id in self._known
        except LogFormatError:
            return False

    def _is_another(self, path: str, shipped: _Shipped) -> bool:
        try:
            return self._fs.identity(path) != shipped.identity
        except LogFormatError:
            return True

    def _let_go(self, path: str) -> None:
        """Ship a session's former directory no more; what is there now is looked at afterwards."""
        log.warning("%s was away, or is another directory: it is opened again", path)
        self._ending[path] = spawn(self._end(path, self._shipped.pop(path)), "end of shipping")

    async def _end(self, path: str, shipped: _Shipped) -> None:
        await shipped.client.stop()
        shipped.lock.close()
        del self._ending[path]
        if self._task is not None:
            self._rescan_sessions()

    def _take_up(self, path: str) -> None:
        try:
            self._ship(path)
        except DirectoryInUse as error:
            if path not in self._others:
                log.info("%s is left alone: %s", path, error)
            self._others.add(path)
        except LogFormatError as error:
            if self.faults.get(path) != str(error):
                log.error("%s cannot be shipped: %s", path, error)
            self.faults[path] = str(error)

    def _ship(self, path: str) -> None:
        identity = self._fs.identity(path)
        record = SessionDirectory.open(self._fs, path).record
        lock = lock_shipping(self._fs, path)
        self._others.discard(path)
        self.faults.pop(path, None)
        client = PushClient(
            path,
            self._config,
            connections=self._connections,
            tls=self._tls,
            fs=self._fs,
            on_progress=lambda: self._on_progress(path),
        )
        schemas = KnownSchemas(self._fs, path, None)  # as the session's publisher knows them
        client.beside.recreation.on_left = schemas.forget
        client.start()
        self._shipped[path] = _Shipped(client, lock, record.id, identity)
        log.info("shipping %s", path)

    def apply_config(self, config: ClientConfig) -> None:
        """Use another configuration from now on."""
        self._config = config
        for client in self.clients.values():
            client.follow(config)

    async def stop(self) -> None:
        """Stop shipping."""
        if self._watch is not None:
            self._watch.close()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for shipped in self._shipped.values():
            await shipped.client.stop()
            shipped.lock.close()
        self._shipped.clear()
        await asyncio.gather(*self._ending.values())


def rescan_pause_s(took_s: float) -> float:
    """Return how long to wait before all directories are looked at again, which took so long."""
    return max(RESCAN_S, took_s / RESCAN_SHARE)


def find_sessions(root: str) -> Iterator[str]:
    """The session directories at or below `root`; none lies within another. Follows no links."""
    for directory, names, files in os.walk(root):
        if SESSION_FILE in files:
            names.clear()
            yield directory
