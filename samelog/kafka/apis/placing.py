"""Where the partitions of a new topic go: into group 0, on all nodes, or into data groups.

Invariant: `samelog.placement.defaults` decides, as for topics that are created natively.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from samelog.format.steps import mapped
from samelog.kafka.broker import NOT_CONFIRMED, Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.placement.defaults import EVERYWHERE, copies_of_new, default_copies
from samelog.placement.tasks import PlacementRefused
from samelog.runtime.slices import paced
from samelog.sequencer.admin.openings import unopened_text
from samelog.sequencer.admin.placement import PlacementPlan, Plan
from samelog.sequencer.state.commands import AnyCommand

PreparedT = TypeVar("PreparedT")


class NewPartitions(NamedTuple):
    """The partitions of a topic from `first` on."""

    topic: str
    first: int


DEFAULT = -1
"""The request names no number of copies."""
LONGEST_S = 60.0
"""No request may wait longer."""
_CODES = {
    "INVALID_REPLICATION_FACTOR": ErrorCode.invalid_replication_factor,
    "NO_MEMBER": ErrorCode.invalid_replication_factor,
}


def over_at_of(request: Any) -> float:
    """When the time of a request is over, by the clock of the event loop."""
    wait_s: float = min(LONGEST_S, max(0.0, request.timeout_ms / 1000))
    return asyncio.get_running_loop().time() + wait_s


def left_ms(over_at: float) -> int:
    """How much of it is left."""
    return max(0, round(1000 * (over_at - asyncio.get_running_loop().time())))


async def in_time(work: Awaitable[ApiError | None], over_at: float) -> ApiError | None:
    """Why something is not done, if it is not; what is not known by then may be done later."""
    try:
        async with asyncio.timeout_at(over_at):
            return await work
    except TimeoutError:
        return ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED)


def placement_of(broker: Broker, wanted: Any) -> Plan | None:
    """What a topic of CreateTopics asks for; None: to be in group 0."""
    nodes, table = broker.nodes(), broker.machine.state.placement
    if wanted.assignments:
        by_index = sorted(wanted.assignments, key=lambda each: each.partition_index)
        lists = [list(each.broker_ids) for each in by_index]
        are_everywhere = all(sorted(each) == nodes for each in lists)
        return None if are_everywhere and default_copies(table) == EVERYWHERE else lists
    asked = int(wanted.replication_factor)
    given = None if asked == DEFAULT else asked
    copies = copies_of_new(table, given, len(nodes))
    return None if copies == EVERYWHERE else copies


def _planned(
    plan: PlacementPlan, command_of: Callable[[PlacementPlan, int], AnyCommand], place: int
) -> AnyCommand | ApiError:
    try:
        return command_of(plan, place)
    except PlacementRefused as error:
        return ApiError(_CODES.get(error.code, ErrorCode.invalid_replica_assignment), str(error))


async def _planned_at(
    broker: Broker, command_of: Callable[[PlacementPlan, int], AnyCommand], places: Sequence[int]
) -> tuple[dict[int, AnyCommand], dict[int, ApiError]]:
    """Plan the elements at these places with one plan; return the commands and the refusals."""
    plan = PlacementPlan(broker.machine.state, broker.may_hold, broker.clock.wall_ms())
    planned = await paced(mapped(partial(_planned, plan, command_of), places))
    commands: dict[int, AnyCommand] = {}
    refused: dict[int, ApiError] = {}
    for place, made in zip(places, planned, strict=True):
        if isinstance(made, ApiError):
            refused[place] = made
        else:
            commands[place] = made
    return commands, refused


async def once_open(
    broker: Broker,
    done: Sequence[PreparedT | ApiError],
    news: Callable[[int], NewPartitions],
    over_at: float,
) -> list[PreparedT | ApiError]:
    """Wait until leaders have opened what is done. Returns that, each in its place, and errors for
    all else. `news`: what the element at a place has created.
    """
    numbers = await paced(mapped(partial(_created, broker, done, news), range(len(done))))
    left = frozenset(await broker.until_open([*chain.from_iterable(numbers)], over_at))
    if not left:
        return [*done]

    def answer(place: int) -> PreparedT | ApiError:
        unopened = left.intersection(numbers[place])
        topic = broker.topic(news(place).topic) if unopened else None
        if topic is None:
            return done[place]
        text = unopened_text(topic.name, topic.partition_numbers, unopened)
        return ApiError(ErrorCode.request_timed_out, text)

    return await paced(mapped(answer, range(len(done))))


def _created(
    broker: Broker,
    done: Sequence[PreparedT | ApiError],
    news: Callable[[int], NewPartitions],
    place: int,
) -> Sequence[int]:
    """The numbers of the partitions that an element has created."""
    if isinstance(done[place], ApiError):
        return ()
    new = news(place)
    topic = broker.topic(new.topic)
    return () if topic is None else topic.partition_numbers[new.first :]


async def done_in_one_entry(
    broker: Broker,
    prepared: Sequence[PreparedT | ApiError],
    command_of: Callable[[PlacementPlan, int], AnyCommand],
    over_at: float,
) -> list[PreparedT | ApiError]:
    """Have all that is prepared carried out, with one plan and in one entry as far as it has room.
    Returns those that are done, each in its place, and errors for all else.

    `command_of` the plan and a place makes what is proposed; it may raise PlacementRefused. What is
    refused because groups were made meanwhile is planned again until the request's time is over:
    each time another request has got on.
    """
    found = dict(enumerate(prepared))
    left = [place for place, each in found.items() if not isinstance(each, ApiError)]
    while left:
        commands, refused = await _planned_at(broker, command_of, left)
        found.update(refused)
        errors = await broker.propose_all([*commands.values()], left_ms(over_at) / 1000)
        left = []
        for place, failure in zip(commands, errors, strict=True):
            if failure is not None and failure.code is ErrorCode.not_controller:
                left.append(place)
            elif failure is not None:
                found[place] = failure
        if not left_ms(over_at):
            break
    for place in left:
        found[place] = ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED)
    return [*found.values()]
