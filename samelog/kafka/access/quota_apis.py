"""DescribeClientQuotas (48), AlterClientQuotas (49): rates of users and client ids, beside the
quotas of the configuration files.

Invariant: only rates that are kept to are ever taken, and only of whom they are kept to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import Turn, catch_up
from samelog.kafka.clients.quota_owners import QuotaOwner
from samelog.kafka.clients.quotas import QUOTA_KEYS
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts
from samelog.sequencer.state.tables.access import ChangeQuotas, QuotaChange

USER, CLIENT = "user", "client-id"
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
    kinds = {each.entity_type for each in request.components}
    turn, found = Turn(), []
    for text, rates in sorted(call.broker.access.quotas.items()):
        await turn.give_way()
        owner = _names(QuotaOwner.read(text))
        if _has_kinds(owner, kinds, request) and all(_fits(x, owner) for x in request.components):
            found.append((owner, rates))
    return DescribeClientQuotasResponse(
        ErrorCode.none,
        entries=[
            DescribedQuota(
                [QuotaEntity(kind, name) for kind, name in owner.items()],
                [QuotaValue(key, float(rate)) for key, rate in sorted(rates.items())],
            )
            for owner, rates in found
        ],
    )


def _names(owner: QuotaOwner) -> dict[str, str | None]:
    """By kind, in Kafka's words: None is everybody who has none of its own."""
    kinds = {USER: owner.user, CLIENT: owner.client}
    return {kind: name or None for kind, name in kinds.items() if name is not None}


def _has_kinds(owner: Mapping[str, str | None], kinds: set[str], request: Any) -> bool:
    """Whether an owner is of all kinds that a filter names; a strict one names all of them."""
    return kinds == owner.keys() if request.strict else kinds <= owner.keys()


def _fits(asked: Any, owner: Mapping[str, str | None]) -> bool:
    """Whether a component of a filter means the quotas of an owner that has its kind."""
    return (
        asked.match_type == ANY
        or (asked.match_type == DEFAULT and owner[asked.entity_type] is None)
        or (asked.match_type == EXACT and owner[asked.entity_type] == asked.match)
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
    parts=Parts(("entries",), ("entries",)),
    notes="`producer_byte_rate`, `consumer_byte_rate` of users and client ids. Quotas of a "
    "configuration file take precedence.",
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
    problem = _problem_with(names, len(asked.entity)) or next(_problems(asked.ops), None)
    if problem is not None:
        return _refused(problem)
    user, client = (names[kind] or "" if kind in names else None for kind in (USER, CLIENT))
    owner = QuotaOwner(user, client).text or None
    return [QuotaChange(owner, x.key, None if x.remove else int(x.value)) for x in asked.ops]


def _problem_with(names: Mapping[str, str | None], named: int) -> str | None:
    """What is wrong with an entity; `named`: how many parts it has."""
    if not names or len(names) != named or not names.keys() <= {USER, CLIENT}:
        return "only users and client ids have quotas here, not addresses"
    if not all(_is_name(each) for each in names.values()):
        return "a name is empty, or too long, or has control characters"
    return None


def _is_name(name: str | None) -> bool:
    """None: everybody's."""
    return name is None or (0 < len(name) <= NAME_CHARACTERS_MAX and name.isprintable())


def _problems(changes: Any) -> Iterator[str]:
    for each in changes:
        if each.key not in QUOTA_KEYS:
            yield f"{each.key} is not kept to here, only {', '.join(QUOTA_KEYS)}"
        if not each.remove and not (1 <= each.value <= RATE_MAX and each.value == int(each.value)):
            yield f"{each.key} is not a number of bytes from 1 to {RATE_MAX}"


def _refused(text: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, text)
