"""Following other nodes' own sessions: what keeps a data group from resting, and what does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.replicator.pull.handles import PullRefused
from samelog.sequencer.ingest.following import LOOK_S, Following
from samelog.sequencer.state.tables.sessions import Input, OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import DeleteTopicCommand
from samelog.wire.errors import FaultCode
from tests.sequencer.test_ending import TOPIC, data_group

OTHER = 2


class Pulls:
    """A way to node 2, which refuses, or has more for ever."""

    def __init__(self, refusal: FaultCode | None) -> None:
        self.refusal = refusal
        self.asked = 0

    def get(self, number: int) -> Any:
        return self

    async def follow(self, *_: Any) -> None:
        self.asked += 1
        if self.refusal is not None:
            raise PullRefused(self.refusal, "it has nothing of that", "")
        await asyncio.get_running_loop().create_future()


async def prepare(entry: Input) -> None:
    """The files of an input are open."""


@pytest.mark.parametrize("refusal", [FaultCode.NOT_READY, None])
def test_who_has_nothing_to_give_keeps_nobody_awake(refusal: FaultCode | None) -> None:
    """A node that lost its directory has none of its own session; the others asked for ever."""

    async def body() -> None:
        machine, clock, pulls = data_group(), SimpleNamespace(time=0.0), Pulls(refusal)
        clock.now = lambda: clock.time
        session = f"kafka-{OTHER}"
        machine.apply(OpenRunCommand(session, "d", "i", 0, "r", None, None))
        machine.apply(OpenInputCommand(session, TOPIC, 0))
        intake: Any = SimpleNamespace(prepare=prepare, position=lambda entry: (0, 0))
        others: Any = pulls
        clocks: Any = clock
        following = Following(
            0, others, machine=machine, intake=intake, clock=clocks, is_there=lambda node: True
        )
        following.tick()
        for _ in range(5):  # turns of the loop
            await asyncio.sleep(0)
        assert not following.is_busy
        clock.time += 2 * LOOK_S
        following.tick()
        for _ in range(5):
            await asyncio.sleep(0)
        assert pulls.asked == (1 if refusal is None else 2), (
            "while it is at work, it is asked again"
        )
        await following.close()

    asyncio.run(body())


def test_an_input_that_goes_before_its_stream_begins_is_not_asked_for() -> None:
    """The topic is deleted in the turn in which the stream is due."""

    async def body() -> None:
        machine, pulls = data_group(), Pulls(None)
        session = f"kafka-{OTHER}"
        machine.apply(OpenRunCommand(session, "d", "i", 0, "r", None, None))
        machine.apply(OpenInputCommand(session, TOPIC, 0))
        intake: Any = SimpleNamespace(
            prepare=prepare, position=lambda entry: machine.state.sessions.inputs[entry.number]
        )
        others: Any = pulls
        clock: Any = SimpleNamespace(now=lambda: 1.0)
        following = Following(
            0, others, machine=machine, intake=intake, clock=clock, is_there=lambda node: True
        )
        following.tick()
        (stream,) = following._busy.values()
        machine.apply(DeleteTopicCommand(TOPIC))
        await stream
        assert pulls.asked == 0
        await following.close()

    asyncio.run(body())
