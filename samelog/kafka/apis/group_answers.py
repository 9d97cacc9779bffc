"""What the API files of groups share: who may ask, and how the coordinator's answer becomes the
client's.

Invariant: a request is answered whatever becomes of this node's leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from samelog.format.steps import StepWork
from samelog.kafka.api import KafkaResponse, MaybeResponse, NodeCall, Reply
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.schemas import TopicAnswers
from samelog.kafka.groups.driver import CoordinatorAnswer, CoordinatorCall
from samelog.runtime.slices import paced
from samelog.sequencer.state.places import place_of
from samelog.sequencer.state.tables.topics import Topic

NEVER_FLEXIBLE = 1 << 15
ResponseT = TypeVar("ResponseT")


def ask_coordinator(
    call: NodeCall,
    question: CoordinatorCall,
    make: Callable[[Any], KafkaResponse],
    refuse: Callable[[ErrorCode], KafkaResponse],
    *,
    group: str | None = None,
) -> Reply:
    """Ask the coordinator: `make` of its answer, `refuse` of the error if there is none. `group`:
    the one that the client needs a right to; None if the caller has seen to rights itself.
    """
    error = ErrorCode.none if group is None else check_group(call, group)
    if error is not ErrorCode.none:
        return refuse(error)
    asked = call.broker.groups.ask(question)
    if asked.done() and asked.result() is None:
        return refuse(ErrorCode.not_coordinator)
    response: asyncio.Future[MaybeResponse] = asyncio.get_running_loop().create_future()

    def done(answer: CoordinatorAnswer) -> None:
        if response.done() or answer.cancelled():
            return
        found = answer.result()
        response.set_result(refuse(ErrorCode.not_coordinator) if found is None else make(found))

    asked.add_done_callback(done)
    return response


async def ask_in_steps(
    call: NodeCall,
    question: CoordinatorCall,
    make: Callable[[Any], StepWork[KafkaResponse]],
    refuse: Callable[[ErrorCode], KafkaResponse],
) -> KafkaResponse:
    """As `ask_coordinator`, where the coordinator answers with steps, as `make` does."""
    looking: Any = await call.broker.groups.ask(question)
    if looking is None:
        return refuse(ErrorCode.not_coordinator)
    return await paced(make(await paced(looking)))


def as_it_is(answer: KafkaResponse) -> KafkaResponse:
    """What the coordinator answers is the response."""
    return answer


def check_group(call: NodeCall, group: str) -> ErrorCode:
    """Whether a client may use a group."""
    may = call.broker.may_use_group(call.client, group)
    return ErrorCode.none if may else ErrorCode.group_authorization_failed


def by_topic(partitions: Iterable[tuple[str, ResponseT]]) -> list[TopicAnswers[ResponseT]]:
    """(topic, what is answered of a partition), as the protocol nests them."""
    topics: dict[str, list[ResponseT]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [TopicAnswers(*topic) for topic in topics.items()]


def with_topics(
    call: NodeCall, numbers: Iterable[int]
) -> StepWork[Iterable[tuple[Topic, Sequence[int]]]]:
    """Find (topic, indexes) of partitions by their cluster-wide numbers, without those that are
    gone, one partition a step.
    """
    found: dict[str, tuple[Topic, list[int]]] = {}
    for number in tuple(numbers):
        place = place_of(call.broker.machine.state, number)
        if place is not None:
            found.setdefault(place[0].topic_id, (place[0], []))[1].append(place[1])
        yield
    return found.values()
