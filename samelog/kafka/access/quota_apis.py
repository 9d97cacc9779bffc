"""DescribeClientQuotas (48), AlterClientQuotas (49): rates of users, beside the quotas of the
configuration files.

Invariant: only rates that are kept to are ever taken: of a user, or of every user without any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import catch_up
from samelog.kafka.clients.quotas import QUOTA_KEYS
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.sequencer.state.access_commands import ChangeQuotas, QuotaChange
from samelog.sequencer.state.access_state import EVERY_USER

USER = "user"
EXACT, DEFAULT, ANY = 0, 1, 2
RATE_MAX = 1 << 50
NAME_CHARACTERS_MAX = 256


class QuotaEntity(Entity, frozen=True):
    """Whose quota it is; null: everybody's who has none."""

    entity_type: str
    entity_name: str | None


class QuotaValue(Entity, frozen=True):
    """One rate."""

    key: str
    value: float


class DescribedQuota(Entity, frozen=True):
    """The rates of one entity."""

    entity: Sequence[QuotaEntity]
    values: Sequence[QuotaValue]


class DescribeClientQuotasResponse(ResponseBody, frozen=True):
    """The response of `describe_client_quotas`."""

    error_code: ErrorCode
    error_message: str | None = None
    entries: Sequence[DescribedQuota] = ()


@kafka_api(
    48,
    "DescribeClientQuotas",
    0,
    1,
    flexible_from=1,
    notes="Quotas of the configuration files are not listed.",
)
async def describe_quotas(call: NodeCall, request: Any) -> DescribeClientQuotasResponse:
    """The quotas that a filter means."""
    failure = await _failure(call, AclOperation.DESCRIBE_CONFIGS)
    if failure is not None:
        return DescribeClientQuotasResponse(failure.code, failure.message)
    quotas = call.broker.access.quotas
    return DescribeClientQuotasResponse(
        ErrorCode.none,
        entries=[
            DescribedQuota(
                [QuotaEntity(USER, user or None)],
                [QuotaValue(key, float(rate)) for key, rate in sorted(rates.items())],
            )
            for user, rates in sorted(quotas.items())
            if _fits(request, user)
        ],
    )


def _fits(request: Any, user: str) -> bool:
    """Whether a filter means the quotas of a user: those have no other component."""
    if request.strict and not request.components:
        return False
    return all(
        each.entity_type == USER
        and (
            each.match_type == ANY
            or (each.match_type == DEFAULT and user == EVERY_USER)
            or (each.match_type == EXACT and user != EVERY_USER and each.match == user)
        )
        for each in request.components
    )


async def _failure(call: NodeCall, operation: AclOperation) -> ApiError | None:
    if not call.broker.may(call.client, operation):
        text = "this takes rights to the cluster"
        return ApiError(ErrorCode.cluster_authorization_failed, text)
    return await catch_up(call.broker)


class AlteredQuota(Entity, frozen=True):
    """What became of the changes of one entity."""

    entity: Sequence[QuotaEntity]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterClientQuotasResponse(ResponseBody, frozen=True):
    """The response of `alter_client_quotas`."""

    entries: Sequence[AlteredQuota]


@kafka_api(
    49,
    "AlterClientQuotas",
    0,
    1,
    flexible_from=1,
    notes="Users' `producer_byte_rate`, `consumer_byte_rate`. A file's quotas go before.",
)
async def alter_quotas(call: NodeCall, request: Any) -> AlterClientQuotasResponse:
    """Changes rates, those of all entities that are sound in one entry."""
    failure = await _failure(call, AclOperation.ALTER_CONFIGS)
    wanted = [failure or _changes(each) for each in request.entries]
    changes = [change for each in wanted if not isinstance(each, ApiError) for change in each]
    is_wanted = bool(changes) and not request.validate_only
    refusal = await _changed(call, ChangeQuotas(changes)) if is_wanted else None
    return AlterClientQuotasResponse(
        [
            _altered(asked, each if isinstance(each, ApiError) else refusal)
            for asked, each in zip(request.entries, wanted, strict=True)
        ]
    )


async def _changed(call: NodeCall, command: ChangeQuotas) -> ApiError | None:
    try:
        await call.broker.propose(command)
    except ApiError as error:
        return error
    return None


def _altered(asked: Any, error: ApiError | None) -> AlteredQuota:
    entity = [QuotaEntity(each.entity_type, each.entity_name) for each in asked.entity]
    return (
        AlteredQuota(entity) if error is None else AlteredQuota(entity, error.code, error.message)
    )


def _changes(asked: Any) -> list[QuotaChange] | ApiError:
    """The changes of one entity, or what is wrong with them."""
    names: Mapping[str, str | None] = {each.entity_type: each.entity_name for each in asked.entity}
    name = names.get(USER)
    if set(names) != {USER} or len(asked.entity) != 1:
        return _refused("only users have quotas here, not clients by their ids, nor addresses")
    if name is not None and not 0 < len(name) <= NAME_CHARACTERS_MAX:
        return _refused("the user's name is empty, or too long")
    problem = next(_problems(asked.ops), None)
    if problem is not None:
        return _refused(problem)
    return [QuotaChange(name, x.key, None if x.remove else int(x.value)) for x in asked.ops]


def _problems(changes: Any) -> Iterator[str]:
    for each in changes:
        if each.key not in QUOTA_KEYS:
            yield f"{each.key} is not kept to here, only {', '.join(QUOTA_KEYS)}"
        if not each.remove and not (1 <= each.value <= RATE_MAX and each.value == int(each.value)):
            yield f"{each.key} is not a number of bytes from 1 to {RATE_MAX}"


def _refused(text: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, text)
