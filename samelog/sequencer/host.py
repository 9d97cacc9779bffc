"""What a node takes from its host besides files, time and chance; a simulation takes its place.

Invariant: a node starts threads, watches directories and asks for the disk's size only through
here.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from samelog.archiver.copies.process import ProcessCopier, SegmentCopier
from samelog.config.tables.node import NodeConfig
from samelog.runtime.clock import Clock
from samelog.runtime.counters import Histogram
from samelog.runtime.disk.syncer import GroupSync, Syncer
from samelog.runtime.disk.threads import InThread
from samelog.runtime.network.byte_stream import OpenProtocol
from samelog.runtime.network.tls import ReloadingContext
from samelog.runtime.watch import FileWatch
from samelog.sequencer.judging.process import BatchJudge, ProcessJudge
from samelog.sequencer.levels import SUPPORTED
from samelog.store.disk.files import FileSystem
from samelog.store.keys.key_store import KeyStore, open_keys


class NodeSyncer(Syncer, Protocol):
    """Makes the files of one data directory durable, until closed."""

    @property
    def durations(self) -> Histogram:
        """How long syncs took, in seconds."""

    async def close(self) -> None:
        """Finish what was asked for, then give everything back."""


class Watch(Protocol):
    """Notices changed files, until closed."""

    def close(self) -> None:
        """Watch no more."""


class Service(Protocol):
    """Something a node offers besides its own protocol, to whoever connects."""

    async def start(self) -> None:
        """The node knows what was committed, though it may still copy merged logs: open. Raises
        what the node is to end with.
        """

    def reconfigure(self, config: NodeConfig) -> None:
        """Go by what may change while it runs."""

    async def close(self) -> None:
        """The node stops: end every connection."""


class DiskUsage(Protocol):
    """How much of a disk is taken and free, in bytes."""

    @property
    def used(self) -> int:
        """Bytes used on the disk, by any files."""

    @property
    def free(self) -> int:
        """Free for this process."""


def linux_boot() -> str:
    """See random(4)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Host:
    """`new_syncer(directory)`, `watch(paths, on_change)`, `disk_usage(path)`, `in_thread(work)`,
    `boot()`: what identifies the host's present boot, empty if nothing does; `new_copier()`: what
    copies segments elsewhere; `open_http()`: the protocol of an administrator's connection to the
    node's own port, None: there are none; `open_keys(fs, path)`: an index of keys; `new_judge()`:
    what checks records by schemas.
    """

    new_syncer: Callable[[str], NodeSyncer] = GroupSync
    watch: Callable[[tuple[str, ...], Callable[[], None]], Watch] = FileWatch
    disk_usage: Callable[[str], DiskUsage] = shutil.disk_usage
    in_thread: InThread = asyncio.to_thread
    boot: Callable[[], str] = linux_boot
    new_copier: Callable[[], SegmentCopier] = ProcessCopier
    open_http: OpenProtocol | None = None
    open_keys: Callable[[FileSystem, str], KeyStore] = open_keys
    new_judge: Callable[[], BatchJudge] = ProcessJudge


REAL_HOST = Host()


@dataclass(frozen=True, slots=True)
class NodeResources:
    """What a node is given when it is made."""

    config: NodeConfig
    fs: FileSystem
    clock: Clock
    tls: ReloadingContext
    rng: Random
    host: Host = REAL_HOST
    level: int = SUPPORTED
    """The newest feature level that it supports."""
