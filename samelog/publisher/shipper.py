"""Ships a publisher's session from within the process: a push client in a thread of its own, or in
one that it shares with others, where there are many publishers.

One push client at a time ships a session. Two would send the same bytes to the same nodes, and each
would take the other's answers for a fault.

Invariant: whoever ships a session holds the lock on `push.lock` in its directory; what is reported
as acknowledged or merged was reported by the cluster; nobody waits for a position that cannot come
any more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from random import Random
from typing import NamedTuple
from weakref import WeakKeyDictionary

from samelog.config.tables.client import ClientConfig, OnRecreate
from samelog.format.directory_files import RefusedRecord
from samelog.format.errors import CorruptLog, DirectoryInUse
from samelog.format.file_names import data_name, input_name
from samelog.format.positions import SessionPosition
from samelog.publisher.errors import (
    NotMerged,
    PublishingRefused,
    RecordsDamaged,
    ShippingStopped,
)
from samelog.publisher.records import PartitionPositions, Places, TopicPartition
from samelog.replicator.client_errors import TopicDeleted
from samelog.replicator.interfaces import InputName, RunEnds
from samelog.replicator.push.client import PushClient, PushStatus
from samelog.replicator.push.connections import PushConnections
from samelog.replicator.push.link import NodeStatus
from samelog.replicator.push.progress import NOWHERE, InputProgress, LostRange, ToldTopics
from samelog.runtime.clock import SystemClock
from samelog.runtime.loop import LoopThread, LoopThreads
from samelog.runtime.reload import ConfigFollower
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import File, FileSystem, OsFileSystem
from samelog.wire.errors import FaultCode

LOCK_FILE = "push.lock"
PUSH_THREADS = LoopThreads("samelog-push", most=1)
"""One thread ships all sessions of a process, on one connection to each node."""
_SHARED: WeakKeyDictionary[LoopThread, PushConnections] = WeakKeyDictionary()
"""What the sessions of a thread share; used in that thread only."""
_REFUSALS = FaultCode.NOT_AUTHORISED, FaultCode.OVER_QUOTA


class _Reach(NamedTuple):
    """One of the steps of a record on its way, and up to where an input has come in it."""

    name: str
    place: Callable[[InputProgress], SessionPosition]


HELD = _Reach("held", attrgetter("durable"))
ACKNOWLEDGED = _Reach("acknowledged", attrgetter("acknowledged"))
MERGED = _Reach("merged", attrgetter("merged"))
LEARN_S = 2.0
"""How long the first append to a topic waits to hear how many partitions it has."""


def lock_shipping(fs: FileSystem, session: str) -> File:
    """Become the one who ships the session's directory, until the file is closed.

    Raises DirectoryInUse: another process, or another publisher of this one, ships it.
    """
    try:
        return fs.lock(os.path.join(session, LOCK_FILE))
    except DirectoryInUse as error:
        raise DirectoryInUse(
            f"{error}: it ships this session already; publish with ship=False, or stop it"
        ) from error


class Shipper:
    """The embedded push client. All methods may be called from any thread but its own."""

    def __init__(
        self,
        path: str,
        config: ClientConfig,
        left: Places = (),
        on_topics: Callable[[Mapping[str, int], frozenset[str]], None] = lambda *_: None,
        on_refused: Callable[[Sequence[RefusedRecord]], None] = lambda records: None,
        *,
        on_recreate: OnRecreate = OnRecreate.HOLD,
        on_left: Callable[[str, str], None] = lambda topic, topic_id: None,
    ) -> None:
        """Start shipping. `left`: the ends of earlier runs, which every wait covers, too;
        `on_topics`: told in another thread how many partitions topics have, and which are checked,
        when that is news; `on_refused`: told there of records that the cluster refused;
        `on_recreate`: what becomes of unmerged bytes when their topic is deleted; `on_left`: told
        there of each such topic.

        Raises:
            DirectoryInUse: the session is shipped already.
            TlsFault: the certificate files cannot be used.
        """
        self._moved = threading.Condition()
        """Its lock guards what follows."""
        self._waiting = 0
        """How many threads wait for `_moved`: telling nobody is not free."""
        self._progress: dict[InputName, InputProgress] = {}
        self._status: PushStatus | None = None
        self._status_version = -1
        self._left = left
        self._raised: list[LostRange] = []
        """The damage that a wait has raised."""
        self._is_released = False
        self._on_topics, self._on_refused = on_topics, on_refused
        self._topics = ToldTopics({}, frozenset())
        self._lock = lock_shipping(OsFileSystem(), path)
        self._thread = PUSH_THREADS.take()
        try:
            self._follower = self._thread.run(self._start(path, config, on_recreate, on_left))
        except BaseException:
            PUSH_THREADS.give_back(self._thread)
            self._lock.close()
            raise

    async def _start(
        self,
        path: str,
        config: ClientConfig,
        on_recreate: OnRecreate,
        on_left: Callable[[str, str], None],
    ) -> ConfigFollower:
        shared = _SHARED.get(self._thread)
        if shared is None:
            shared = _SHARED[self._thread] = PushConnections(SystemClock(), Random())
        client = PushClient(
            path,
            config,
            connections=shared,
            tls=shared.context(config.tls),
            fs=OsFileSystem(),
            on_progress=self._note_progress,
        )
        self._client = client
        client.beside.refused.on_kept = self._on_refused
        client.beside.recreation.option = on_recreate
        client.beside.recreation.on_left = on_left
        client.start()
        self._note_progress()  # damage of earlier runs: a wait may find nothing missing
        follower = ConfigFollower(config, client.follow)
        follower.start()
        return follower

    def _note_progress(self) -> None:
        """In the loop's thread: positions or connections have changed."""
        client = self._client
        with self._moved:
            self._progress.update(client.take_moved())
            if client.status_version != self._status_version:
                self._status, self._status_version = client.status, client.status_version
            if client.topics is not self._topics:
                self._topics = client.topics
                self._on_topics(*self._topics)
            if self._waiting:
                self._is_released = client.is_released
                self._moved.notify_all()

    def learn_topic(self, topic: str, partitions: int) -> int:
        """How many partitions a topic has, created with so many if need be; 0 if no node says so
        within LEARN_S, or can be reached.
        """
        self._thread.run(self._want_topic(topic, partitions))
        with self._moved:
            self._waiting += 1
            self._moved.wait_for(lambda: topic in self._topics.counts or self._is_alone(), LEARN_S)
            self._waiting -= 1
            return self._topics.counts.get(topic, 0)

    async def _want_topic(self, topic: str, partitions: int) -> None:
        self._client.want_topic(topic, partitions)

    def _is_alone(self) -> bool:
        nodes = () if self._status is None else self._status.nodes
        return bool(nodes) and all(node.last_error and node.phase is None for node in nodes)

    def acknowledged(self) -> PartitionPositions:
        """How far each partition is committed."""
        with self._moved:
            return _begun(self._progress, ACKNOWLEDGED)

    def merged(self) -> PartitionPositions:
        """How far each partition is merged, durably on a majority."""
        with self._moved:
            return _begun(self._progress, MERGED)

    def wait_acknowledged(self, wanted: Places, timeout_s: float | None) -> None:
        """Wait until everything up to `wanted` is acknowledged. Raises as `wait_merged`."""
        self._wait(wanted, ACKNOWLEDGED, timeout_s)

    def wait_merged(self, wanted: Places, timeout_s: float | None) -> None:
        """Wait until everything up to `wanted`, and what was left, is merged.

        Raises:
            NotMerged: not within `timeout_s`.
            PublishingRefused: a majority of the nodes refuses it.
            TopicDeleted: it is held, because its topic was deleted.
            ShippingStopped: it never will be.
            RecordsDamaged: all else is; raised once for each damage, and again by each later
                shipper until the copy of the damaged bytes is removed.
        """
        self._wait(wanted, MERGED, timeout_s)

    def wait_held(self, wanted: Places, timeout_s: float | None) -> None:
        """Wait until a node holds a stage's records up to `wanted` durably.

        Raises as `wait_merged`, and at once RecordsDamaged if files are damaged or missing: nothing
        of the stage will be published then.
        """
        self._expect(wanted)
        try:
            self._wait(wanted, HELD, timeout_s, is_stage=True)
        finally:
            self._expect(())

    def _expect(self, wanted: Places) -> None:
        ends = {(name.topic, name.partition): position[1:] for name, position in wanted}
        run = max((position.run for _, position in wanted), default=-1)
        self._thread.run(self._expect_files(run, ends))

    async def _expect_files(self, run: int, ends: RunEnds) -> None:
        self._client.expect(run, ends)

    def wait_released(self, timeout_s: float) -> None:
        """Wait until the session's files are removed, or for that long."""
        with self._moved:
            self._waiting += 1
            self._is_released = False  # kept up to date only during such a wait
            self._thread.soon(self._note_progress)
            self._moved.wait_for(lambda: self._is_released, timeout_s)
            self._waiting -= 1

    def _still_wanted(self, wanted: Places) -> Places:
        """Add the unmerged ends of earlier runs, except of topics deleted since."""
        gone = {} if self._status is None else self._status.gone
        return [*wanted, *(each for each in self._left if gone.get(each[0], -1) < each[1].run)]

    def _wait(
        self,
        wanted: Places,
        step: _Reach,
        timeout_s: float | None,
        *,
        is_stage: bool = False,
    ) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._moved:
            if self._missing(wanted, step):
                self._thread.soon(self._client.hurry)
            self._waiting += 1
            try:
                while missing := self._missing(wanted, step):
                    self._check_possible(missing, is_stage=is_stage)
                    if refusal := self._refusal(missing):
                        raise PublishingRefused(refusal)
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        raise NotMerged(self._explain(missing, step))
                    self._moved.wait(left)
            finally:
                self._waiting -= 1
            self._check_lost(self._still_wanted(wanted))
            self._check_damaged(step)

    def _check_possible(self, missing: Places, *, is_stage: bool) -> None:
        """Raise ShippingStopped, TopicDeleted, RecordsDamaged if a missing position cannot come any
        more.
        """
        status = self._status
        if status is None:
            return
        if is_stage and isinstance(status.session_fault, CorruptLog | DirectoryGone):
            raise RecordsDamaged(f"{status.session_fault}; nothing of the stage is published")
        self._check_stages(status, missing)
        if status.stopped is not None:
            raise ShippingStopped(f"shipping has stopped: {status.stopped}")
        for name, position in missing:
            if status.gone.get(name, -1) >= position.run:
                raise TopicDeleted(name.topic, "what was staged for it is dropped")
            held = status.held.get(name)
            if held is not None and held.begin < position and not held.decision:
                raise TopicDeleted(name.topic, held.explain())

    def _check_stages(self, status: PushStatus, missing: Places) -> None:
        runs = {(name, position.run) for name, position in missing}
        for each in status.damaged:
            if each.stage is not None and (TopicPartition(*each.name), each.run) in runs:
                raise RecordsDamaged(_spoilt_text(each, os.path.dirname(self._lock.path)))

    def _missing(self, wanted: Places, step: _Reach) -> Places:
        """What may still come: a lost run holds up no other one, and is spoken of at the end."""
        lost = {(TopicPartition(*each.name), each.run) for each in self._lost()}
        return [
            (name, position)
            for name, position in self._still_wanted(wanted)
            if (name, position.run) not in lost and self._reached(name, step) < position
        ]

    def _reached(self, name: TopicPartition, step: _Reach) -> SessionPosition:
        known = self._progress.get(name)
        return NOWHERE if known is None else step.place(known)

    def _lost(self) -> Sequence[LostRange]:
        return () if self._status is None else self._status.lost

    def _check_lost(self, wanted: Places) -> None:
        if self._status is not None:
            self._check_stages(self._status, wanted)  # damage explains why the run was closed
        runs = {(name, position.run) for name, position in wanted}
        for lost in self._lost():
            if (TopicPartition(*lost.name), lost.run) in runs:
                raise ShippingStopped(
                    f"the cluster closed run {lost.run} of {lost.name[0]}-{lost.name[1]} at "
                    f"{lost.start[0]}:{lost.start[1]}: what lies behind is kept here, not merged"
                )

    def _check_damaged(self, step: _Reach) -> None:
        """Raise RecordsDamaged for damage that no wait has raised, also of runs that earlier
        processes shipped.
        """
        damaged = () if self._status is None else self._status.damaged
        news = [each for each in damaged if each.stage is None and each not in self._raised]
        if news:
            self._raised += news
            raise RecordsDamaged(
                "; ".join(map(_damage_text, news)) + f"; all other records are {step.name}. "
                "To acknowledge a loss, remove its copy"
            )

    def _refusal(self, missing: Places) -> str | None:
        """Why a majority of the nodes does not let this identity publish what is missing: it has no
        grant, or as much as its quota allows.
        """
        nodes = () if self._status is None else self._status.nodes
        names = {name for name, _ in missing}
        refusing = [each for each in nodes if any(map(_is_refusal, _reasons(each, names)))]
        return "; ".join(_by_reason(refusing)) if 2 * len(refusing) > len(nodes) else None

    def _explain(self, missing: Places, step: _Reach) -> str:
        parts = [
            f"{_progress(name, step.name, self._reached(name, step))} "
            f"(its log ends at {_shown(position)})"
            for name, position in missing
        ]
        status = self._status
        if status is not None:
            parts += _by_reason(status.nodes)
            if status.session_fault is not None:
                parts.append(str(status.session_fault))
        if self._follower.problem:
            parts.append(f"configuration refused: {self._follower.problem}")
        return "; ".join(parts)

    def abandon(self) -> None:
        """In a forked child, which has no thread of this: the parent goes on shipping."""
        self._lock.close()

    def stop(self) -> None:
        """Ship no more."""
        self._thread.run(self._end())
        PUSH_THREADS.give_back(self._thread)
        self._lock.close()

    async def _end(self) -> None:
        self._follower.stop()
        await self._client.stop()


