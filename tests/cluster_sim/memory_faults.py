"""Faults that make a machine forget or misremember: rot, wiped disks, old copies, twins.

Nodes may lose their memory at any moment, also while others are down: their disks may be wiped, and
bootstrapped again, or be what they were in a copy of any age. As long as they are a minority at any
time, nothing that was acknowledged may be lost: who forgot counts for nothing until it is let in.

Invariant: at most a minority of the voters is condemned, and of the members of each data group; who
counts again is condemned no more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster_sim.inode import Directory
from tests.cluster_sim.node import DATA, NodeActor
from tests.cluster_sim.publisher import SESSIONS

if TYPE_CHECKING:
    from tests.cluster_sim.publisher import PublisherActor
    from tests.cluster_sim.world import World

ROTTING = ("/merged/", "/sessions/", "/raft/")


@dataclass(frozen=True, slots=True)
class _Backup:
    """A copy of a node's directory, and of which boot it is."""

    directory: Directory
    boot: int


class MemoryFaults:
    """They add to `ways`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ways: dict[str, Callable[[random.Random], str | None]] = {
            "rot": self._rot,
            "wipe": self._wipe,
            "wipe_and_bootstrap": self._wipe_and_bootstrap,
            "stale_node": self._stale_node,
            "twin_node": self._twin_node,
            "stale_publisher": self._stale_publisher,
        }
        self._backups: dict[str, _Backup] = {}
        self._publisher_backups: dict[str, Directory] = {}
        self._twins: list[NodeActor] = []

    def may_condemn(self, actor: NodeActor) -> bool:
        """Return whether a node may forget anything now. A node that is condemned may have been
        given the only replica of a group since: rot that nothing has read is unknown to leaders.
        """
        condemned = [node for node in self.world.nodes if node.is_condemned]
        may = actor.is_condemned or len(condemned) < self.world.membership.may_forget
        return may and self.world.data_groups.may_forget(actor)

    def _rot(self, chance: random.Random) -> str | None:
        actor = chance.choice(self.world.nodes)
        place = chance.choice(ROTTING)
        files = [(path, inode) for path, inode in actor.disk.files() if place in path]
        if not files or not self.may_condemn(actor):
            return None
        path, inode = chance.choice(files)
        if not inode.rot(chance):
            return None
        actor.is_condemned = actor.has_rotten = True
        actor.disk.is_lossy = True
        return f"{actor.host} {path}"

    def _wipe(self, chance: random.Random) -> str | None:
        actor = chance.choice(self.world.nodes)
        if not self.may_condemn(actor):
            return None
        actor.wipe()
        return actor.host

    def _wipe_and_bootstrap(self, chance: random.Random) -> str | None:
        """The unit file still has `--bootstrap`."""
        done = self._wipe(chance)
        if done is not None:
            self.world.actors[done].bootstraps = True  # type: ignore[attr-defined]
        return done

    # --- old copies -------------------------------------------------------------------------------

    def _stale_node(self, chance: random.Random) -> str | None:
        """Take a copy, or put an old one back."""
        actor = chance.choice(self.world.nodes)
        backup = self._backups.get(actor.host)
        if backup is None or not self.may_condemn(actor):
            return self._take_copy(actor)
        actor.kill()
        actor.disk.bring_back(DATA, backup.directory)
        actor.is_condemned = actor.forgot = True
        return f"{actor.host} is what it was at boot {backup.boot}"

    def _twin_node(self, chance: random.Random) -> str | None:
        """Another machine runs an old copy of a node."""
        actor = chance.choice(self.world.nodes)
        backup = self._backups.get(actor.host)
        host = f"{actor.host}x{len(self._twins)}"
        if backup is None or len(self._twins) > 1:
            return self._take_copy(actor)
        twin = NodeActor(self.world, actor.number, host)
        twin.disk.root.link("data", Directory())
        twin.disk.root.sync()
        twin.disk.bring_back(DATA, backup.directory)
        twin.bootstraps = False
        twin.build = actor.build
        twin.forgot = True
        self._twins.append(twin)
        self.world.actors[host] = twin
        twin.start()
        return f"{host} is {actor.host} at boot {backup.boot}"

    def _take_copy(self, actor: NodeActor) -> str | None:
        if actor.node is None or actor.has_rotten:
            return None
        boot = actor.node.member.directory.record.boot
        self._backups[actor.host] = _Backup(actor.disk.copy_of(DATA), boot)
        return f"a copy of {actor.host} at boot {boot}"

    def _stale_publisher(self, chance: random.Random) -> str | None:
        actor: PublisherActor = chance.choice(self.world.publishers)
        backup = self._publisher_backups.get(actor.host)
        if backup is None:
            if actor.disk.find(actor.path) is None:
                return None
            self._publisher_backups[actor.host] = actor.disk.copy_of(SESSIONS)
            return f"a copy of {actor.host}"
        actor.kill()
        actor.disk.bring_back(SESSIONS, backup)
        actor.was_restored = True
        return f"{actor.host} is what it was"

    # --- at the end -------------------------------------------------------------------------------

    def sure(self) -> list[NodeActor]:
        """Nodes that count and go on doing so: no twin of theirs may have been heard of, whose life
        makes a suspect of a node that has yet to hear of it.
        """
        twins = {twin.number for twin in self._twins}
        return [node for node in self.world.nodes if node.counts and node.number not in twins]

    def heal(self) -> None:
        """Twins are found and switched off."""
        for twin in self._twins:
            twin.stays_away = True
            twin.kill()
