"""What spans several data groups of a simulated world: a topic whose partitions are in them, and
writers that stage batches there and publish them, over and over, until they know what came of it.

Invariant: of every batch all records are merged, in all groups, or none; all, if its writer was
told so; none, if nobody asked for it or it was given up in time. Batches of a writer follow each
other in every log.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from samelog.admin.requests import DropStage, HoldStage, PublishStage, StagedRun
from samelog.consensus import Busy, NotLeader
from samelog.format import _kernels as kernels
from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.placement import PlaceTopic
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode
from tests.cluster_sim.canonical import CanonicalLog, make_value
from tests.cluster_sim.client import RemoteClient, Script
from tests.cluster_sim.history import Name
from tests.cluster_sim.kinds import settings_of
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from samelog.store.merged.log import MergedLog
    from tests.cluster_sim.node import NodeActor
    from tests.cluster_sim.world import World

TOPIC = "g"
TOPIC_ID = uuid.UUID(int=7).hex
PARTITIONS_MOST = 3
IDENTITY = "samelog://publisher/stager"
LOOK_S, REST_S = 0.2, 0.3
TRIES = 12
"""Then a writer gives its attempt up, and stages the batch again."""


@dataclass(slots=True)
class Staged:
    """One attempt at a batch, as its writer knows it."""

    batch: int
    session: str
    run_id: str
    data: dict[Name, bytes]
    numbers: list[int] = field(default_factory=list)
    asked: bool = False
    """To publish."""
    told: bool = False
    """That it is published."""
    dropped: bool = False
    """And told so, without ever having asked to publish."""

    @property
    def run(self) -> StagedRun:
        ends = [RunEnd(*name, 0, len(data)) for name, data in sorted(self.data.items())]
        return StagedRun(self.session, self.run_id, tuple(ends))


class StagingClient(RemoteClient):
    """One writer, with a stage of its own."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"w{number}", f"stager {number}")
        self.stage = f"stage{number}"
        self.attempts: list[Staged] = []
        self.is_at_rest = False
        self._batch = 0
        self._rival = Rival(self)

    def go_on(self) -> None:
        """Stage the next batch, or this one again, unless the world is at rest."""
        is_over = not (self.world.is_busy and self.world.spanning.places)
        left = next(filter(self._is_left, self.attempts), None) if is_over else None
        self.is_at_rest = is_over and left is None
        if self.is_at_rest:
            self.world.later(REST_S, self.go_on)
            return
        if left is not None:  # as an operator does: it would keep its partitions from moving
            self._run(self._drop(left))
            return
        attempt = self._attempt()
        self.attempts.append(attempt)
        self._run(self._publish(attempt))

    def _is_left(self, attempt: Staged) -> bool:
        """Whether any node knows of a run of it that is held and open."""
        nodes = [actor.node for actor in self.world.nodes if actor.node is not None]
        found = [node.cluster.sessions.by_name.get(attempt.session) for node in nodes]
        newest = [each.runs[-1] for each in found if each is not None and each.runs]
        return any(run.is_held and not run.closed for run in newest)

    def _over(self) -> None:
        self._script = None
        self.world.later(self._chance.expovariate(1 / REST_S), self.go_on)

    def _attempt(self) -> Staged:
        places = [*self.world.spanning.places]
        options = self.world.options
        if not (options.keys or options.first_keys):  # they take no such records
            places.append(("t0", 0))
        chosen = sorted(self._chance.sample(places, self._chance.randint(1, len(places))))
        session = f"{self.tag}-{len(self.attempts)}"
        attempt = Staged(self._batch, session, uuid.UUID(int=self._chance.getrandbits(128)).hex, {})
        for name in chosen:
            numbers = self.world.history.next_numbers(self.tag, name, self._chance.randint(1, 3))
            attempt.numbers += numbers
            attempt.data[name] = kernels.build_batches(
                [make_value(self.tag, n, self.world.options.value_bytes) for n in numbers],
                timestamps=1,
                batch_bytes=1 << 11,
                max_record_bytes=1 << 20,
            )
        return attempt

    # --- what it does -----------------------------------------------------------------------------

    def _publish(self, attempt: Staged) -> Script:
        """Send to all nodes until it is held, then ask for it until there is an answer."""
        for _ in range(TRIES):
            for actor in self.world.nodes:
                yield self._ask(self._send, attempt, where=lambda a, x=actor: a is x)  # type: ignore[misc]
            problem = yield self._ask(self._hold, attempt)
            if not problem:
                break
        else:
            return
        if self._chance.random() < 0.15:
            yield from self._drop(attempt)
            return
        if self._chance.random() < 0.3:
            self._rival.give_up(attempt, self._chance.uniform(0.0, 20 * self.world.options.sync_s))
        for _ in range(TRIES):
            attempt.asked = True
            problem = yield self._ask(self._ask_for, attempt)
            if not problem or "closed" in problem or "has not begun" in problem:
                break

    def _drop(self, attempt: Staged) -> Script:
        for _ in range(TRIES):
            if not (yield self._ask(self._given_up, attempt)):
                attempt.dropped = not attempt.asked
                return

    async def _send(self, actor: NodeActor, attempt: Staged) -> None:
        """What a connection of a publisher does on one node."""
        node = actor.node
        if node is None:
            return
        who = {"identity": IDENTITY, "session": attempt.session, "run_id": attempt.run_id}
        opened = await node._intake.open_run(
            **who,
            session_id=attempt.session,
            run=0,
            dedup_id=None,
            dedup_base=None,
            stage=self.stage,
        )
        for (topic, partition), data in attempt.data.items():
            with suppress(ElsewhereError):
                await _append(node, who, (topic, partition), opened.number, data)

    async def _hold(self, actor: NodeActor, attempt: Staged) -> None:
        if actor.node is not None:
            await actor.node.stages.hold(HoldStage(self.stage, (attempt.run,)))

    async def _ask_for(self, actor: NodeActor, attempt: Staged) -> None:
        if actor.node is None:
            return
        request = PublishStage(self.stage, self.tag, attempt.batch, (attempt.run,))
        answer = await actor.node.stages.publish(request)
        if self._batch == attempt.batch:
            self._batch += 1
        attempt.told = attempt.told or answer.is_new

    async def _given_up(self, actor: NodeActor, attempt: Staged) -> None:
        if actor.node is not None:
            await actor.node.stages.drop(DropStage(self.stage, (attempt.run,)))


