"""What the API files of groups share: who may ask, and how the coordinator's answer becomes the
client's.

Invariant: a request is answered whatever becomes of this node's leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import NodeCall
from samelog.kafka.apis.topics.topics import id_of
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.driver import CoordinatorAnswer, CoordinatorCall

NEVER_FLEXIBLE = 1 << 15


def answered(
    call: NodeCall,
    group: str | None,
    ask: CoordinatorCall,
    make: Callable[[Any], Tree],
    lost: Callable[[ErrorCode], Tree],
) -> Tree | asyncio.Future[Tree]:
    """Ask the coordinator: `make` of its answer; `lost` of the error if there is none. `group`: the
    one it is about; None if the caller has seen to rights itself.
    """
    refusal = ErrorCode.none if group is None else problem(call, group)
    if refusal is not ErrorCode.none:
        return lost(refusal)
    asked = call.broker.groups.ask(ask)
    if asked.done() and asked.result() is None:
        return lost(ErrorCode.not_coordinator)
    tree: asyncio.Future[Tree] = asyncio.get_running_loop().create_future()

    def done(answer: CoordinatorAnswer) -> None:
        if tree.done() or answer.cancelled():
            return
        result = answer.result()
        tree.set_result(lost(ErrorCode.not_coordinator) if result is None else make(result))

    asked.add_done_callback(done)
    return tree


def problem(call: NodeCall, group: str) -> ErrorCode:
    """Whether a client may use a group."""
    may = call.broker.may_use_group(call.client, group)
    return ErrorCode.none if may else ErrorCode.group_authorization_failed


def partition_number(call: NodeCall, name: str, index: int) -> int | None:
    """The cluster-wide number of a partition; None if there is none."""
    topic = call.broker.topic(name)
    if topic is None or not 0 <= index < topic.partitions:
        return None
    return topic.partition_numbers[index]


def by_topic(
    partitions: Iterable[tuple[str, Tree]],
) -> list[Tree]:
    """(topic, answer of a partition), as the protocol nests them."""
    topics: dict[str, list[Tree]] = {}
    for topic, tree in partitions:
        topics.setdefault(topic, []).append(tree)
    return [{"name": topic, "partitions": trees} for topic, trees in topics.items()]


def by_topic_id(call: NodeCall, numbers: Iterable[int]) -> list[Tree]:
    """Partitions, as the consumer protocol nests them; those that are gone are left out."""
    state = call.broker.machine.state
    topics: dict[str, list[int]] = {}
    for number in numbers:
        partition = state.partitions.get(number)
        if partition is not None:
            topics.setdefault(partition.topic_id, []).append(partition.index)
    return [
        {
            "topic_id": id_of(state.topics[topic_id]),
            "topic_name": state.topics[topic_id].name,
            "partitions": indexes,
        }
        for topic_id, indexes in topics.items()
    ]
