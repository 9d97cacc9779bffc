"""One look at both clusters after the other: which mirrors there are to be, with which settings and
schemas, and where groups are.

Whoever has read batches waits for the next look that began afterwards: by then the schemas are at
the mirror that these batches may have been written with.

Invariant: of a topic, nothing of its batches is brought before the schemas that the source had when
they were read; positions of groups come from a look at the source, never from anything else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from samelog.admin import mirror_requests as asked
from samelog.admin.mirror_answers import MirrorInfo, SourceState, SourceTopic
from samelog.config.tables.mirror import MirrorConfig
from samelog.mirror.choosing import copied_settings, is_chosen, matches, mirror_name
from samelog.mirror.destination import Destination
from samelog.mirror.errors import MirrorStopped
from samelog.mirror.progress import MirrorProgress
from samelog.mirror.source import SourceCluster
from samelog.placement.cluster_ids import root_of

log = logging.getLogger(__name__)

POSITIONS_AT_ONCE = 500
MISSING = "nobody who answers has some of its partitions"


@dataclass(slots=True)
class SchemaGate:
    """Lets through whoever came before a look began, once that look is over."""

    _waiting: list[asyncio.Future[None]] = field(default_factory=list)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

    async def passed(self) -> None:
        """Return behind a look that begins from now on."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.wanted.set()
        await future

    def begin(self) -> list[asyncio.Future[None]]:
        """A look begins: who waits for it."""
        waiting, self._waiting = self._waiting, []
        self.wanted.clear()
        return waiting

    def give_back(self, waiting: list[asyncio.Future[None]]) -> None:
        """The look failed: they wait for the next one."""
        self._waiting = [*waiting, *self._waiting]
        if self._waiting:
            self.wanted.set()


@dataclass(slots=True)
class Pair:
    """A topic of the source and its mirror, as both are now."""

    topic: SourceTopic
    mirror: MirrorInfo


