"""The target of copies in a simulated world: it refuses, loses what it has taken, and keeps halves.

Invariant: what copies segments is what runs in production, but for the target and the process of
its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from samelog.archiver.copies import copying
from samelog.archiver.copies.manifests import CopyFault, CopyJob, Manifest
from samelog.archiver.copies.targets import Upload
from samelog.store.disk.files import FileSystem
from tests.cluster_sim.process import Process

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

URL = "sim://copies"
SLOW_S = 0.5
REFUSES, LOSES, LEAVES_HALF = 0.1, 0.1, 0.3


class _Upload:
    """A file on its way."""

    def __init__(self, target: _Target, name: str) -> None:
        self._target = target
        self._name = name
        self._data = bytearray()

    def write(self, data: Any) -> int:
        """Add bytes."""
        self._target.effect(REFUSES)
        self._data += data
        return len(data)

    def commit(self) -> None:
        """Keep it, or say so."""
        self._target.effect(REFUSES)
        if self._target.chance.random() < LOSES:
            del self._data[len(self._data) // 2 :]
        self._target.files[self._name] = bytes(self._data)

    def abort(self) -> None:
        """Some of it may stay."""
        if self._target.chance.random() < LEAVES_HALF:
            self._target.files.setdefault(self._name, bytes(self._data))


class _Target:
    """What one process sees of it. Implements targets.Target."""

    def __init__(self, files: dict[str, bytes], process: Process, chance: random.Random) -> None:
        self.files = files
        self.chance = chance
        self._process = process

    def effect(self, fails: float) -> None:
        """Something that others see: the process may die, the target may refuse."""
        self._process.effect()
        if self.chance.random() < fails:
            raise CopyFault(f"{URL}: refused")

    def create(self, name: str) -> Upload:
        """Begin a file."""
        return _Upload(self, name)

    def open(self, name: str) -> Any:
        """A file for reading."""
        self.effect(REFUSES)
        data = self.files.get(name)
        return None if data is None else BytesIO(data)

    def list(self, directory: str) -> list[str]:
        """Never asked for by who copies."""
        raise NotImplementedError(directory)


class SimCopier:
    """One process's way to copy. Implements copier.Copier."""

    def __init__(self, world: World, fs: FileSystem, process: Process) -> None:
        self._world = world
        self._fs = fs
        chance = random.Random(f"copies {process.name} {world.options.seed}")
        self._target = _Target(world.copies, process, chance)

    async def copy(self, job: CopyJob, progress: Callable[[int], None]) -> Manifest:
        """Copy one segment, at some moment of the time that it takes."""
        before = SLOW_S * self._target.chance.random()
        await asyncio.sleep(before)
        now_ms = int(self._world.loop.time() * 1000)
        made = copying.copy_segment(self._fs, self._target, job, now_ms=now_ms, progress=progress)
        await asyncio.sleep(SLOW_S - before)
        return made

    async def close(self) -> None:
        """Nothing to let go of."""
