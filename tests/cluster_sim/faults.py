"""What goes wrong in a world, and when.

Every planned fault draws from a chance of its own, so that leaving one out changes nothing of the
others.

Invariant: the plan depends on the options alone; a minority of voters at most ever loses its
memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster_sim.actor import Actor
from tests.cluster_sim.disk import NO_LIMIT_BYTES
from tests.cluster_sim.memory_faults import MemoryFaults
from tests.cluster_sim.rot import ROT

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

FIRST_S = 0.3
SHARE_AT_REST = 0.1
"""Of the faults that strike in busy times."""
FUSE_EFFECTS = (3, 30, 300)


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault."""

    number: int
    at_s: float
    kind: str


class Faults:
    """The faults of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.memory = MemoryFaults(world)
        self.planned: list[Fault] = []
        self._ways: dict[str, Callable[[random.Random], str | None]] = {
            "kill": lambda chance: self._kill(self._node(chance)),
            "kill_leader": lambda chance: self._kill(self._leader(chance)),
            "kill_all": self._kill_all,
            "power_loss": lambda chance: self._kill(self._node(chance), power=True),
            "power_loss_all": self._power_loss_all,
            "fuse": lambda chance: self._light(self._node(chance), chance),
            "pause": self._pause,
            "cut": self._cut,
            "cut_one_way": self._cut_one_way,
            "isolate_leader": self._isolate_leader,
            "split": self._split,
            "mend": self._mend,
            "reset": self._reset,
            "reset_all": self._reset_all,
            "slow_network": self._slow_network,
            "slow_disk": self._slow_disk,
            "failing_sync": self._failing_sync,
            "full_disk": self._full_disk,
            "clock_jump": self._clock_jump,
            "kill_publisher": lambda chance: self._kill(chance.choice(world.publishers)),
            "power_loss_publisher": lambda chance: self._kill(
                chance.choice(world.publishers), power=True
            ),
            "fuse_publisher": lambda chance: self._light(chance.choice(world.publishers), chance),
            "kill_subscriber": lambda chance: self._kill(self._subscriber(chance)),
            "power_loss_subscriber": lambda chance: self._kill(
                self._subscriber(chance), power=True
            ),
            ROT: world.rotting.strike,
            **self.memory.ways,
        }

    def plan(self) -> None:
        """Decide on everything that will go wrong."""
        options = self.world.options
        chance = random.Random(f"faults {options.seed}")
        at_s = FIRST_S
        while options.kinds:
            at_s += chance.expovariate(1 / options.fault_every_s)
            if at_s >= options.safety_s:
                return
            if not options.rhythm.is_busy(at_s) and chance.random() >= SHARE_AT_REST:
                continue
            fault = Fault(len(self.planned), at_s, chance.choice(options.kinds))
            self.planned.append(fault)
            if fault.number not in options.skip:
                self.world.later(at_s, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def _strike(self, fault: Fault) -> None:
        world = self.world
        chance = random.Random(f"fault {fault.number} {world.options.seed}")
        done = self._ways[fault.kind](chance)
        if done is not None:
            world.trace.event("fault", f"#{fault.number} {fault.kind}: {done}")

    def heal(self) -> None:
        """Let everything be well from now on."""
        world = self.world
        world.network.slow_chance = 0.0
        for process in world.processes:
            process.fuse = None
            if process.is_paused:
                world.loop.resume(process)
        self.memory.heal()
        for actor in world.actors.values():
            actor.disk.failing = None
            actor.disk.capacity_bytes = NO_LIMIT_BYTES
            actor.disk.sync_s = min(actor.disk.sync_s, world.options.sync_s)
        for node in world.nodes:
            if node.waits_for_its_operator:
                node.kill()
        self._send_minority_away()
        world.network.mend()
        for actor in world.actors.values():
            actor.start()

    def _send_minority_away(self) -> None:
        """For good, except for those that are needed to let suspects in."""
        world = self.world
        if not world.options.minority_stays_away:
            return
        sure = self.memory.sure()
        left = len(sure) - len(world.nodes) // 2 - 1
        for node in sure[: max(0, left)]:
            if world.data_groups.may_stay_away(node):
                node.stays_away = True
                node.kill(power=True)

    # --- whom -------------------------------------------------------------------------------------

    def _node(self, chance: random.Random) -> Actor:
        return chance.choice(self.world.nodes)

    def _leader(self, chance: random.Random) -> Actor:
        leaders = [node for node in self.world.nodes if node.is_leader]
        return chance.choice(leaders or self.world.nodes)

    def _subscriber(self, chance: random.Random) -> Actor | None:
        return chance.choice(self.world.subscribers) if self.world.subscribers else None

    def _host(self, chance: random.Random) -> str:
        """Nodes mostly."""
        if chance.random() < 0.7:
            return chance.choice(self.world.nodes).host
        return chance.choice(list(self.world.actors))

    # --- processes and machines -------------------------------------------------------------------

    def _kill(self, actor: Actor | None, *, power: bool = False) -> str | None:
        if actor is None or not actor.is_up:
            return None
        actor.kill(power=power)
        return actor.host

    def _kill_all(self, chance: random.Random) -> str:
        return self._all(chance, power=False)

    def _power_loss_all(self, chance: random.Random) -> str:
        return self._all(chance, power=True)

    def _all(self, chance: random.Random, *, power: bool) -> str:
        gone = [node for node in self.world.nodes if chance.random() < 0.85]
        for node in gone:
            self._kill(node, power=power)
        return " ".join(node.host for node in gone)

    def _light(self, actor: Actor, chance: random.Random) -> str | None:
        """It will die at one of its next effects, with or without its machine."""
        process = actor.process
        if process is None or not actor.is_up:
            return None
        process.fuse = chance.randrange(1, chance.choice(FUSE_EFFECTS))
        power = chance.random() < 0.4
        process.on_fuse = lambda: actor.kill(power=power, why="dies at an effect")
        return f"{actor.host} in {process.fuse} effects{' with its machine' * power}"

    def _pause(self, chance: random.Random) -> str | None:
        process = self._leader(chance).process
        if process is None or not process.is_alive or process.is_paused:
            return None
        process.is_paused = True
        seconds = chance.choice((0.1, 1.0, 5.0)) * chance.random()

        def go_on() -> None:
            if process.is_paused:
                self.world.loop.resume(process)

        self.world.later(seconds, go_on)
        return f"{process.name} for {seconds:.3f} s"

    # --- network ----------------------------------------------------------------------------------

    def _cut(self, chance: random.Random) -> str:
        one, other = self._host(chance), self._host(chance)
        self.world.network.cuts |= {(one, other), (other, one)}
        return f"{one} and {other}"

    def _cut_one_way(self, chance: random.Random) -> str:
        one, other = self._host(chance), self._host(chance)
        self.world.network.cuts.add((one, other))
        return f"{one} to {other}"

    def _isolate_leader(self, chance: random.Random) -> str:
        leader = self._leader(chance).host
        way = chance.choice(("from", "to", "both"))
        for node in self.world.nodes:
            if way != "to":
                self.world.network.cuts.add((leader, node.host))
            if way != "from":
                self.world.network.cuts.add((node.host, leader))
        return f"{leader}, {way}"

    def _split(self, chance: random.Random) -> str:
        hosts = list(self.world.actors)
        side = [host for host in hosts if chance.random() < 0.5]
        self.world.network.cuts |= {
            (a, b) for a in hosts for b in hosts if (a in side) != (b in side)
        }
        return f"{' '.join(side)} from the others"

    def _mend(self, chance: random.Random) -> str:
        self.world.network.mend()
        return "everybody hears everybody"

    def _reset(self, chance: random.Random) -> str | None:
        transports = list(self.world.network.transports)
        if not transports:
            return None
        end = chance.choice(transports)
        self.world.network.reset(end)
        return f"{end.process.host} to {end.peer[0]}"

    def _reset_all(self, chance: random.Random) -> str:
        host = self._host(chance)
        for end in list(self.world.network.transports):
            if end.process.host == host:
                self.world.network.reset(end)
        return host

    def _slow_network(self, chance: random.Random) -> str:
        network, before = self.world.network, self.world.options.slow_chance
        network.slow_chance = chance.choice((0.2, 0.8))
        network.slow_s = max(network.slow_s, 0.05)

        def over() -> None:
            network.slow_chance = 0.0 if self.world.is_healed else before

        self.world.later(chance.uniform(0.2, 4), over)
        return f"{network.slow_chance}"

    # --- disks and clocks -------------------------------------------------------------------------

    def _slow_disk(self, chance: random.Random) -> str:
        disk, before = self._node(chance).disk, self.world.options.sync_s
        disk.sync_s = chance.choice((0.1, 0.5, 1.5))
        self.world.later(chance.uniform(0.2, 5), lambda: setattr(disk, "sync_s", before))
        return f"{disk.sync_s} s"

    def _failing_sync(self, chance: random.Random) -> str:
        actor = self._node(chance)
        actor.disk.failing = chance.choice(("/raft/", "/sessions/", "/merged/", "/"))
        return f"{actor.host}: of {actor.disk.failing}"

    def _full_disk(self, chance: random.Random) -> str:
        actor = chance.choice(list(self.world.actors.values()))
        disk = actor.disk
        disk.capacity_bytes = disk.used_bytes + chance.choice((0, 5_000, 100_000))
        self.world.later(
            chance.uniform(0.2, 5), lambda: setattr(disk, "capacity_bytes", NO_LIMIT_BYTES)
        )
        return f"{actor.host} at {disk.capacity_bytes}"

    def _clock_jump(self, chance: random.Random) -> str:
        actor = chance.choice(list(self.world.actors.values()))
        by_ms = chance.choice((-86_400_000, -3_000, 3_000, 86_400_000))
        actor.clock.jump(by_ms)
        return f"{actor.host} by {by_ms} ms"
