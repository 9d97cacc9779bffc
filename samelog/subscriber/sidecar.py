"""Keeps copies of topics for subscribers that only read local files.

While the directory is away (removed, unmounted) nothing is copied and all files are let go of; when
it is back, the copies in it are reopened, and continue where they end. On a full disk copying is
tried again and again: what does not fit ends the connection, not the copy.

Invariant: as for the pull client: one process keeps the copies of a directory, and a copy is a
prefix of the cluster's log from where it begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from random import Random

from samelog.config.tables.client import ClientConfig
from samelog.format.errors import LogFormatError
from samelog.replicator.client_errors import TopicDeleted
from samelog.replicator.interfaces import InputName
from samelog.replicator.pull.client import PullClient
from samelog.replicator.pull.copy import Copy
from samelog.replicator.pull.options import PullOptions, PullParts, PullStatus
from samelog.runtime.clock import Clock
from samelog.runtime.disk.syncer import GroupSync
from samelog.runtime.loop import spawn
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.used_directory import UsedDirectory
from samelog.store.disk.files import FileSystem
from samelog.store.merged.partition_file import find_partition_directories
from samelog.wire.messages import Start
from samelog.wire.pull.copies import EARLIEST, CopyState, StartAt

log = logging.getLogger(__name__)

LATEST = StartAt(Start.LATEST)
KEPT = "its copy is kept; to copy a new topic of this name, move it away and restart the sidecar"
CHECK_S = 1.0


class SubscriberSidecar:
    """Copies topics into a directory. All calls and callbacks are in its event loop."""

    def __init__(
        self,
        directory: str,
        topics: tuple[str, ...],
        config: ClientConfig,
        *,
        fs: FileSystem,
        clock: Clock,
        random: Random,
        from_latest: bool = False,
        on_change: Callable[[Copy], None] = lambda copy: None,
    ) -> None:
        """`from_latest`: a copy that does not exist yet begins at the end, not at the beginning.

        Raises DirectoryUnusable; TlsFault: the certificate files cannot be used.
        """
        self.directory = UsedDirectory(fs, directory, self._has_known_copies)
        self.copies: Mapping[InputName, Copy] = _Copies(self)
        """(topic, partition) -> copy, as they are at any time; none while they cannot be had."""
        self.client: PullClient | None = None
        """None: while the directory is away."""
        self._syncer: GroupSync | None = None
        self.topics = topics
        self._config = config
        self._tls = ReloadingContext(config.tls)
        self._fs = fs
        self._clock = clock
        self._random = random
        self._start = LATEST if from_latest else EARLIEST
        self._on_change = on_change
        self._known: set[tuple[str, int, str]] = set()
        """The copies there were: topic, partition, topic id."""
        self._fault = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def status(self) -> PullStatus | None:
        """How copying is; None: there is nothing to copy into."""
        return None if self.client is None else self.client.status

    @property
    def fault(self) -> str:
        """Why nothing can be copied; empty if this host hinders nothing."""
        status = self.status
        disk = None if status is None or status.node else status.disk_fault
        return self.directory.fault or self._fault or str(disk or "")

    def apply_config(self, config: ClientConfig, topics: tuple[str, ...]) -> None:
        """Use another configuration, and copy these topics, from now on."""
        self._config, self.topics = config, topics
        if self.client is not None:
            self.client.follow(config, topics)

    def start(self) -> None:
        """Begin, in the running event loop. Raises as `PullClient.start`, and DiskFault."""
        self._open()
        self._task = spawn(self._check_often(), "subscriber sidecar")

    async def stop(self) -> None:
        """Copy no more; what was copied is durable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._close()

    # --- the directory comes and goes ---------------------------------------------------------

    async def _check_often(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check_directory()

    async def check_directory(self) -> None:
        """Close a directory that has disappeared, and open one that is back."""
        self.directory.check()
        if self.client is not None:
            self._known |= {(*copy.name, copy.log.topic_id) for copy in self._copying()}
        is_there = self.directory.is_there
        if self.client is not None and not (is_there and self.client.directory.is_in_place()):
            if is_there:
                log.warning("copies in %s were replaced: all are reopened", self.directory.path)
            await self._close()
        if self.client is None and is_there:
            await self._open_again()

    def _copying(self) -> list[Copy]:
        copies = () if self.client is None else self.client.copies.values()
        return [copy for copy in copies if copy.state is not CopyState.GONE]

    def _has_known_copies(self) -> bool:
        """Whether a copy that was kept lies in the directory, also of a topic that is copied no
        more; or none was.
        """
        try:
            return not self._known or any(
                (topic, partition, topic_id) in self._known
                for name in {topic for topic, _, _ in self._known}
                for topic, topic_id, partition in find_partition_directories(
                    self._fs, self.directory.path, name
                )
            )
        except LogFormatError:
            return False

    async def _open_again(self) -> None:
        try:
            self._open()
        except LogFormatError as error:
            await self._close()
            if str(error) != self._fault:
                log.error("the copies in %s cannot be opened: %s", self.directory.path, error)
            self._fault = str(error)
            return
        self._fault = ""
        for copy in self.copies.values():
            self._on_change(copy)

    def _open(self) -> None:
        self._syncer = GroupSync(self.directory.path)
        self.client = PullClient(
            self.directory.path,
            self.topics,
            self._config,
            PullParts(
                tls=self._tls,
                fs=self._fs,
                syncer=self._syncer,
                clock=self._clock,
                random=self._random,
            ),
            PullOptions(
                find_start=lambda topic, topic_id, partition: self._start,
                begins_anew=True,
                is_resumed=True,
                on_change=self._changed,
            ),
        )
        self.client.start()

    def _changed(self, copy: Copy) -> None:
        """Warn once of each copy whose topic was deleted."""
        is_deleted = copy.state is CopyState.GONE and not copy.successor
        if is_deleted and self.copies.get(copy.name) is copy:
            log.warning("%s-%d is copied no more: %s", *copy.name, TopicDeleted(copy.name[0], KEPT))
        self._on_change(copy)

    async def _close(self) -> None:
        """Close all files."""
        client, syncer = self.client, self._syncer
        self.client = self._syncer = None
        if client is not None:
            await client.stop()
        if syncer is not None:
            await syncer.close()


class _Copies(Mapping[InputName, Copy]):
    """Those of the client that there is."""

    def __init__(self, sidecar: SubscriberSidecar) -> None:
        self._sidecar = sidecar

    def _now(self) -> Mapping[InputName, Copy]:
        client = self._sidecar.client
        return {} if client is None else client.copies

    def __getitem__(self, name: InputName) -> Copy:
        return self._now()[name]

    def __iter__(self) -> Iterator[InputName]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())
