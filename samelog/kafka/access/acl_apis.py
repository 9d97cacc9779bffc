"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): what ACLs allow counts beside the grants of
the configuration files.

Invariant: an ACL is either refused or in the replicated state; each part of a request by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any

from samelog.format.steps import StepWork
from samelog.kafka.access.acls import (
    CLUSTER,
    PRINCIPAL,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    fits,
)
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import answer_each, catch_up
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.access import AclBinding, ChangeAcls

TEXT_CHARACTERS_MAX = 256
DENIED = ApiError(ErrorCode.cluster_authorization_failed, "this takes rights to the cluster")


# --- describing ---------------------------------------------------------------------------------


class DescribeAclsAcl(Entity, frozen=True):
    """Who may do what with a resource."""

    principal: str
    host: str
    operation: int
    permission_type: int


class DescribeAclsResource(Entity, frozen=True):
    """The ACLs of one name."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: Sequence[DescribeAclsAcl]


class DescribeAclsResponse(ResponseBody, frozen=True):
    """The response of `describe_acls`."""

    error_code: ErrorCode
    error_message: str | None = None
    resources: Sequence[DescribeAclsResource] = ()


@kafka_api(
    29,
    "DescribeAcls",
    1,
    3,
    flexible_from=2,
    notes="ACLs only, not the grants of the configuration files.",
)
async def describe_acls(call: NodeCall, request: Any) -> DescribeAclsResponse:
    """The ACLs that a filter means."""
    failure = await _failure(call, AclOperation.DESCRIBE)
    if failure is not None:
        return DescribeAclsResponse(failure.code, failure.message)
    found = sorted(await paced(_meant(call, request)), key=_order)
    return DescribeAclsResponse(
        ErrorCode.none,
        resources=[
            DescribeAclsResource(
                *resource,
                [
                    DescribeAclsAcl(acl.principal, acl.host, acl.operation, acl.permission)
                    for acl in acls
                ],
            )
            for resource, acls in groupby(found, key=_resource)
        ],
    )


async def _failure(call: NodeCall, operation: AclOperation) -> ApiError | None:
    """Why a request cannot be answered; this node knows what was committed before if it can."""
    if not call.broker.may(call.client, operation):
        return DENIED
    return await catch_up(call.broker)


def _resource(acl: AclBinding) -> tuple[int, str, int]:
    return acl.resource, acl.name, acl.pattern


def _order(acl: AclBinding) -> tuple[Any, ...]:
    return *_resource(acl), acl.principal, acl.host, acl.operation, acl.permission


# --- creating -----------------------------------------------------------------------------------


class CreateAclsResult(Entity, frozen=True):
    """What became of one ACL."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class CreateAclsResponse(ResponseBody, frozen=True):
    """The response of `create_acls`."""

    results: Sequence[CreateAclsResult]


@kafka_api(
    30,
    "CreateAcls",
    1,
    3,
    flexible_from=2,
    parts=Parts(("creations",), ("results",), size=100),
    notes="They count at the Kafka listeners, beside the grants of the configuration files.",
)
async def create_acls(call: NodeCall, request: Any) -> CreateAclsResponse:
    """Adds ACLs, all those that are sound in one entry."""
    failure = await _failure(call, AclOperation.ALTER)

    async def sound(asked: Any) -> AclBinding:
        return _binding(asked)

    wanted: Sequence[AclBinding | ApiError] = await answer_each(
        request.creations, sound, lambda _, error: error, failure=failure
    )
    acls = [each for each in wanted if not isinstance(each, ApiError)]
    refusal = await _changed(call, ChangeAcls(acls, [])) if acls else None
    return CreateAclsResponse(
        [_created(each if isinstance(each, ApiError) else refusal) for each in wanted]
    )


def _created(error: ApiError | None) -> CreateAclsResult:
    return CreateAclsResult() if error is None else CreateAclsResult(error.code, error.message)


async def _changed(call: NodeCall, command: ChangeAcls) -> ApiError | None:
    try:
        await call.broker.propose(command)
    except ApiError as error:
        return error
    return None


def _binding(asked: Any) -> AclBinding:
    """Raises ApiError."""
    problem = _problem_with_resource(asked) or _problem_with_client(asked)
    if problem is not None:
        raise ApiError(ErrorCode.invalid_request, problem)
    resource = asked.resource_type, asked.resource_name, asked.resource_pattern_type
    client = asked.principal, asked.host
    return AclBinding(*resource, *client, asked.operation, asked.permission_type)


def _problem_with_resource(asked: Any) -> str | None:
    kind, name, pattern = asked.resource_type, asked.resource_name, asked.resource_pattern_type
    if pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        return f"pattern type {pattern}: an ACL is literal or prefixed"
    if kind not in {*AclResource} or (kind == AclResource.CLUSTER and name != CLUSTER):
        return f"no ACL can be about resource {name!r} of type {kind}"
    return None if 0 < len(name) <= TEXT_CHARACTERS_MAX else "the name is empty, or too long"


def _problem_with_client(asked: Any) -> str | None:
    if asked.operation not in {*AclOperation} or asked.permission_type not in {*AclPermission}:
        return f"operation {asked.operation}, permission {asked.permission_type}"
    is_user = asked.principal.startswith(PRINCIPAL) and asked.principal != PRINCIPAL
    if is_user and all(0 < len(x) <= TEXT_CHARACTERS_MAX for x in (asked.principal, asked.host)):
        return None
    return f"principal {asked.principal!r} is not User:<name>, or a text is too long"


# --- deleting -----------------------------------------------------------------------------------


class DeleteAclsMatch(Entity, frozen=True):
    """An ACL that is gone."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class DeleteAclsFilterResult(Entity, frozen=True):
    """What became of one filter."""

    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    matching_acls: Sequence[DeleteAclsMatch] = ()


class DeleteAclsResponse(ResponseBody, frozen=True):
    """The response of `delete_acls`."""

    filter_results: Sequence[DeleteAclsFilterResult]


@kafka_api(
    31,
    "DeleteAcls",
    1,
    3,
    flexible_from=2,
    parts=Parts(("filters",), ("filter_results",)),
    notes="Of all filters in one entry.",
)
async def delete_acls(call: NodeCall, request: Any) -> DeleteAclsResponse:
    """Takes away the ACLs that filters mean."""
    failure = await _failure(call, AclOperation.ALTER)
    wanted = () if failure else request.filters
    found = [await paced(_meant(call, each)) for each in wanted]
    gone = list(dict.fromkeys(chain.from_iterable(found)))
    if gone:
        failure = await _changed(call, ChangeAcls([], gone))
    if failure is not None:
        refused = DeleteAclsFilterResult(failure.code, failure.message)
        return DeleteAclsResponse([refused] * len(request.filters))
    return DeleteAclsResponse(
        [
            DeleteAclsFilterResult(matching_acls=[DeleteAclsMatch(*_order(acl)) for acl in each])
            for each in found
        ]
    )


def _meant(call: NodeCall, wanted: Any) -> StepWork[list[AclBinding]]:
    """The ACLs that a filter means."""
    found = []
    for acl in [*call.broker.access.acls]:
        if fits(wanted, acl):
            found.append(acl)
        yield
    return found
