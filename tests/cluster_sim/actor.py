"""A program on a machine of its own, started again whenever it has died.

Invariant: at most one process of an actor lives at a time.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from samelog.config.tables.client import ClientConfig
from samelog.config.tables.shared import TlsFiles
from samelog.config.values import Address
from tests.cluster_sim.determinism import START_MS
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.identity import SimTls
from tests.cluster_sim.loop import SimLoop
from tests.cluster_sim.process import Process

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

PORT = 7000
BOOT_S = 1.0
"""Of a machine whose power failed, with `fsync=interval`: longer than that interval."""
CLUSTER = "sim"
NO_FILES = TlsFiles(ca="", cert="", key="")


class SimClock:
    """The clock of one machine: it drifts, and its wall time jumps."""

    is_agreed = True

    def __init__(self, loop: SimLoop, rate: float) -> None:
        self._jumped_ms = self._furthest_ms = 0
        self._loop = loop
        self._looked = loop.looked
        self._rate = rate

    def now(self) -> float:
        return self._looked() * self._rate

    def wall_ms(self) -> int:
        return START_MS + int(self._loop.time() * 1000 * self._rate) + self._jumped_ms

    def jump(self, by_ms: int) -> None:
        """Somebody sets the wall clock."""
        self._jumped_ms += by_ms
        self._furthest_ms = max(self._furthest_ms, self._jumped_ms)

    def jump_ahead(self) -> None:
        """Somebody sets the wall clock so that it never showed a later time."""
        self._jumped_ms = self._furthest_ms


class Actor:
    """`run` is overridden by what it is."""

    role = "node"

    def __init__(self, world: World, host: str) -> None:
        seed = world.options.seed
        self.world = world
        self.host = host
        self.disk = Disk(f"disk {host} {seed}")
        self.disk.sync_s = world.options.sync_s
        self.disk.note = world.trace.effect
        self.chance = random.Random(f"actor {host} {seed}")
        drift = world.options.drift
        self.clock = SimClock(world.loop, 1 + self.chance.uniform(-drift, drift))
        self.process: Process | None = None
        self.starts = 0
        self.stays_away = False
        """It is not started again."""
        self.dies_within_a_step = False
        """Whether its process is killed at an effect: what holds between steps need not hold."""
        self.looked_when: tuple[object, ...] = ()
        """What had changed when the checker last looked: its disk, its starts, its logs, its role.
        """

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.is_alive

    @property
    def identity(self) -> str:
        """What its certificate says."""
        return f"samelog://{self.role}/{self.host}"

    def look(self) -> None:
        """See whether all is as it must be, after a step of the process. Raises Violation."""

    # --- living and dying -------------------------------------------------------------------------

    def start(self) -> None:
        """A new process."""
        if self.is_up or self.stays_away:
            return
        self.starts += 1
        self.dies_within_a_step = False
        process = Process(f"{self.host}.{self.starts}", self.host, seed=self.world.options.seed)
        process.look = self.look
        process.on_fuse = lambda: self.kill(why="at an effect")
        self.process = process
        self.world.processes.append(process)
        self.world.trace.event(self.host, "starts")
        self.world.network.host_came_back(self.host)
        self.world.loop.call_in(process, 0.0, self._begin, process)

    def come_back(self) -> None:
        """It is wanted again."""
        self.stays_away = False
        self.start()

    def _begin(self, process: Process) -> None:
        self.world.loop.create_task(self._main(process))

    async def _main(self, process: Process) -> None:
        try:
            await self.run(process)
        except Exception as error:  # noqa: BLE001 - whatever ends a process is looked at
            self.world.judge(self.failed, error)
        self.kill(why="ends")

    async def run(self, process: Process) -> None:
        """The program."""
        raise NotImplementedError

    def failed(self, error: Exception) -> None:
        """The program ended with an error. Raises Violation unless that may be."""
        raise NotImplementedError

    def kill(self, *, power: bool = False, why: str = "is killed") -> None:
        """End the process here and now; with `power`, the machine loses what was not synced."""
        process = self.process
        if process is None or not process.is_alive:
            return
        self.dies_within_a_step = self.world.loop.current is process
        self.world.judge(self.look)  # in the step it dies in, it may have told others
        process.is_alive = False
        self.world.trace.event(self.host, "loses power" if power else why)
        self.world.network.process_died(process, silently=power)
        if power:
            self.disk.lose_power()
            self.world.network.powered_off.add(self.host)
        else:
            self.disk.locks = {
                key: held for key, held in self.disk.locks.items() if held[0] is not process
            }
            self.disk.watchers.clear()
            self.disk.drop_unsyncable()
        self.gone()
        if not self.world.is_healed:
            delay = self.chance.uniform(0.01, self.world.options.restart_s)
            boots_s = BOOT_S if power and self.world.options.lazy_sync else 0.0
            self.world.later(delay + boots_s, self.start)
        else:
            self.world.later(0.1, self.start)

    def gone(self) -> None:
        """The process is no more."""

    # --- what programs need -----------------------------------------------------------------------

    def file_system(self, process: Process, *, most_open: int = 0) -> SimFileSystem:
        """The machine's disk, as the process sees it. `most_open`: see SimFileSystem."""
        return SimFileSystem(self.disk, process, most_open=most_open)

    def tls(self) -> SimTls:
        """Its identity."""
        return SimTls(self.identity)

    def client_config(self) -> ClientConfig:
        """How a client finds the cluster."""
        names = tuple(node.host for node in self.world.nodes)
        return ClientConfig(
            nodes=tuple(Address(name, PORT) for name in names),
            cluster=CLUSTER,
            tls=NO_FILES,
            node_names=names,
        )
