"""Fetch sessions (KIP-227): a client names its partitions once, and is told what has changed.

A session is its partitions as the client asked for them last, with what it was told of them; its
epoch counts its requests, so that a request that came twice, or late, is noticed. A node forgets
sessions that nobody uses when it needs the room; clients then begin a new one.

Source: KIP-227 and Kafka's FetchSession. Bounded here in partitions too: a request can name many.

Invariant: a partition is left out of an answer only if it has no records, no error, no other
node to be read from, and the client was told its high watermark and log start before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from samelog.format.steps import StepWork
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicKey,
)
from samelog.kafka.codec.primitives import ELEMENTS_AT_ONCE

NO_SESSION = 0
INITIAL_EPOCH = 0
"""Asks for a new session."""
FINAL_EPOCH = -1
"""Asks for none."""
EPOCH_MAX = (1 << 31) - 1
SESSIONS_MAX = 1000
PARTITIONS_MAX = 200_000
STALE_S = 120.0
"""A session that was not used for so long makes room for another."""

PartitionKey = tuple[TopicKey, int]
WantedTopics = list[tuple[TopicKey, list[FetchPartition]]]
FetchedTopics = list[tuple[TopicKey, list[FetchedPartition]]]


@dataclass(slots=True)
class _CachedPartition:
    """A partition of a session: what is wanted of it, and what was told of it last."""

    asked: FetchPartition
    high_watermark: int = -1
    log_start: int = -1

    def is_news(self, part: FetchedPartition) -> bool:
        """Whether an answer has to hold this; takes down what the client then knows."""
        told = (self.high_watermark, self.log_start)
        # What had an error is told of again when it has none any more.
        self.high_watermark = -1 if part.error else part.high_watermark
        self.log_start = part.log_start
        has_records = any(len(piece) for piece in part.records)
        if part.error or has_records or part.preferred >= 0:
            return True
        return told != (part.high_watermark, part.log_start)


@dataclass(slots=True)
class _FetchSession:
    number: int
    by_id: bool
    used_at: float
    epoch: int = INITIAL_EPOCH + 1
    """Of the next request."""
    partitions: dict[PartitionKey, _CachedPartition] = field(default_factory=dict)
    """Those that an answer held last come last: others have their turn first."""

    def asked(self) -> WantedTopics:
        """All partitions, as a request that names them all; a topic may be there many times."""
        topics: WantedTopics = []
        for (key, _), known in self.partitions.items():
            _add(topics, key, known.asked)
        return topics

    def change(self, request: FetchRequest) -> None:
        """Take over what a request names, and what it wants forgotten."""
        for key, partitions in request.topics:
            for asked in partitions:
                known = self.partitions.setdefault((key, asked.partition), _CachedPartition(asked))
                known.asked = asked
        for key, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((key, index), None)

    def news(self, topics: FetchedTopics) -> FetchedTopics:
        """The partitions of an answer that have changed since the client was told last."""
        kept: FetchedTopics = []
        for key, parts in topics:
            found = [part for part in parts if self._is_news((key, part.partition), part)]
            if found:
                kept.append((key, found))
        return kept

    def _is_news(self, place: PartitionKey, part: FetchedPartition) -> bool:
        known = self.partitions[place]
        is_news = known.is_news(part)
        if is_news:
            self.partitions[place] = self.partitions.pop(place)
        return is_news


def _add(topics: WantedTopics, key: TopicKey, asked: FetchPartition) -> None:
    if not topics or topics[-1][0] != key:
        topics.append((key, []))
    topics[-1][1].append(asked)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What a request wants after all: `topics`, unless it is long; what its answer goes through:
    `finish`.
    """

    topics: WantedTopics
    by_id: bool = False
    opens: bool = False
    session: _FetchSession | None = None
    epoch: int = 0
    """The session's behind the request."""
    is_long: bool = False
    """The session has more partitions than one turn of the event loop handles."""

    def wanting(self) -> StepWork[WantedTopics]:
        """The partitions that are wanted, in steps; each once."""
        topics: WantedTopics = []
        if self.is_long and self.session is not None:
            for (key, _), known in [*self.session.partitions.items()]:
                _add(topics, key, known.asked)
                yield
            return topics
        seen: dict[PartitionKey, FetchPartition] = {}
        for key, parts in self.topics:
            for each in parts:
                seen[key, each.partition] = each
                yield
        for (key, _), each in seen.items():
            _add(topics, key, each)
            yield
        return topics