class MirrorRounds:
    """One sidecar's."""

    def __init__(
        self,
        config: MirrorConfig,
        source: SourceCluster,
        destination: Destination,
        progress: MirrorProgress,
    ) -> None:
        self._config = config
        self._source = source
        self._destination = destination
        self._progress = progress
        self.gate = SchemaGate()
        self._sent: dict[str, set[asked.GroupPosition]] = {}
        """Mirror -> positions that are there."""
        self._since: dict[str, tuple[asked.SchemaSince, ...]] = {}

    async def state(self) -> SourceState:
        """The source now. Raises SourceUnreadable, MirrorStopped."""
        return await self._source.state(self._config.topics, self._config.groups)

    def chosen(self, state: SourceState) -> list[SourceTopic]:
        """The topics that are to be mirrored."""
        patterns = self._config.topics
        return [
            each
            for each in state.topics
            if is_chosen(patterns, each.topic, is_mirror=each.is_mirror)
        ]

    async def pairs(self, state: SourceState, topics: list[SourceTopic]) -> list[Pair]:
        """These topics, and their mirrors, made if need be. Raises DestinationFault."""
        rows = await self._destination.mirrors()
        if root_of(rows.cluster_id) == root_of(state.cluster_id):
            raise MirrorStopped("source and destination are the same cluster")
        known = {each.topic: each for each in rows.mirrors}
        found, refused = [], dict.fromkeys(self.missing(state), MISSING)
        for topic in topics:
            name = mirror_name(self._config.named, topic.topic)
            try:
                found.append(Pair(topic, await self._mirror(state, topic, name, known.get(name))))
            except MirrorStopped as stopped:
                refused[topic.topic] = str(stopped)
        for topic_name in refused.keys() - self._progress.topics.keys():
            log.error("%s is not mirrored: %s", topic_name, refused[topic_name])
        self._progress.topics = refused
        return found

    def missing(self, state: SourceState) -> list[str]:
        """The topics that are to be mirrored, and of which some partition is out of reach."""
        patterns = self._config.topics
        return [name for name in state.placed if is_chosen(patterns, name, is_mirror=False)]

    async def _mirror(
        self, state: SourceState, topic: SourceTopic, name: str, known: MirrorInfo | None
    ) -> MirrorInfo:
        """The mirror of a topic, as it is to be. Raises MirrorStopped, DestinationFault."""
        if known is not None and (known.promoted_ms >= 0 or known.is_ending):
            raise MirrorStopped(f"{name} was promoted, and is a topic of its own")
        settings = copied_settings(topic.settings)
        wanted = asked.PutMirror(
            name,
            len(topic.partitions),
            settings,
            root_of(state.cluster_id),
            topic.topic,
            topic.log_id,
            (*topic.origins, root_of(state.cluster_id)),
            self._source.keeps_epochs,
        )
        if known is None or not _is_as_wanted(known, wanted):
            known = await self._destination.put(wanted)
        if topic.schemas > known.schemas:
            await self._copy_schemas(topic.topic, known)
        return known

    async def _copy_schemas(self, topic: str, mirror: MirrorInfo) -> None:
        texts = await self._source.schemas(topic)
        for version, text in islice(enumerate(texts), mirror.schemas, None):
            await self._destination.copy_schema(mirror.topic, version, text)

    # --- positions --------------------------------------------------------------------------------

    async def follow(self, state: SourceState, pairs: list[Pair]) -> None:
        """Let groups be where they are at the source, as far as their mirrors are reachable."""
        for pair in pairs:
            await self._follow(state, pair)

    async def _follow(self, state: SourceState, pair: Pair) -> None:
        ends = {each.partition: each.next_offset for each in pair.mirror.partitions}
        news = sorted(
            self._positions(state, pair, ends) - self._sent.get(pair.mirror.topic, set()),
            key=lambda each: (each.group, each.partition),
        )
        since = _since(pair, ends)
        since = () if self._since.get(pair.mirror.topic) == since else since
        while news or since:
            now, news = news[:POSITIONS_AT_ONCE], news[POSITIONS_AT_ONCE:]
            request = asked.FollowMirrored(pair.mirror.topic, tuple(now), since)
            own = await self._destination.follow(pair.mirror, request)
            self._progress.own_groups[pair.mirror.topic] = own
            self._note(pair, now, ends)
            if since:
                self._since[pair.mirror.topic], since = since, ()

    def _positions(
        self, state: SourceState, pair: Pair, ends: Mapping[int, int]
    ) -> set[asked.GroupPosition]:
        return {
            asked.GroupPosition(
                each.group,
                each.partition,
                each.offset,
                each.leader_epoch if self._source.keeps_epochs else -1,
                each.metadata,
                each.at_ms,
            )
            for each in state.positions
            if (each.topic == pair.topic.topic and each.partition in ends)
            and any(matches(pattern, each.group) for pattern in self._config.groups)
        }

    def _note(self, pair: Pair, sent: list[asked.GroupPosition], ends: Mapping[int, int]) -> None:
        """What was beyond the mirror's end is sent again."""
        there = {each for each in sent if each.offset <= ends[each.partition]}
        self._sent.setdefault(pair.mirror.topic, set()).update(there)


def _since(pair: Pair, ends: Mapping[int, int]) -> tuple[asked.SchemaSince, ...]:
    return tuple(
        asked.SchemaSince(each.partition, tuple(asked.VersionFrom(*begin) for begin in each.since))
        for each in pair.topic.partitions
        if each.since and each.partition in ends
    )


def _is_as_wanted(known: MirrorInfo, wanted: asked.PutMirror) -> bool:
    same_log = (known.cluster_id, known.source_topic, known.log_id) == (
        wanted.cluster_id,
        wanted.source_topic,
        wanted.log_id,
    )
    has_settings = all(known.settings.get(key) == value for key, value in wanted.settings.items())
    return same_log and has_settings and known.partition_count >= wanted.partitions
