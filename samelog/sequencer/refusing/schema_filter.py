"""Leaves out, when a leader plans, records that do not fit their topic's schema, where the topic's
`schema.enforce` is `node`.

What an input brings is checked in another process; until that has answered, the input is not
planned, and all others are. Of a publisher's batch the records that do not fit are left out; a
batch of a Kafka client is refused as a whole, as Kafka's brokers do, as if it had never come.

Invariant: nothing is planned that was not checked by the version that the instruction names; what
is refused of a publisher is told in the same instruction, and more is refused only when the
publisher has kept what was before. Nothing is refused by what the cluster knows better by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

from samelog.config.authorisation import NODE_PREFIX
from samelog.format.batch import read_header, runs_of
from samelog.runtime.log import log_event
from samelog.sequencer.judging.process import BatchJudge, CannotCheck
from samelog.sequencer.merge.drafts import Draft, LeftOut
from samelog.sequencer.merge.filters import GivenBatch, InputWaits, flags_of
from samelog.sequencer.refusing.verdicts import By, Verdicts
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.topics import Topic
from samelog.typed.enforcing import is_judged, oldest_accepted
from samelog.typed.judging import BatchMisfits, Terms
from samelog.wire.refusals import RefusedBatch, ToldMisfit

log = logging.getLogger(__name__)

TASK_BYTES = 128 << 10
"""Asked for together, unless one batch is larger: others have the process in between."""
REFUSED_MOST = 8192
"""What is refused of an input and not kept by its publisher, in numbers (RefusedBatch.weight)."""
LOOK_S = 0.1
AGAIN_AFTER_S = 2.0
GIVE_AWAY_AFTER_S = 30.0
"""Between two times that a node which cannot check gives the leadership away."""


class SchemaFilter:
    """One replica's. Implements merge.filters.MergeFilter."""

    def __init__(
        self,
        machine: StateMachine,
        judge: BatchJudge,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        *,
        cluster: StateMachine,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`cluster`: of group 0; `catch_up`: wait until it has what was committed before, or raise
        TimeoutError.
        """
        self.plan_inputs: Callable[[Iterable[int]], None] = lambda numbers: None
        """To be called when these may be planned again."""
        self.hand_over: Callable[[], None] = lambda: None
        """Let another voter lead, if one can."""
        self.refused_records = 0
        """That this leader has planned to leave out, or refuse."""
        self._machine = machine
        self._judge = judge
        self._spawn = spawn
        self._cluster = cluster
        self._catch_up = catch_up
        self._verdicts = Verdicts()
        self._put_off: set[int] = set()
        """Inputs that wait for room among what is asked."""
        self._crowded: set[int] = set()
        """Inputs whose publishers have to keep what was refused, first."""
        self._troubles: dict[str, str] = {}
        self._gave_at = -GIVE_AWAY_AFTER_S
        self._last: LeftOut | None = None

    @property
    def troubles(self) -> list[str]:
        """Topics that cannot be checked here, and why."""
        state = self._machine.state
        found = self._troubles.keys() & state.schemas.enforced.keys()
        topics = state.topics.by_id
        return [
            f"records of {topics[each].name!r} cannot be checked: {self._troubles[each]}"
            for each in sorted(found)
        ]

    def concerns(self, partition: int) -> bool:
        """Whether records of a partition are to be checked; those of mirrors were."""
        state = self._machine.state
        known = state.partitions.by_number.get(partition)
        is_meant = known is not None and known.topic_id in state.schemas.enforced
        return is_meant and partition not in state.mirrors.places

    def is_ready(self, partition: int, next_offset: int) -> bool:
        """Each batch is asked for by itself."""
        return True

    # --- asking -----------------------------------------------------------------------------------

    def look_ahead(self, draft: Draft, entry: Input, batches: Sequence[bytes]) -> None:
        """Have them checked that were not."""
        topic = self._topic(draft.partition)
        version = draft.left.version = len(topic.schemas)
        if not version:
            return
        draft.left.oldest = oldest_accepted(topic.settings, version)
        by = version, draft.left.oldest
        wanted = self._verdicts.begin(entry.number, by, batches)
        if wanted is None:
            self._put_off.add(entry.number)
            return
        if not wanted:
            return
        draft.left.asked += 1
        texts = self._machine.state.schema_texts(topic.topic_id, version)
        for together in tasks(wanted):
            self._spawn(self._ask(topic, texts, (by, entry, draft.left.later), together))

    def look_behind(self, partition: int, batches: bytes) -> bool:
        """Each input waits by itself."""
        return True

    def _topic(self, partition: int) -> Topic:
        state = self._machine.state
        return state.topics.by_id[state.partitions.by_number[partition].topic_id]

    async def _ask(
        self,
        topic: Topic,
        texts: Sequence[str],
        what: tuple[By, Input, Sequence[int]],
        batches: list[bytes],
    ) -> None:
        """Have some batches checked; then their input is planned again, and those that wait."""
        by, entry, later = what
        found: Sequence[BatchMisfits] = ()
        try:
            terms = Terms(oldest=by[1])
            found = await self.judged(topic, texts, entry.session, batches, terms=terms) or ()
        finally:
            self._verdicts.end(entry.number, by, batches, found)
        again, self._put_off = {entry.number, *later, *self._put_off}, set()
        self.plan_inputs(again)

    async def judged(
        self,
        topic: Topic,
        texts: Sequence[str],
        session: str,
        batches: Sequence[bytes],
        *,
        terms: Terms,
    ) -> Sequence[BatchMisfits] | None:
        """What of these does not fit; None: nobody can say now, which is told."""
        key = f"{topic.topic_id} {len(texts)}"
        try:
            found = await self._judge.judge(session, key, texts, batches, terms=terms)
        except CannotCheck as why:
            await self._failed(topic, why)
            return None
        self._troubles.pop(topic.topic_id, None)
        if any(each.records for each in found):
            by = len(texts), terms.oldest
            return found if await self._is_current(topic.topic_id, by) else None
        return found

    async def _is_current(self, topic_id: str, by: By) -> bool:
        """Whether the cluster says of a topic what it was judged by: a data group hears of it later
        than who publishes may.
        """
        try:
            await self._catch_up()
        except TimeoutError:
            return False
        known = self._cluster.state.topics.by_id.get(topic_id)
        is_current = known is None or not _is_newer(known, by)
        if not is_current:
            await asyncio.sleep(LOOK_S)
        return is_current

    async def _failed(self, topic: Topic, why: CannotCheck) -> None:
        """Nothing is taken unchecked: somebody else may lead, or it is tried again."""
        if self._troubles.get(topic.topic_id) != str(why):
            self._troubles[topic.topic_id] = str(why)
            log_event(log, logging.ERROR, "records not checked", topic=topic.name, why=why)
        now = asyncio.get_running_loop().time()
        if why.is_for_long and now - self._gave_at >= GIVE_AWAY_AFTER_S:
            self._gave_at = now
            self.hand_over()
        await asyncio.sleep(AGAIN_AFTER_S)

    # --- judging ----------------------------------------------------------------------------------

    def staying(self, draft: Draft, given: GivenBatch, runs: Sequence[int]) -> Sequence[int] | None:
        """Which records fit, of those that stay; None: a Kafka client's batch has one that does
        not. Raises InputWaits.
        """
        self._last = None
        version = draft.left.version
        if not version:
            return runs
        by = version, draft.left.oldest
        found = self._verdicts.find(given.entry.number, by, given.data)
        if found is None:
            raise InputWaits("its records are not checked yet")
        if not found.records:
            return runs
        return self._without(draft, given, runs, found)

    def _without(
        self, draft: Draft, given: GivenBatch, runs: Sequence[int], found: BatchMisfits
    ) -> Sequence[int] | None:
        stays = [*flags_of(runs, read_header(given.data).records)]
        is_whole = self._is_whole(given)
        unfit = {record for record in found.records if is_whole or stays[record]}
        if not unfit:
            return runs
        fits = [record not in unfit for record in range(len(stays))]
        self._refuse(draft, given, fits, found)
        self.refused_records += len(stays) if is_whole else len(unfit)
        if is_whole:
            return None
        return runs_of(stays[record] and fit for record, fit in enumerate(fits))

    def _is_whole(self, given: GivenBatch) -> bool:
        """Whether all of a batch is taken, or nothing: a Kafka client's."""
        run = self._machine.state.sessions.open_run_of(given.entry.session)
        is_twins = run is not None and run.dedup_id is not None
        return self._is_nodes(given.entry) or (given.producer_id >= 0 and not is_twins)

    def _is_nodes(self, entry: Input) -> bool:
        return self._machine.state.sessions.by_name[entry.session].identity.startswith(NODE_PREFIX)

    def _refuse(
        self, draft: Draft, given: GivenBatch, fits: Sequence[bool], found: BatchMisfits
    ) -> None:
        """Have the instruction tell of it. Raises InputWaits."""
        entry, place = given.entry, (given.roll, given.start, len(given.data))
        misfits = tuple(ToldMisfit(*each) for each in found.told if not fits[each[0]])
        batch = RefusedBatch(entry.number, entry.run, *place, tuple(runs_of(fits)), misfits)
        if not self._is_nodes(entry):
            proposed = [each for each in draft.left.refused if each.input == entry.number]
            if sum(each.weight for each in (*entry.refused, *proposed)) > REFUSED_MOST:
                self._wait_for(entry)
                raise InputWaits("its publisher has to keep first what was refused before")
        draft.left.refuse(batch)
        self._last = draft.left

    def _wait_for(self, entry: Input) -> None:
        if entry.number not in self._crowded:
            self._crowded.add(entry.number)
            self._spawn(self._plan_when_kept(entry.number, len(entry.refused)))

    async def _plan_when_kept(self, number: int, before: int) -> None:
        """Its publisher may be away for long: then it waits, and nobody else does."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                entry = self._machine.state.sessions.inputs.get(number)
                if entry is None or len(entry.refused) < before or not entry.refused:
                    break
        finally:
            self._crowded.discard(number)
        self.plan_inputs([number])

    def take_back(self) -> None:
        """What was said last is not planned."""
        if self._last is not None:
            self._last.take_back()
            self._last = None

    def reset(self) -> None:
        """What was said of bytes stays true."""
        self._last = None


def _is_newer(known: Topic, by: By) -> bool:
    """Whether the cluster has other versions or settings than records were judged by."""
    version, oldest = by
    is_same = is_judged(known.settings) and oldest_accepted(known.settings, version) == oldest
    return len(known.schemas) > version or not is_same


def tasks(batches: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Batches in groups that are asked for together."""
    together: list[bytes] = []
    size = 0
    for batch in batches:
        if together and size + len(batch) > TASK_BYTES:
            yield together
            together, size = [], 0
        together.append(batch)
        size += len(batch)
    if together:
        yield together
