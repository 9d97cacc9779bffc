"""All APIs that are served. What ApiVersions tells clients, and docs/kafka.md, comes from here.

What clients change is in the audit log.

Invariant: a key is here once, and the set of versions is one that clients get along with
(docs/kafka.md, "Versions").
Also: what a client is answered does not depend on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import replace
from types import CoroutineType
from typing import Any, TypeVar

import msgspec

from samelog.format.steps import StepWork, finished
from samelog.kafka.access import acl_apis, quota_apis, user_apis
from samelog.kafka.any_broker import AnyBroker
from samelog.kafka.api import CallTo, KafkaApi, Reply
from samelog.kafka.apis import (
    alter_configs,
    cluster_state,
    configs,
    fetch,
    find_coordinator,
    group_admin,
    group_members,
    group_offsets,
    leader_epochs,
    list_offsets,
    metadata,
    produce,
    session,
    telemetry,
    topic_admin,
    topic_partitions,
)
from samelog.kafka.broker import Broker
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.placement import elections, reassignments
from samelog.kafka.transactions import admin_apis, offset_apis, producer_apis
from samelog.runtime.audit import UNKNOWN, noting_change
from samelog.runtime.loop import spawn
from samelog.runtime.slices import paced

BrokerT = TypeVar("BrokerT", bound=AnyBroker)
NoteFailure = Callable[[str | None], None]
"""Writes the line: why nothing came of it, None if it is done."""


def audited(api: KafkaApi[BrokerT]) -> KafkaApi[BrokerT]:
    """The same, with a line for each request that is not a question only."""

    def handle(call: CallTo[BrokerT], request: Any) -> Any:
        def noting(error: str | None) -> StepWork[None]:
            who, peer = call.client.identity, call.client.host
            asked = api.audit(request)
            yield from noting_change(who=who, peer=peer, what=api.name, asked=asked, error=error)

        def note(error: str | None) -> None:
            finished(noting(error))

        if getattr(request, "validate_only", False):
            return api.handle(call, request)
        if call.is_long:
            return _noted_in_slices(api.handle(call, request), noting)
        try:
            return _when_done(api.handle(call, request), note)
        except Exception as error:
            note(repr(error))
            raise

    return replace(api, handle=handle)


def _when_done(outcome: Reply, note: NoteFailure) -> Reply:
    if isinstance(outcome, asyncio.Future):
        outcome.add_done_callback(lambda done: note(_error_of(done)))
        return outcome
    if not isinstance(outcome, CoroutineType):
        note(_said(outcome))
        return outcome

    async def wait(running: Coroutine[Any, Any, Any]) -> Any:
        try:
            answer = await running
        except BaseException as error:
            note(UNKNOWN if isinstance(error, asyncio.CancelledError) else repr(error))
            raise
        return _when_done(answer, note)

    return wait(outcome)


async def _noted_in_slices(outcome: Any, noting: Callable[[str | None], StepWork[None]]) -> Any:
    """Return the answer to a long request, whose line takes too long for a turn of the event loop.
    The line is written although the client closes its connection meanwhile.
    """
    error: str | None = UNKNOWN
    try:
        while isinstance(outcome, CoroutineType | asyncio.Future):
            outcome = await outcome
        error = await paced(_saying(outcome))
    except Exception as failure:
        error = repr(failure)
        raise
    finally:
        await asyncio.shield(spawn(paced(noting(error)), "audit"))
    return outcome


def _error_of(done: asyncio.Future[Any]) -> str | None:
    if done.cancelled():
        return UNKNOWN
    error = done.exception()
    return _said(done.result()) if error is None else repr(error)


def _said(answer: Any) -> str | None:
    return finished(_saying(answer))


def _saying(answer: Any) -> StepWork[str | None]:
    found: dict[str, None] = {}
    for error in _errors(answer):
        if error is not None:
            found[error] = None
        yield
    return "; ".join(found) or None


def _errors(answer: Any) -> Iterator[str | None]:
    """Every error in an answer, as text, and None for each part of it."""
    yield None
    if isinstance(answer, msgspec.Struct):
        code = getattr(answer, "error_code", ErrorCode.none)
        if code is not ErrorCode.none:
            yield str(getattr(answer, "error_message", None) or code.name)
        for name in answer.__struct_fields__:
            yield from _errors(getattr(answer, name))
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from _errors(value)


GROUPS: tuple[KafkaApi[Broker], ...] = (
    group_offsets.offset_commit,
    group_offsets.offset_fetch,
    group_members.join_group,
    group_members.heartbeat,
    group_members.leave_group,
    group_members.sync_group,
    group_admin.describe_groups,
    group_admin.list_groups,
    group_admin.delete_groups,
    group_offsets.offset_delete,
    group_members.consumer_group_heartbeat,
    group_admin.consumer_group_describe,
)
"""What only a coordinator answers."""
SERVED: tuple[KafkaApi[Broker], ...] = (
    session.sasl_handshake,
    session.sasl_authenticate,
    produce.produce,
    fetch.fetch,
    list_offsets.list_offsets,
    metadata.metadata,
    topic_admin.create_topics,
    topic_admin.delete_topics,
    topic_admin.delete_records,
    producer_apis.init_producer_id,
    leader_epochs.offset_for_leader_epoch,
    configs.describe_configs,
    alter_configs.alter_configs,
    topic_admin.create_partitions,
    alter_configs.incremental_alter_configs,
    metadata.describe_cluster,
    admin_apis.describe_producers,
    producer_apis.add_partitions_to_txn,
    producer_apis.add_offsets_to_txn,
    producer_apis.end_txn,
    producer_apis.write_txn_markers,
    offset_apis.txn_offset_commit,
    admin_apis.describe_transactions,
    admin_apis.list_transactions,
    find_coordinator.find_coordinator,
    cluster_state.describe_log_dirs,
    elections.elect_leaders,
    reassignments.alter_partition_reassignments,
    reassignments.list_partition_reassignments,
    cluster_state.describe_quorum,
    cluster_state.list_config_resources,
    telemetry.get_telemetry_subscriptions,
    telemetry.push_telemetry,
    topic_partitions.describe_topic_partitions,
    acl_apis.describe_acls,
    acl_apis.create_acls,
    acl_apis.delete_acls,
    quota_apis.describe_quotas,
    quota_apis.alter_quotas,
    user_apis.describe_users,
    user_apis.alter_users,
    *GROUPS,
)
ALL: tuple[KafkaApi[Broker], ...] = (*SERVED, session.make(SERVED))
CHANGES = {
    topic_admin.create_topics.key,
    topic_admin.delete_topics.key,
    topic_admin.delete_records.key,
    alter_configs.alter_configs.key,
    topic_admin.create_partitions.key,
    alter_configs.incremental_alter_configs.key,
    elections.elect_leaders.key,
    reassignments.alter_partition_reassignments.key,
    group_admin.delete_groups.key,
    group_offsets.offset_delete.key,
    acl_apis.create_acls.key,
    acl_apis.delete_acls.key,
    quota_apis.alter_quotas.key,
    user_apis.alter_users.key,
    producer_apis.write_txn_markers.key,
}
"""What administrators change."""
APIS: Mapping[int, KafkaApi[Broker]] = {
    api.key: audited(api) if api.key in CHANGES else api for api in ALL
}
