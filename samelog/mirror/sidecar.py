"""The sidecar: looks at both clusters in rounds, and mirrors every partition in a task of its own.

It keeps nothing that it could not lose, but the ends of a restore (what it writes of stopped
partitions is for people): how far a mirror is, the
destination says; what comes next, the source. So it can die anywhere.

Invariant: a partition has one task at most, and begins where the destination says that its mirror
ends, asked after all that was brought before is merged, or its fate known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from samelog.admin.mirror_answers import (
    MirroredPartition,
    SourcePartition,
    SourceState,
    SourceTopic,
)
from samelog.archiver.policy import CLEANUP_POLICY, is_compacted
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.mirror import MirrorConfig, MirrorFrom
from samelog.format.errors import LogFormatError
from samelog.mirror.copying import PartitionMirror
from samelog.mirror.destination import Destination
from samelog.mirror.ends import RestoreEnds
from samelog.mirror.errors import DestinationFault, MirrorError, MirrorStopped, SourceUnreadable
from samelog.mirror.progress import MirrorProgress
from samelog.mirror.rounds import MISSING, MirrorRounds, Pair
from samelog.mirror.source import SourceCluster, Where
from samelog.mirror.stops import MirrorStop, MirrorStops
from samelog.runtime.clock import Clock
from samelog.runtime.loop import end_all, spawn

log = logging.getLogger(__name__)

LOOK_S = 1.0
SOON_S = 0.1
"""Between looks while somebody waits for one."""
FOLLOW_S = 5.0
RETRY_S = 0.5
LOOKS_UNSETTLED = 3
"""After so many in which nothing moves that should have, a partition is begun again."""

MirrorKey = tuple[str, int]


class MirrorSidecar:
    """One process's. All calls are in its event loop."""

    def __init__(
        self,
        config: MirrorConfig,
        source: SourceCluster,
        destination: Callable[[], Destination],
        clock: Clock,
    ) -> None:
        """`destination` opens the session. Raises LogFormatError."""
        self.progress = MirrorProgress()
        self._config = config
        self._source = source
        self._open_destination = destination
        self._clock = clock
        self._ends = RestoreEnds(config.directory, config.until, _what(config))
        self._tasks: dict[MirrorKey, asyncio.Task[None]] = {}
        self._mirrors: dict[MirrorKey, PartitionMirror] = {}
        self._unsettled: dict[MirrorKey, tuple[int, int]] = {}
        """Partition -> the mirror's end, and in how many looks it was that and should not be."""
        self._stops = MirrorStops(config.directory)
        self._followed_at = -FOLLOW_S

    async def run(self) -> None:
        """Until cancelled, or everything up to the ends is mirrored. Raises LogFormatError."""
        while not self.progress.is_over:
            destination = self._open_destination()
            destination.on_wait = self._waits
            rounds = MirrorRounds(self._config, self._source, destination, self.progress)
            try:
                await destination.start()
                await self._run_with(destination, rounds)
            finally:
                await self._end_tasks()
                await destination.stop()
        await self._source.close()

    def _waits(self, reason: str) -> None:
        if reason != self.progress.destination_fault:
            log.warning("waiting for what was brought before: %s", reason or "it is under way")
        self.progress.destination_fault = reason

    async def _run_with(self, destination: Destination, rounds: MirrorRounds) -> None:
        """Run MirrorRounds until the session must be reopened."""
        while not self.progress.is_over:
            waiting = rounds.gate.begin()
            try:
                await self._look(destination, rounds)
            except SourceUnreadable as fault:
                self._say("source", fault, self.progress.source_fault)
                self.progress.lost_source(str(fault))
            except (DestinationFault, MirrorStopped) as fault:
                self._say("destination", fault, self.progress.destination_fault)
                self.progress.destination_fault = str(fault)
            else:
                self.progress.source_fault = self.progress.destination_fault = ""
                for future in waiting:
                    if not future.done():
                        future.set_result(None)
                waiting = []
            self._stops.save()
            rounds.gate.give_back([each for each in waiting if not each.done()])
            if any(destination.is_gone(*key) for key in self._mirrors):
                return  # its mirror was deleted: another run brings the records of the next one
            await self._pause(rounds)

    def _say(self, what: str, fault: MirrorError, before: str) -> None:
        if str(fault) != before:
            log.warning("%s: %s", what, fault)

    async def _pause(self, rounds: MirrorRounds) -> None:
        await asyncio.sleep(SOON_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(rounds.gate.wanted.wait(), LOOK_S - SOON_S)

    # --- one look ---------------------------------------------------------------------------------

    async def _look(self, destination: Destination, rounds: MirrorRounds) -> None:
        state = await rounds.state()
        self.progress.heard_s = self._clock.now()
        topics = rounds.chosen(state)
        if not self._ends.are_known:
            _check_all(rounds.missing(state), topics)
            await self._ends.take(self._source, topics)
        if self._config.until:
            topics = [each for each in topics if each.topic in self._ends.topics]
        pairs = await rounds.pairs(state, topics)
        self._note(destination, pairs)
        self._tend(destination, rounds, pairs)
        await self._follow(rounds, state, pairs)

    def _note(self, destination: Destination, pairs: list[Pair]) -> None:
        """How far everything is."""
        for pair in pairs:
            ends = {each.partition: each.next_offset for each in pair.topic.partitions}
            for each in pair.mirror.partitions:
                known = self.progress.of(pair.mirror.topic, each.partition)
                known.mirrored, known.end = each.next_offset, ends.get(each.partition)
                known.stop = self._ends.of(pair.topic.topic, each.partition)
                known.refused = destination.problem(pair.mirror.topic, each.partition)

    async def _follow(self, rounds: MirrorRounds, state: SourceState, pairs: list[Pair]) -> None:
        """Positions of groups, now and then; and once more when everything is there."""
        is_over = bool(self._config.until) and self._is_over(pairs)
        now = self._clock.now()
        if is_over or now >= self._followed_at + FOLLOW_S:
            await rounds.follow(state, pairs)
            self._followed_at = now
        self.progress.is_over = is_over

    def _is_over(self, pairs: list[Pair]) -> bool:
        """Whether every partition that has an end is there."""
        if self.progress.topics or {pair.topic.topic for pair in pairs} != self._ends.topics:
            return False
        if any(len(pair.mirror.partitions) < len(pair.topic.partitions) for pair in pairs):
            return False
        return all(self._is_there(pair, each) for pair in pairs for each in pair.mirror.partitions)

    def _is_there(self, pair: Pair, here: MirroredPartition) -> bool:
        """Whether a mirror is at its end, or lacks only a batch that spans it."""
        known = self._mirrors.get((pair.mirror.topic, here.partition))
        is_over = known is not None and known.is_over and known.brought_to == here.next_offset
        end = self._ends.of(pair.topic.topic, here.partition) or 0
        return is_over or here.next_offset >= end

    # --- tasks ------------------------------------------------------------------------------------

    def _tend(self, destination: Destination, rounds: MirrorRounds, pairs: list[Pair]) -> None:
        """Have a task for every partition, and end those of what is mirrored no more."""
        wanted: dict[MirrorKey, None] = {}
        for pair in pairs:
            heres = {each.partition: each for each in pair.mirror.partitions}
            for there in pair.topic.partitions:
                key = pair.mirror.topic, there.partition
                wanted[key] = None
                self._compare(pair, there)
                if there.partition not in heres:
                    continue  # no node that answers has it
                if self._is_stuck(destination, key, heres[there.partition]):
                    self._cancel(key)
                elif self._may_begin(destination, pair, heres[there.partition]):
                    self._begin(destination, rounds, pair, (heres[there.partition], there))
        for key in self._tasks.keys() - wanted.keys():
            self._cancel(key)

    def _may_begin(self, destination: Destination, pair: Pair, own: MirroredPartition) -> bool:
        key = pair.mirror.topic, own.partition
        if key in self._tasks or not destination.is_settled(*key):
            return False
        stop = self._stops.get(*key)  # mirroring resumes with another log, and behind a gap
        place = pair.mirror.topic_id, pair.topic.log_id, own.next_offset
        return stop is None or not stop.is_at(*place)

    def _compare(self, pair: Pair, there: SourcePartition) -> None:
        """What was brought has the checksums on which the source's nodes agree."""
        known = self._mirrors.get((pair.mirror.topic, there.partition))
        following = None if known is None else known.following
        if following is None or there.checked_sum is None:
            return
        try:
            following.compare(there.checked_offset, there.checked_sum)
        except MirrorStopped as stopped:
            self._stop(pair, there.partition, str(stopped))

    def _is_stuck(self, destination: Destination, key: MirrorKey, here: MirroredPartition) -> bool:
        """Whether what was brought is settled, and the mirror ends elsewhere, again and again."""
        known = self._mirrors.get(key)
        brought = None if known is None else known.brought_to
        is_idle = key not in self._tasks or not destination.is_settled(*key)
        if is_idle or brought in (None, here.next_offset):
            self._unsettled.pop(key, None)
            return False
        end, looks = self._unsettled.get(key, (here.next_offset, 0))
        self._unsettled[key] = here.next_offset, looks + 1 if end == here.next_offset else 0
        return looks >= LOOKS_UNSETTLED

    def _begin(
        self,
        destination: Destination,
        rounds: MirrorRounds,
        pair: Pair,
        ends: tuple[MirroredPartition, SourcePartition],
    ) -> None:
        topic, (here, there) = pair.topic, ends
        key = pair.mirror.topic, there.partition
        mirror = PartitionMirror(
            self._source,
            destination,
            Where(topic.topic, topic.log_id, there.partition),
            pair.mirror.topic,
            is_ready=rounds.gate.passed,
            skips_archived=self._config.skip_archived,
            stop=self._ends.of(topic.topic, there.partition),
            is_compacted=is_compacted(topic.settings.get(CLEANUP_POLICY, "")),
        )
        self._mirrors[key] = mirror
        known = self.progress.of(*key)
        if known.is_stopped:
            known.problem, known.is_stopped = "", False
        is_new = here.next_offset == 0
        is_late = self._config.begins is MirrorFrom.LATEST
        first = there.next_offset if is_new and is_late else 0
        running = self._run_one(mirror, pair, here, there, first)
        self._tasks[key] = spawn(running, f"mirror of {topic.topic}-{there.partition}")

    async def _run_one(
        self,
        mirror: PartitionMirror,
        pair: Pair,
        here: MirroredPartition,
        there: SourcePartition,
        first: int,
    ) -> None:
        key = pair.mirror.topic, there.partition
        known = self.progress.of(*key)
        try:
            await mirror.run(here, there, first)
            known.problem = ""
            await asyncio.Event().wait()  # it is over: nothing is to be begun again
        except MirrorStopped as stopped:
            self._stop(pair, there.partition, str(stopped))
        except MirrorError as error:
            if str(error) != known.problem:
                log.warning("%s-%d is tried again: %s", *key, error)
            known.problem = str(error)
            await asyncio.sleep(RETRY_S)
        finally:
            self.progress.brought_bytes += mirror.brought_bytes
            mirror.brought_bytes = 0
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]

    def _stop(self, pair: Pair, partition: int, reason: str) -> None:
        """A partition is mirrored no further, before either log is another one."""
        key = pair.mirror.topic, partition
        log.error("%s-%d is mirrored no further: %s", *key, reason)
        known = self.progress.of(*key)
        known.problem, known.is_stopped = reason, True
        for each in pair.mirror.partitions:
            if each.partition == partition:
                stop = MirrorStop(pair.mirror.topic_id, pair.topic.log_id, each.next_offset, reason)
                self._stops.put(*key, stop)
        task = self._tasks.get(key)
        if task is not None and task is not asyncio.current_task():
            self._cancel(key)

    def _cancel(self, key: MirrorKey) -> None:
        self._unsettled.pop(key, None)
        self._mirrors.pop(key, None)
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def _end_tasks(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        self._mirrors.clear()
        await end_all(tasks)


def _what(config: MirrorConfig) -> str:
    """What it restores: another restore in the same directory has other ends."""
    return repr((config.source, config.kafka and config.kafka.bootstrap, config.topics))


def _check_all(missing: Collection[str], topics: Sequence[SourceTopic]) -> None:
    """The ends of all topics are taken at once: none may be out of reach then. Raises
    SourceUnreadable.
    """
    if missing:
        raise SourceUnreadable(f"{', '.join(sorted(missing))}: {MISSING}")
    if not topics:
        raise SourceUnreadable("the source has none of the topics that are to be restored")


def samelog_destination(config: MirrorConfig, cluster: ClientConfig) -> Callable[[], Destination]:
    """What opens the session at a cluster."""

    def opened() -> Destination:
        try:
            return Destination(config, cluster)
        except LogFormatError as error:
            log.error("the session cannot be opened: %s", error)
            raise

    return opened
