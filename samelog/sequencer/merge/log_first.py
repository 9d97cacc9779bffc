"""Merged logs become durable behind the Raft log.

Without that, with `fsync=interval`, merged logs could reach beyond what Raft remembers after a loss
of power: other records would then get the same offsets.

Invariant: a merged log is never durable further than the Raft log that ordered it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from samelog.runtime.disk.syncer import Syncer
from samelog.store.disk.files import File


class LogFirst:
    """A syncer for merged logs. Implements runtime.syncer.Syncer."""

    def __init__(self, syncer: Syncer, sync_log: Callable[[], Awaitable[None]]) -> None:
        self._syncer = syncer
        self._sync_log = sync_log

    async def sync(self, files: Iterable[File]) -> None:
        """Return when the Raft log, then these files, are durable. Raises DiskFault."""
        await self._sync_log()
        await self._syncer.sync(files)
