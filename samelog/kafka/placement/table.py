"""The table of placement to handlers of one request, and how they change it.

Invariant: what was planned from one version of the table changes no other one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall
from samelog.kafka.broker import NOT_CONFIRMED, Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.placement.changes import AnyChange
from samelog.placement.table import PlacementTable
from samelog.placement.tasks import PlacementRefused
from samelog.sequencer.admin.placement import table_now
from samelog.sequencer.state.tables.placement import ChangePlacement

CHANGE_S = 30.0
"""How long a change of the table is tried; clients of Kafka wait for as long."""
_CODES: Mapping[str, ErrorCode] = {
    "NO_REASSIGNMENT": ErrorCode.no_reassignment_in_progress,
    "UNKNOWN_PARTITION": ErrorCode.unknown_topic_or_partition,
    "INVALID_REPLICATION_FACTOR": ErrorCode.invalid_replication_factor,
}


@contextmanager
def in_kafkas_words() -> Iterator[None]:
    """What placement refuses, as an ApiError."""
    try:
        yield
    except PlacementRefused as error:
        code = _CODES.get(error.code, ErrorCode.invalid_replica_assignment)
        text = f"{error.message}: {error.remedy}" if error.remedy else error.message
        raise ApiError(code, text) from error


def error_unless(call: NodeCall, operation: AclOperation) -> ErrorCode:
    """What a client is told that may not do this to the cluster."""
    allowed = call.broker.may(call.client, operation)
    return ErrorCode.none if allowed else ErrorCode.cluster_authorization_failed


def table_of(broker: Broker) -> PlacementTable:
    """The table as it is here now, with who leads what."""
    table = table_now(broker.machine.state, broker.is_there, broker.clock.wall_ms())
    for number in table.groups:
        leader = broker.parts.data_groups.leader(number)
        if leader is not None:
            table.put_leader(number, leader[1])
    return table


async def change(
    broker: Broker, planned: Callable[[PlacementTable], Sequence[AnyChange]]
) -> ApiError | None:
    """Have group 0 take what is planned; why it does not, if it does not. What is refused because
    the table has changed meanwhile is planned again.
    """
    loop = asyncio.get_running_loop()
    over_at = loop.time() + CHANGE_S
    while loop.time() < over_at:
        table = table_of(broker)
        try:
            with in_kafkas_words():
                changes = list(dict.fromkeys(planned(table)))
            if changes:
                await broker.propose(ChangePlacement(table.placement.version, changes))
        except ApiError as error:
            if error.code is not ErrorCode.not_controller:
                return error
        else:
            return None
    return ApiError(ErrorCode.request_timed_out, NOT_CONFIRMED)