class Rival(RemoteClient):
    """Another process of the writer, which believes that an attempt has failed."""

    def __init__(self, writer: StagingClient) -> None:
        super().__init__(writer.world, f"{writer.tag}r", f"rival {writer.tag}")
        self._writer = writer

    def give_up(self, attempt: Staged, delay: float) -> None:
        """Have it dropped, while it may be under way."""
        if self._script is None:
            self.world.later(delay, lambda: self._run(self._drop(attempt)))

    def _drop(self, attempt: Staged) -> Script:
        yield self._ask(self._writer._given_up, attempt)

    def _over(self) -> None:
        self._script = None


class ElsewhereError(Exception):
    """The partition is on other members."""


async def _append(node: Node, who: Any, name: Name, run: int, data: bytes) -> None:
    try:
        opened = await node._intake.open_input(**who, topic=name[0], partition=name[1])
    except RequestRefused as refused:
        if refused.code is FaultCode.NOT_LEADER:
            raise ElsewhereError from refused
        raise
    at = opened.position
    if (at.file, at.byte) < (0, len(data)):
        taking = node._intake.append(opened.input, run, 0, at.byte, data[at.byte :])
        if taking is not None:
            await taking


class Spanning:
    """All of it in one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.clients = [StagingClient(world, n) for n in range(world.options.stagers)]
        self.places: list[Name] = []
        """The topic's partitions, once there are any."""
        self.logs: list[CanonicalLog] = []
        """What is in them, at the end."""

    @property
    def _has_topic(self) -> bool:
        options = self._world.options
        is_followed = options.follows_groups and options.data_groups > 0 and not options.misfits
        return bool(self.clients) or is_followed

    def plan(self) -> None:
        """Have the topic made, and writers begin."""
        if self._has_topic:
            self._world.later(LOOK_S, self._make)
        for client in self.clients:
            self._world.later(REST_S, client.go_on)

    def _make(self) -> None:
        """Ask whoever leads group 0, until there is the topic in all groups that are to be."""
        for actor in self._world.nodes:
            node, process = actor.node, actor.process
            if node is None or process is None or not actor.is_up:
                continue
            known = node.logs.machine.state.topics.named(TOPIC)
            if known is not None:
                self.places = [(TOPIC, index) for index in range(known.partitions)]
                return
            groups = sorted(node.cluster.placement.groups)
            wanted = min(PARTITIONS_MOST, self._world.options.data_groups)
            if actor.is_leader and len(groups) >= wanted:
                options, chosen = self._world.options, groups[:PARTITIONS_MOST]
                settings = settings_of(options) if options.kind else {}
                self._world.loop.call_in(process, 0.0, _place, node, settings, chosen)
        self._world.later(LOOK_S, self._make)

    # --- at the end -------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """What is not as it must be; empty: nothing."""
        if not self._has_topic:
            return ""
        if not self.places:
            return f"there is no topic {TOPIC}"
        for client in self.clients:
            if not client.is_at_rest:
                return f"{client.tag} is at a batch"
            if waits := client.waits_for:
                return waits
        for actor in self._world.nodes:
            if actor.is_up and actor.node is not None and (waits := _unfinished(actor)):
                return f"{actor.host} {waits}"
        return ""

    def check_end(self) -> None:
        """Everything is quiet. Raises Violation."""
        if not self.clients:
            return
        history = self._world.history
        self.logs = [CanonicalLog(*name, history.is_published) for name in self.places]
        for log in self.logs:
            for actor in self._world.nodes:
                held = _log_of(actor, log.partition)
                if held is not None:
                    _compare(actor, log, held)
        found = {one for log in self.logs for one in log.ends}
        found |= {one for log in self._world.checker.lineage.logs.values() for one in log.ends}
        for session, number in history.acknowledged:
            if history.published[session, number] in self.places and (session, number) not in found:
                raise Violation("acknowledged is merged", f"{session} {number} is lost")
        for client in self.clients:
            batches: dict[int, Staged] = {}
            for attempt in client.attempts:
                if _is_there(client, attempt, found):
                    if attempt.batch in batches:
                        raise Violation("batches once", f"{client.tag} {attempt.batch}")
                    batches[attempt.batch] = attempt


