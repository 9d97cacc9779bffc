"""DescribeUserScramCredentials (50), AlterUserScramCredentials (51): users that authenticate by
SCRAM, beside those of the configuration files.

Invariant: neither a password nor what is made of it with the salt alone is kept or written down,
only what a proof is checked with.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from typing import Any

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name
from samelog.format.steps import StepWork, mapped
from samelog.kafka.access.acls import AclOperation
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import catch_up
from samelog.kafka.clients.sasl import HASHES, ITERATIONS, MECHANISM_NUMBERS
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.runtime.slices import paced
from samelog.sequencer.state.tables.access import ChangeUsers, ScramCredential

ITERATIONS_MAX = 16_384
SALT_BYTES_MAX = 1_024


class CredentialInfo(Entity, frozen=True):
    """What is told of a credential."""

    mechanism: int
    iterations: int


class DescribedUser(Entity, frozen=True):
    """A user's credentials."""

    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    credential_infos: Sequence[CredentialInfo] = ()


class DescribeUserScramCredentialsResponse(ResponseBody, frozen=True):
    """The response of `describe_user_scram_credentials`."""

    error_code: ErrorCode
    error_message: str | None = None
    results: Sequence[DescribedUser] = ()


@kafka_api(
    50,
    "DescribeUserScramCredentials",
    0,
    0,
    flexible_from=0,
    notes="Users of the configuration files are not listed.",
)
async def describe_users(call: NodeCall, request: Any) -> DescribeUserScramCredentialsResponse:
    """Which users have which credentials."""
    failure = await _failure(call, AclOperation.DESCRIBE)
    if failure is not None:
        return DescribeUserScramCredentialsResponse(failure.code, failure.message)
    known = call.broker.access.credentials
    names = [user.name for user in request.users or ()] or sorted(known)
    counts = Counter(names)
    return DescribeUserScramCredentialsResponse(
        ErrorCode.none,
        results=await paced(
            mapped(lambda name: _described(name, known.get(name), counts[name]), counts)
        ),
    )


def _described(
    name: str, credentials: dict[int, ScramCredential] | None, times: int
) -> DescribedUser:
    if times > 1:
        return DescribedUser(name, ErrorCode.duplicate_resource, "the user is there twice")
    if credentials is None:
        return DescribedUser(name, ErrorCode.resource_not_found, f"there is no user {name!r}")
    infos = [CredentialInfo(each.mechanism, each.iterations) for each in credentials.values()]
    return DescribedUser(name, credential_infos=infos)


async def _failure(call: NodeCall, operation: AclOperation) -> ApiError | None:
    if not call.broker.may(call.client, operation):
        text = "this takes rights to the cluster"
        return ApiError(ErrorCode.cluster_authorization_failed, text)
    return await catch_up(call.broker)


class AlteredUser(Entity, frozen=True):
    """What became of a user's changes."""

    user: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterUserScramCredentialsResponse(ResponseBody, frozen=True):
    """The response of `alter_user_scram_credentials`."""

    results: Sequence[AlteredUser]


class _Upsertion(Entity, frozen=True):
    """Of one, what may be written down."""

    name: str
    mechanism: int
    iterations: int


def _without_passwords(request: Any) -> Any:
    shown = [_Upsertion(each.name, each.mechanism, each.iterations) for each in request.upsertions]
    return {"deletions": request.deletions, "upsertions": shown}


@kafka_api(
    51,
    "AlterUserScramCredentials",
    0,
    0,
    flexible_from=0,
    audit=_without_passwords,
    notes="On a node whose configuration file has the user, the password of the file counts.",
)
async def alter_users(call: NodeCall, request: Any) -> AlterUserScramCredentialsResponse:
    """Changes all users of the request that can be changed in one entry."""
    failure = await _failure(call, AclOperation.ALTER)
    changes = [*request.deletions, *request.upsertions]
    refused = await paced(_refused(call, changes, failure))
    sound = (each for each in request.upsertions if each.name not in refused)
    upsert = await paced(mapped(_credential, sound))
    remove = [(x.name, x.mechanism) for x in request.deletions if x.name not in refused]
    if upsert or remove:
        refused |= await _change(call, ChangeUsers(upsert, remove))
    return AlterUserScramCredentialsResponse(
        [_altered(name, refused.get(name)) for name in dict.fromkeys(each.name for each in changes)]
    )


def _refused(
    call: NodeCall, changes: Sequence[Any], failure: ApiError | None
) -> StepWork[dict[str, ApiError]]:
    """Whose changes are refused, and why: all changes of a user, or none."""
    refused: dict[str, ApiError] = {}
    counts = Counter((each.name, each.mechanism) for each in changes)
    for each in changes:
        problem = failure or _problem(call, each, counts[each.name, each.mechanism])
        if problem is not None:
            refused.setdefault(each.name, problem)
        yield
    return refused


def _altered(name: str, error: ApiError | None) -> AlteredUser:
    return AlteredUser(name) if error is None else AlteredUser(name, error.code, error.message)


async def _change(call: NodeCall, command: ChangeUsers) -> dict[str, ApiError]:
    """Whom it failed for, and why."""
    try:
        await call.broker.propose(command)
    except ApiError as error:
        names = [each.user for each in command.upsert] + [user for user, _ in command.remove]
        return dict.fromkeys(names, error)
    return {}


def _problem(call: NodeCall, change: Any, times: int) -> ApiError | None:
    """What is wrong with a change of a user."""
    if times > 1:
        return ApiError(ErrorCode.duplicate_resource, "a credential is there twice")
    try:
        check_session_name(change.name)
    except InvalidName as error:
        return ApiError(ErrorCode.unacceptable_credential, str(error))
    if change.mechanism not in MECHANISM_NUMBERS:
        text = f"there is no mechanism {change.mechanism}"
        return ApiError(ErrorCode.unsupported_sasl_mechanism, text)
    if not hasattr(change, "salted_password"):
        there = call.broker.access.credentials.get(change.name, {})
        text = f"user {change.name!r} has no such credential"
        return None if change.mechanism in there else ApiError(ErrorCode.resource_not_found, text)
    return _problem_with_salted(change)


def _problem_with_salted(change: Any) -> ApiError | None:
    if not ITERATIONS <= change.iterations <= ITERATIONS_MAX:
        text = f"{change.iterations} iterations; from {ITERATIONS} to {ITERATIONS_MAX} are taken"
        return ApiError(ErrorCode.unacceptable_credential, text)
    algorithm = HASHES[MECHANISM_NUMBERS[change.mechanism]]
    is_whole = len(change.salted_password) == hashlib.new(algorithm).digest_size
    if not is_whole or not 0 < len(change.salt) <= SALT_BYTES_MAX:
        text = "the salt, or the salted password, has another length"
        return ApiError(ErrorCode.unacceptable_credential, text)
    return None


def _credential(change: Any) -> ScramCredential:
    algorithm = HASHES[MECHANISM_NUMBERS[change.mechanism]]
    client_key = hmac.digest(change.salted_password, b"Client Key", algorithm)
    return ScramCredential(
        change.name,
        change.mechanism,
        change.iterations,
        change.salt,
        hashlib.new(algorithm, client_key).digest(),
        hmac.digest(change.salted_password, b"Server Key", algorithm),
    )
