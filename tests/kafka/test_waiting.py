"""Requests that wait inside a node: each has a deadline, or an owner that answers it when the part
ends that it waits for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from samelog.kafka.apis import produce
from samelog.kafka.apis.produce import ProduceWork
from samelog.kafka.clients.pipeline import PipelineLimits
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.groups import driver
from samelog.kafka.groups.driver import GroupDriver
from samelog.kafka.groups.outbox import Round
from samelog.kafka.producer_log import NOT_TAKEN, ProducerLog, _Waiting
from samelog.kafka.server.connection import KafkaConnection
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.data_groups import stages
from samelog.sequencer.data_groups.stages import Stages
from samelog.sequencer.state.machine import StateMachine
from tests.runtime.peers import until

SOON_S = 20.0
"""Many times what these requests wait for."""
FRAME = (8).to_bytes(4, "big") + bytes(8)


@pytest.mark.parametrize("is_task", [True, False])
def test_a_request_whose_part_ends_ends_its_connection(*, is_task: bool) -> None:
    """It was never answered, nor was anything behind it on the connection."""
    ended: list[str] = []

    async def main() -> None:
        part: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def waits() -> None:
            await part

        outcome = waits() if is_task else part
        started = SimpleNamespace(outcome=outcome, api=None)
        dispatcher: Any = SimpleNamespace(start=lambda client, frame: started)
        memory: Any = SimpleNamespace(hold=lambda *_: None, is_short=False)
        client: Any = SimpleNamespace(identity="user", who="user", rejected="", at_end=[])
        connection = KafkaConnection(
            dispatcher,
            PipelineLimits(),
            memory,
            admit=lambda *_: client,
            ended=lambda _, reason: ended.append(reason),
        )
        transport: Any = SimpleNamespace(
            set_write_buffer_limits=lambda *_: None,
            get_write_buffer_size=lambda: 0,
            is_closing=lambda: True,
            close=lambda: connection.connection_lost(None),
            abort=lambda: connection.connection_lost(None),
        )
        connection.connection_made(transport)
        connection.data_received(FRAME)
        await asyncio.sleep(0)
        part.cancel()
        await until(lambda: bool(ended))

    asyncio.run(main())
    assert ended == ["the node stopped working on a request"]


def test_a_group_request_whose_decision_is_not_committed_is_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        group: Any = SimpleNamespace(
            is_leader=True,
            raft=SimpleNamespace(term=1),
            ask=lambda commands: (1, loop.create_future()),
        )
        clock: Any = SimpleNamespace(time=0.0)
        clock.now = lambda: clock.time
        nothing: Any = SimpleNamespace(group=group)
        groups = GroupDriver(nothing, nothing, clock, nothing)
        waits = loop.create_future()
        rounds = deque([Round(["decided"], [(waits, "answer")])])  # type: ignore[list-item]
        coordinator: Any = SimpleNamespace(drain=lambda: rounds.popleft() if rounds else Round())
        groups._coordinator, groups._term = coordinator, 1
        with (
            patch.object(driver, "_entries", lambda commands: [commands]),
            patch.object(GroupDriver, "_current", lambda self: coordinator),
        ):
            groups.start()
            await until(lambda: groups._held_since is not None)
            assert not waits.done()
            clock.time = 60.0
            async with asyncio.timeout(SOON_S):
                await until(waits.done)
            assert waits.result() is None
            groups.close()

    asyncio.run(main())


def test_a_batch_whose_partition_is_not_opened_in_time_is_answered() -> None:
    """After a restart of a node each data group waited for its own earlier run, one after the
    other, and all other requests of the client waited behind that.
    """

    async def opens(self: ProduceWork, write: Any) -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> Any:
        async def look_for(keys: Any) -> None:
            return None

        asked = SimpleNamespace(partition=0, records=memoryview(b""))
        request: Any = SimpleNamespace(
            acks=-1, timeout_ms=10, transactional_id=None, topics=[("t", [asked])]
        )
        call: Any = SimpleNamespace(version=9, broker=SimpleNamespace(look_for=look_for))
        with (
            patch.object(ProduceWork, "_appended", lambda self, write: False),
            patch.object(ProduceWork, "_open", opens),
            patch.object(produce, "LEAST_TIMEOUT_MS", produce.LEAST_TIMEOUT_MS / 1000),
        ):
            answer: Any = ProduceWork(call, request).start()
            async with asyncio.timeout(SOON_S):
                return await answer

    response = asyncio.run(main())
    [(_, [partition])] = response.topics
    assert partition.error is ErrorCode.request_timed_out


def test_batches_of_a_log_that_is_closed_are_not_taken() -> None:
    async def main() -> Any:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        intake = SimpleNamespace(checker=None, unwatch_verdicts=lambda log: None)
        logs: Any = SimpleNamespace(machine=StateMachine(), sessions=None, intake=intake)
        log = ProducerLog("n0", 0, logs)
        log._waiting[1] = deque([_Waiting((0, 0), 1, outcome)])
        log.close()
        return outcome.result()

    assert asyncio.run(main()) == NOT_TAKEN


def test_a_writer_of_a_stage_hears_of_a_batch_that_is_not_begun_in_time() -> None:
    async def main() -> None:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        raft: Any = SimpleNamespace(
            staging=SimpleNamespace(lead=lambda: None),
            group=SimpleNamespace(ask=lambda commands: (1, never)),
        )
        nothing: Any = None
        clock: Any = SimpleNamespace(wall_ms=lambda: 1)
        held = Stages(
            0, machine=StateMachine(), raft=raft, data_groups=nothing, send=nothing, clock=clock
        )
        request: Any = SimpleNamespace(stage="s", writer="w", batch=0, runs=[])
        with patch.object(stages, "DECIDE_S", stages.DECIDE_S / 1000):
            async with asyncio.timeout(SOON_S):
                with pytest.raises(ChangeRefused):
                    await held._begin(request)

    asyncio.run(main())


def test_groups_at_rest_are_looked_at_seldom_and_soon_behind_a_request() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        group: Any = SimpleNamespace(is_leader=False, raft=SimpleNamespace(term=1))
        clock: Any = SimpleNamespace(now=lambda: 7.0)
        nothing: Any = SimpleNamespace(group=group)
        groups = GroupDriver(nothing, nothing, clock, nothing)

        def left_s() -> float:
            assert groups._timer is not None
            return groups._timer.when() - loop.time()

        groups._tick()
        assert left_s() > driver.TICK_S
        groups._turn()
        assert left_s() <= driver.TICK_S
        groups._coordinator = cast(Any, SimpleNamespace(next_deadline=lambda: 7.2))
        assert driver.TICK_S < groups._pause_s < driver.REST_S
        groups._waiting.add(loop.create_future())
        assert groups._pause_s == driver.TICK_S
        groups.close()

    asyncio.run(main())