def _is_there(client: StagingClient, attempt: Staged, found: set[tuple[str, int]]) -> bool:
    """Whether an attempt is published. Raises Violation unless that is so of all of it or of none,
    and as its writer knows it.
    """
    merged = [(client.tag, number) in found for number in attempt.numbers]
    who = f"{client.tag} {attempt.session}: {merged}"
    if any(merged) and not all(merged):
        raise Violation("all or nothing", who)
    if any(merged) and (attempt.dropped or not attempt.asked):
        raise Violation("what nobody asked for is not seen", who)
    if attempt.told and not all(merged):
        raise Violation("what is published is seen", who)
    return all(merged)


def _place(node: Node, settings: dict[str, str], groups: list[int]) -> None:
    version = node.cluster.placement.version
    with suppress(NotLeader, Busy):
        node.raft.group.propose([PlaceTopic(version, TOPIC_ID, TOPIC, settings, 0, [], groups)])


def _unfinished(actor: NodeActor) -> str:
    """What a node has not done, or not heard."""
    node = actor.node
    if node is None:
        return ""
    if units := node.cluster.stages.units:
        return f"has units {list(units)}"
    for number, replica in node.data_groups.replicas.items():
        logs = replica.group_replica.logs
        state = logs.machine.state
        if pins := state.stages.pins:
            return f"has pinned {list(pins)} in group {number}"
        if any(log.open for log in state.open_transactions.by_partition.values()):
            return f"has open transactions in group {number}"
        for partition in logs.machine.state.partitions.by_number.values():
            merged = logs.merging.partitions.get(partition.number)
            held = 0 if merged is None else merged.log.next_offset
            if held < partition.next_offset and not actor.has_rotten:
                return f"has {held} of {partition.next_offset} of {TOPIC}-{partition.index}"
    return ""


def _log_of(actor: NodeActor, index: int) -> MergedLog | None:
    if not actor.is_up or actor.node is None or actor.has_rotten:
        return None
    for replica in actor.node.data_groups.replicas.values():
        for known in replica.group_replica.logs.merging.partitions.values():
            if (known.topic, known.index) == (TOPIC, index) and known.fault is None:
                return known.log
    return None


def _compare(actor: NodeActor, log: CanonicalLog, held: MergedLog) -> None:
    """All replicas have the same bytes. Raises Violation."""
    for segment in held.segments():
        data = held.read(segment.base_offset, 0, segment.size) if segment.size else b""
        size = log.compare(actor.host, segment.base_offset, 0, memoryview(data))
        if size < len(data):
            log.extend(actor.host, segment.base_offset, data[size:])
