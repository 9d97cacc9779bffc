"""A client outside of the simulated cluster, which asks nodes one thing after the other.

What a node is asked runs on it, with what it has for clients; nothing but the network between is
made up. Who gets no answer in time goes on without.

Invariant: at most one request is under way; an answer that comes late is nobody's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from samelog.consensus import NotLeader
from samelog.format.errors import InvariantError
from samelog.kafka.codec.errors import ApiError
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.admin.parts import parts_of
from samelog.sequencer.cluster.changes import ChangeRefused
from tests.cluster_sim.history import Name
from tests.cluster_sim.process import Process
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World

ANSWER_S = 4.0
"""A client waits no longer."""
OVERDUE_S = 45.0
"""A request that a node still works on after so long has no deadline."""
PROBLEMS = (ApiError, RequestRefused, ChangeRefused, NotLeader, TimeoutError)
Asked = tuple["NodeActor", Any, Any] | None
Script = Generator[Asked, str, None]


@dataclass(slots=True)
class _Served:
    """A request that a node works on."""

    process: Process
    task: asyncio.Task[None]
    name: str

    @property
    def is_under_way(self) -> bool:
        """Whether the request still waits for its answer."""
        return self.process.is_alive and not self.task.done()


class RemoteClient:
    """One of them."""

    def __init__(self, world: World, tag: str, chance: str) -> None:
        self.world = world
        self.tag = tag
        self._chance = random.Random(f"{chance} {world.options.seed}")
        self._script: Script | None = None
        self._step = 0
        self._under_way: list[_Served] = []

    def _ask(
        self, request: Any, *what: Any, where: Callable[[NodeActor], bool] | None = None
    ) -> Asked:
        """A request to the node that leads, or to any of these: (the node, what it is to do)."""
        nodes = [actor for actor in self.world.nodes if _can_be_asked(actor)]
        found = [actor for actor in nodes if (where(actor) if where else actor.is_leader)]
        return (self._chance.choice(found), request, what) if found else None

    def _run(self, script: Script) -> None:
        self._script = script
        self._next(None)

    def _next(self, problem: str | None) -> None:
        """Go on, with what became of the last request."""
        if self._script is None:
            return
        try:
            asked = self._script.send(problem)  # type: ignore[arg-type]
        except StopIteration:
            self._over()
            return
        self._step += 1
        step = self._step
        if asked is None:
            self.world.later(0.0, lambda: self._answered(step, "nobody can be asked"))
            return
        actor, request, what = asked
        self.world.loop.call_in(actor.process, 0.0, self._begin, step, actor, request, what)  # type: ignore[arg-type]
        self.world.later(ANSWER_S, lambda: self._answered(step, "no answer"))

    def _begin(self, step: int, actor: NodeActor, request: Any, what: Any) -> None:
        task = self.world.loop.create_task(self._served(step, actor, request, what))
        served = _Served(self.world.loop.current, task, getattr(request, "__name__", str(request)))
        self._under_way = [each for each in self._under_way if each.is_under_way]
        self._under_way.append(served)
        self.world.later(OVERDUE_S, lambda: self._look_at(served))

    def _look_at(self, served: _Served) -> None:
        """A client may have given up long ago: who would wait for it hears nothing for ever."""
        if served.is_under_way and not served.process.is_paused:
            text = f"{self.tag}: {served.process.name} still works on {served.name}"
            self.world.violated(Violation("every request is answered", text))

    @property
    def waits_for(self) -> str:
        """What a node still works on for this client; empty: nothing."""
        left = next((each for each in self._under_way if each.is_under_way), None)
        return "" if left is None else f"{left.process.name} works on {self.tag}'s {left.name}"

    async def _served(self, step: int, actor: NodeActor, request: Any, what: Any) -> None:
        """On the node."""
        problem = ""
        try:
            await request(self._services(actor), *what)
        except PROBLEMS as error:
            problem = f"{type(error).__name__}: {error}"
        except InvariantError as error:
            self.world.violated(Violation("no errors", f"{actor.host}: {error!r}"))
            raise
        self.world.later(self.world.options.latency_s, lambda: self._answered(step, problem))

    def _answered(self, step: int, problem: str) -> None:
        if step != self._step:
            return  # it waits for that no more
        self._step += 1
        if problem:
            self._refused(problem)
        else:
            self._next("")

    def _services(self, actor: NodeActor) -> Any:
        """What requests run with."""
        return actor

    def _refused(self, problem: str) -> None:
        """A request came to nothing: the script is told."""
        self._next(problem)

    def _over(self) -> None:
        """The script has ended."""
        raise NotImplementedError


def holds(name: Name, actor: NodeActor) -> bool:
    """Whether a node has a partition, in whatever group."""
    node = actor.node
    topic = None if node is None else node.logs.machine.state.topics.named(name[0])
    if node is None or topic is None:
        return False
    return parts_of(node, topic.partition_numbers[name[1]]) is not None


def _can_be_asked(actor: NodeActor) -> bool:
    return actor.is_up and actor.node is not None and actor.node.raft.replica.level > 0
