"""Keeps copies of topics for subscribers that only read local files.

Invariant: as for the pull client: one process keeps the copies of a directory, and a copy is a
prefix of the cluster's log from where it begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

from shiplog.config.types import ClientConfig
from shiplog.logformat.files import FileSystem
from shiplog.replicator.pull_client import PullClient
from shiplog.replicator.pull_copy import EARLIEST, Copy, StartAt
from shiplog.runtime.clock import Clock
from shiplog.runtime.syncer import GroupSync
from shiplog.runtime.tls import ReloadingContext
from shiplog.wire.messages import Start

LATEST = StartAt(Start.LATEST)


class SubscriberSidecar:
    """Copies topics into a directory. All calls and callbacks are in its event loop."""

    def __init__(
        self,
        directory: str,
        topics: tuple[str, ...],
        config: ClientConfig,
        *,
        tls: ReloadingContext,
        fs: FileSystem,
        clock: Clock,
        random: Random,
        from_latest: bool = False,
        on_change: Callable[[Copy], None] = lambda copy: None,
    ) -> None:
        """`from_latest`: a copy that does not exist yet begins at the end, not at the beginning.

        Raises OSError, DiskFault when the directory cannot be made or opened.
        """
        os.makedirs(directory, mode=0o700, exist_ok=True)
        start = LATEST if from_latest else EARLIEST
        self._syncer = GroupSync(directory)
        self.client = PullClient(
            directory,
            topics,
            config,
            tls=tls,
            fs=fs,
            syncer=self._syncer,
            clock=clock,
            random=random,
            find_start=lambda topic, topic_id, partition: start,
            on_change=on_change,
            begins_anew=True,
        )

    def start(self) -> None:
        """Begin, in the running event loop. Raises as `PullClient.start`."""
        self.client.start()

    async def stop(self) -> None:
        """Copy no more; what was copied is durable."""
        await self.client.stop()
        await self._syncer.close()
