"""Worlds in which publishers' files rot, and nothing else is special: bytes of a session's data
files turn, and complete files between others disappear.

A damaged run continues in *parts*, each with a run id of its own, whose positions count from where
the part begins. The checker knows runs by the ids and positions that their writers use, so it
learns from `damage.<run>.json` which run a part belongs to, and where it begins.

Invariant: every record whose bytes are intact is merged, once and in order; every other one is
merged, or reported as lost, or was the torn end of a run.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from samelog.format.directory_files import (
    DamageFile,
    RunByte,
    RunFile,
    ShippingFile,
    Versioned,
    decode_directory_file,
)
from samelog.format.file_names import input_name, parse_input_name
from samelog.replicator.interfaces import InputName
from samelog.wire.push.layout import part_layout
from tests.cluster_sim.checker import Checker
from tests.cluster_sim.history import Written
from tests.cluster_sim.inode import Inode
from tests.cluster_sim.options import Options
from tests.cluster_sim.recreation import recreating
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.actor import Actor
    from tests.cluster_sim.publisher import PublisherActor
    from tests.cluster_sim.world import World

ROT = "rot_publisher"
MISSING_SHARE = 0.2
_DATA = re.compile(r"/sessions/[^/]+/([^/]+)/log\.(\d+)\.(\d+)")

_Run = tuple[str, str]
"""(session, run id)."""
_Kind = TypeVar("_Kind", bound=Versioned)


def rotting(seed: int) -> Options:
    """The world of a seed in which publishers' files rot."""
    options = recreating(seed)
    kinds = tuple(kind for kind in options.kinds if kind != "clock_jump")
    return replace(
        options,
        recreates=False,
        rots=True,
        kinds=(*kinds, *[ROT] * max(3, len(kinds) // 2)),
        fault_every_s=min(options.fault_every_s, 0.7),
        append_every_s=min(options.append_every_s, 0.2),
        roll_bytes=1 << 12,
    )


class Rotting:
    """What has rotted at the publishers of one world, and what they report."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rotten: dict[tuple[_Run, InputName, int], list[tuple[int, int]]] = {}
        """(run, input, roll) -> byte ranges of the file."""
        self._numbers: dict[_Run, int] = {}
        self._parts: dict[_Run, tuple[str, int, dict[str, RunByte]]] = {}
        """Part -> the run's own id, its number, and where the part begins."""
        self.rotted = 0
        """How many times."""

    # --- the fault --------------------------------------------------------------------------------

    def strike(self, chance: random.Random) -> str | None:
        """Rot a data file of a publisher, or remove one that others follow."""
        actor = chance.choice(self._world.publishers)
        files = [(path, inode) for path, inode in actor.disk.files() if _DATA.fullmatch(path)]
        if not files:
            return None
        path, inode = chance.choice(files)
        known = _DATA.fullmatch(path)
        name = None if known is None else parse_input_name(known[1])
        if known is None or name is None:
            return None
        run, roll = int(known[2]), int(known[3])
        record = _read(actor, f"{actor.path}/run.{run}.json", RunFile)
        if record is None:
            return None
        before = bytes(inode.data)
        follower = path.rsplit(".", 1)[0] + f".{roll + 1}"
        is_complete = actor.disk.find(follower) is not None
        if is_complete and chance.random() < MISSING_SHARE:
            actor.disk.unlink(path)
            start, stop = 0, len(before)
        elif inode.rot(chance):
            changed = [at for at, byte in enumerate(before) if byte != inode.data[at]]
            start, stop = changed[0], changed[-1] + 1
        else:
            return None
        self.rotted += 1
        whose = actor.session, record.run_id
        self._numbers[whose] = run
        self._rotten.setdefault((whose, name, roll), []).append((start, stop))
        return f"{path} from {start} to {stop}"

    # --- questions --------------------------------------------------------------------------------

    def is_rotten(self, session: str, run_id: str, name: InputName, append: Written) -> bool:
        """Whether bytes of an append have rotted."""
        roll, end = append.end
        ranges = self._rotten.get(((session, run_id), name, roll), ())
        return any(start < end and stop > end - append.size for start, stop in ranges)

    def is_reported(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> bool:
        """Whether a publisher reports an append as lost."""
        run = self._numbers.get((actor.session, run_id))
        damage = _read(actor, f"{actor.path}/damage.{run}.json", DamageFile)
        roll, end = append.end
        start, stop = (run, roll, end - append.size), (run, roll, end)
        return damage is not None and any(
            each.input == input_name(*name) and each.start < stop and each.stop > start
            for each in damage.lost
        )

    def own(self, session: str, run_id: str) -> str:
        """The id that a run has at its writer, of the run or one of its parts."""
        part = self._part(session, run_id)
        return run_id if part is None else part[0]

    def own_place(
        self, session: str, run_id: str, name: InputName, place: tuple[int, int]
    ) -> tuple[int, int]:
        """The position in the writer's files of a position in a run or part."""
        part = self._part(session, run_id)
        if part is None:
            return place
        _, run, starts = part
        layout = part_layout(ShippingFile(), run, starts.get(input_name(*name)))
        return place if layout is None else layout.local(place)[1:]

    def _part(self, session: str, part_id: str) -> tuple[str, int, dict[str, RunByte]] | None:
        whose = session, part_id
        if whose not in self._parts and whose not in self._numbers:
            for actor in self._world.publishers:
                if actor.session == session:
                    self._learn(actor)
        return self._parts.get(whose)

    def _learn(self, actor: PublisherActor) -> None:
        for (session, run_id), run in self._numbers.items():
            damage = _read(actor, f"{actor.path}/damage.{run}.json", DamageFile)
            if session == actor.session and damage is not None and damage.run_id is not None:
                self._parts[session, damage.run_id] = run_id, run, damage.starts


class RottingChecker(Checker):
    """Watches such a world."""

    def _own(
        self, session: str, run_id: str, name: InputName, place: tuple[int, int]
    ) -> tuple[str, tuple[int, int]]:
        rotting = self.world.rotting
        return rotting.own(session, run_id), rotting.own_place(session, run_id, name, place)

    def _check_committed(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> None:
        if self._is_lost(actor, run_id, name, append):
            lost = {(actor.session, number) for number in append.numbers}
            self.world.history.acknowledged -= lost
            return
        super()._check_committed(actor, run_id, name, append)

    def _is_lost(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> bool:
        rotting = self.world.rotting
        is_rotten = rotting.is_rotten(actor.session, run_id, name, append)
        return is_rotten and rotting.is_reported(actor, run_id, name, append)

    def is_released(
        self, actor: PublisherActor, run_id: str, name: InputName, append: Written
    ) -> bool:
        """Whether an append was lost to rot, and that is reported or only rotten appends follow."""
        if self._is_lost(actor, run_id, name, append):
            return True
        appends = self.world.history.runs[actor.session, run_id, name].appends
        rest = [each for each in appends if each.end >= append.end]
        is_rotten = self.world.rotting.is_rotten
        return all(is_rotten(actor.session, run_id, name, each) for each in rest)

    def check_end(self) -> None:
        """What is intact is merged. Raises Violation."""
        super().check_end()
        for actor in self.world.publishers:
            for (session, run_id, name), run in self.world.history.runs.items():
                for append in run.appends if session == actor.session else ():
                    if not self.is_released(actor, run_id, name, append):
                        self._check_is_merged(session, name, append)

    def _check_is_merged(self, session: str, name: InputName, append: Written) -> None:
        log = self.lineage.present(name)
        if log is None or log.end_of(session, append.numbers[-1]) is None:
            text = (
                f"{session} {append.numbers} of {name} at {append.end} is neither merged nor lost"
            )
            raise Violation("intact is merged", text)


def _read(actor: Actor, path: str, kind: type[_Kind]) -> _Kind | None:
    """A small file on an actor's disk; None: there is none."""
    inode = actor.disk.find(path)
    if not isinstance(inode, Inode):
        return None
    return decode_directory_file(bytes(inode.data), path, kind)
