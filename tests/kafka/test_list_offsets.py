"""ListOffsets without a cluster: when it asks what is committed, and who shares the answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from samelog.kafka.apis.list_offsets import EARLIEST, LATEST, list_offsets
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.list_offsets import ListOffsetsRequest, ListOffsetsResponse, OffsetWanted
from samelog.kafka.read_rounds import ReadRounds
from tests.runtime.peers import until


class Rounds:
    """Rounds that end when they are told to; counts them."""

    def __init__(self) -> None:
        self.begun = 0
        self._ends: list[asyncio.Future[ApiError | None]] = []

    async def catch_up(self) -> None:
        """Wait for `end`."""
        self.begun += 1
        end: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        error = await end
        if error is not None:
            raise error

    def end(self, error: ApiError | None = None) -> None:
        """The one under way."""
        self._ends.pop().set_result(error)


def topic_named(name: str) -> Any:
    return SimpleNamespace(name=name, is_placed=False) if name == "t" else None


class Asked:
    """One partition, as a broker has it."""

    def __init__(self, *, leads: bool) -> None:
        self.rounds = Rounds()
        log = SimpleNamespace(start_offset=3, next_offset=9, epoch_at=lambda _: 2)
        stream = SimpleNamespace(log=log, fault=None)
        self.end = 9
        self.broker = SimpleNamespace(
            leads=leads,
            epoch=4,
            is_syncing=False,
            topic=topic_named,
            shown=topic_named,
            epoch_of=lambda topic, index: 4,
            may_read=lambda *_: True,
            partition=lambda *_: stream,
            committed=lambda *_: self.end,
            log_start=lambda *_: 0,
            read_rounds=ReadRounds(self.rounds.catch_up),
        )

    def ask(self, *timestamps: int, topic: str = "t") -> Any:
        """What the handler returns."""
        wanted = [OffsetWanted(0, -1, timestamp) for timestamp in timestamps]
        call: Any = SimpleNamespace(
            broker=self.broker, client=None, client_id="", version=7, is_long=False
        )
        return list_offsets.handle(call, ListOffsetsRequest([(topic, wanted)]))


def offsets(answer: ListOffsetsResponse) -> list[tuple[int, int]]:
    return [(part.offset, part.epoch) for part in answer.topics[0][1]]


def test_a_leader_knows_where_its_log_begins() -> None:
    assert offsets(Asked(leads=True).ask(EARLIEST)) == [(3, 2)]


def test_all_who_ask_before_a_round_share_it_and_others_wait_for_the_next() -> None:
    async def body() -> None:
        asked = Asked(leads=True)
        first = [asked.ask(LATEST), asked.ask(EARLIEST, LATEST), asked.ask(EARLIEST, topic="u")]
        await until(lambda: asked.rounds.begun == 1)
        late = asked.ask(LATEST)
        asked.end = 12
        asked.rounds.end()
        ends, both, unknown = [await future for future in first]
        assert (offsets(ends), offsets(both)) == ([(12, 4)], [(3, 2), (12, 4)])
        assert unknown.topics[0][1][0].error == ErrorCode.unknown_topic_or_partition
        await until(lambda: asked.rounds.begun == 2)
        assert not late.done()
        asked.rounds.end()
        assert offsets(await late) == [(12, 4)]
        assert asked.rounds.begun == 2

    asyncio.run(body())


def test_who_does_not_lead_asks_for_the_beginning_too() -> None:
    async def body() -> None:
        asked = Asked(leads=False)
        found = asked.ask(EARLIEST)
        await until(lambda: asked.rounds.begun == 1)
        assert not found.done()
        asked.rounds.end(ApiError(ErrorCode.leader_not_available, "nobody leads"))
        part = (await found).topics[0][1][0]
        assert (part.error, part.offset) == (ErrorCode.leader_not_available, -1)

    asyncio.run(body())


def test_who_has_gone_is_not_answered_and_others_are() -> None:
    async def body() -> None:
        asked = Asked(leads=True)
        gone, stays = asked.ask(LATEST), asked.ask(LATEST)
        await until(lambda: asked.rounds.begun == 1)
        gone.cancel()
        asked.rounds.end()
        assert offsets(await stays) == [(9, 4)]

    asyncio.run(body())