class FetchSessions:
    """All sessions of a node. Times are seconds of one clock that never goes backwards."""

    def __init__(
        self,
        new_number: Callable[[], int],
        *,
        sessions_max: int = SESSIONS_MAX,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        """`new_number`: chooses a number from 1 to 2^31-1 that nobody guesses."""
        self._new_number = new_number
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._sessions: dict[int, _FetchSession] = {}
        """The one that was used last comes last."""
        self.partitions = 0
        """Of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    # --- requests ---------------------------------------------------------------------------------

    def begin(self, request: FetchRequest, now: float, *, by_id: bool) -> FetchContext:
        """Find out what a request wants. `by_id`: it names topics by id. Raises ApiError."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            return FetchContext(request.topics, by_id, request.session_epoch == INITIAL_EPOCH)
        session = self._find(request, by_id=by_id)
        before = len(session.partitions)
        session.change(request)
        self.partitions += len(session.partitions) - before
        session.epoch = session.epoch % EPOCH_MAX + 1
        session.used_at = now
        self._sessions[session.number] = self._sessions.pop(session.number)
        is_long = len(session.partitions) > ELEMENTS_AT_ONCE
        topics = [] if is_long else session.asked()
        if not session.partitions or self.partitions > self._partitions_max:
            self._remove(session.number)  # told by an answer without a session
            return FetchContext(request.topics)
        return FetchContext(topics, by_id, session=session, epoch=session.epoch, is_long=is_long)

    def _find(self, request: FetchRequest, *, by_id: bool) -> _FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            text = f"there is no fetch session {request.session_id}"
            raise ApiError(ErrorCode.fetch_session_id_not_found, text)
        if session.epoch != request.session_epoch:
            text = f"epoch {request.session_epoch} of a fetch session; it is {session.epoch}"
            raise ApiError(ErrorCode.invalid_fetch_session_epoch, text)
        if session.by_id != by_id:
            text = "a fetch session has names of topics, or ids, not both"
            raise ApiError(ErrorCode.fetch_session_topic_id_error, text)
        return session

    # --- answers ----------------------------------------------------------------------------------

    def finish(self, context: FetchContext, answer: FetchResponse, now: float) -> FetchResponse:
        """The answer as the client is to get it."""
        session = context.session
        if session is None:
            opened = self._opened(context, now) if context.opens else None
            if opened is not None:
                opened.news(answer.topics)
            return replace(answer, session_id=NO_SESSION if opened is None else opened.number)
        if session.epoch != context.epoch:
            return _out_of_turn(session)
        return replace(answer, topics=session.news(answer.topics), session_id=session.number)

    def _opened(self, context: FetchContext, now: float) -> _FetchSession | None:
        asked = {
            (key, each.partition): _CachedPartition(each)
            for key, parts in context.topics
            for each in parts
        }
        return self._open(asked, now, by_id=context.by_id)

    def finishing(
        self, context: FetchContext, topics: FetchedTopics, now: float
    ) -> StepWork[FetchResponse]:
        """As `finish`, in steps, for a long answer."""
        session, opened = context.session, None
        if session is None and context.opens:
            asked = yield from _caching(context)
            session = opened = self._open(asked, now, by_id=context.by_id)
        if session is None:
            return FetchResponse(0, topics, session_id=NO_SESSION)
        epoch = session.epoch if opened else context.epoch
        kept: FetchedTopics = []
        for key, parts in topics:
            for part in parts:
                if session.epoch != epoch:
                    return _out_of_turn(session)
                kept += session.news([(key, [part])])
                yield
        return FetchResponse(0, topics if opened else kept, session_id=session.number)

    def _open(
        self, asked: dict[PartitionKey, _CachedPartition], now: float, *, by_id: bool
    ) -> _FetchSession | None:
        """A new session, or none where there is no room."""
        if not asked or not self._has_room(len(asked), now):
            return None
        number = self._new_number()
        while number in self._sessions:
            number = self._new_number()
        session = _FetchSession(number, by_id, now, partitions=asked)
        self._sessions[number] = session
        self.partitions += len(asked)
        return session

    def _has_room(self, count: int, now: float) -> bool:
        while not self._fits(count):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_at <= STALE_S:
                return False
            self._remove(oldest.number)
        return True

    def _fits(self, count: int) -> bool:
        is_one_more = len(self._sessions) < self._sessions_max
        return is_one_more and self.partitions + count <= self._partitions_max

    def _remove(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self.partitions -= len(session.partitions)


def _caching(context: FetchContext) -> StepWork[dict[PartitionKey, _CachedPartition]]:
    """The partitions of a new session."""
    asked: dict[PartitionKey, _CachedPartition] = {}
    for key, wanted in context.topics:
        for each in wanted:
            asked[key, each.partition] = _CachedPartition(each)
            yield
    return asked


def _out_of_turn(session: _FetchSession) -> FetchResponse:
    """The next request came before this one was answered."""
    error = int(ErrorCode.invalid_fetch_session_epoch)
    return FetchResponse(error, [], session_id=session.number)