def _damage_text(damage: LostRange) -> str:
    start, stop = (f"{roll}:{byte}" for roll, byte in (damage.start, damage.stop))
    name = f"{damage.name[0]}-{damage.name[1]}"
    return (
        f"records of run {damage.run} of {name} were damaged on disk before they were merged, "
        f"from {start} to {stop} ({damage.reason}); a copy of the bytes is {damage.kept}"
    )


def _spoilt_text(damage: LostRange, session: str) -> str:
    path = os.path.join(session, input_name(*damage.name), data_name(damage.run, damage.start[0]))
    return (
        f"{path}, byte {damage.start[1]}: {damage.reason}; a copy of the damaged bytes is "
        f"{damage.kept}; nothing of stage {damage.stage!r} is published"
    )


def _reasons(node: NodeStatus, names: Container[InputName] | None = None) -> list[str]:
    """Why a node is not shipped to, or does not take these partitions (None: any)."""
    if node.phase is None:
        return [node.last_error or "not connected"]
    return [
        f"{name[0]}-{name[1]} is refused: {problem}"
        for name, problem in node.problems.items()
        if names is None or name in names
    ]


def _is_refusal(reason: str) -> bool:
    return any(f"{code.name}: " in reason for code in _REFUSALS)


def _by_reason(nodes: Iterable[NodeStatus]) -> list[str]:
    """Each reason once, behind the nodes that give it."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for reason in _reasons(node):
            found.setdefault(reason, []).append(f"node {node.node or node.address}")
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _begun(progress: Mapping[InputName, InputProgress], step: _Reach) -> PartitionPositions:
    """The positions of those that have reached anything."""
    places = ((name, step.place(reached)) for name, reached in progress.items())
    return {TopicPartition(*name): place for name, place in places if place.run >= 0}


def _progress(name: TopicPartition, step: str, reached: SessionPosition) -> str:
    if reached.run < 0:
        return f"{name} is not {step} yet"
    return f"{name} is {step} up to {_shown(reached)}"


def _shown(position: SessionPosition) -> str:
    return f"byte {position.byte} of log.{position.run}.{position.roll}"
