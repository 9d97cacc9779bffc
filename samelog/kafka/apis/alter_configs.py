"""Settings of topics, groups and the cluster are changed: AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from samelog.kafka.access.acls import AclOperation, AclResource
from samelog.kafka.api import NodeCall, kafka_api
from samelog.kafka.apis.checks import administered, answer_each, check_name, check_settings
from samelog.kafka.apis.configs import CLIENT_METRICS, ResourceType, topics_of
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.codec.schemas import Entity, ResponseBody
from samelog.kafka.parts import Parts
from samelog.kafka.settings import (
    CLUSTER_BOUNDS,
    GROUP_BOUNDS,
    LISTS,
    cluster_defaults,
    group_defaults,
    topic_defaults,
)
from samelog.placement.changes import SetDefaultCopies
from samelog.placement.defaults import DEFAULT_COPIES
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.access import HEARTBEAT_MS, SESSION_MS, AlterGroup
from samelog.sequencer.state.tables.placement import ChangePlacement
from samelog.sequencer.state.tables.topics import AlterTopicCommand

GROUP_CHARACTERS_MAX = 256
_IN_FILES = "; those of one node are in its configuration file"
THROTTLES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Of Kafka's replication; here `[node] recovery_bytes_per_s` bounds copies."""


class AlterConfigsResponseResource(Entity, frozen=True):
    """What became of one resource."""

    resource_type: int
    resource_name: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class AlterConfigsResponse(ResponseBody, frozen=True):
    """Also that of IncrementalAlterConfigs."""

    responses: Sequence[AlterConfigsResponseResource]


class Altered(NamedTuple):
    """Whose settings are changed: what it has set, what counts for what it has not, what the values
    may be (raising ApiError), and the command that changes them.
    """

    own: Mapping[str, str]
    defaults: Mapping[str, str]
    check: Callable[[Mapping[str, str | None]], dict[str, str]]
    command: Callable[[dict[str, str], list[str]], AnyCommand]


RESOURCES = Parts(("resources",), ("responses",))


@kafka_api(
    33,
    "AlterConfigs",
    0,
    2,
    flexible_from=2,
    parts=RESOURCES,
    notes="Topics, groups and the cluster only.",
)
async def alter_configs(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Replaces all settings of topics, groups or the cluster; those that are not named get their
    default again.

    The older of two ways, see IncrementalAlterConfigs (44). The settings of one are changed all or
    not at all.
    """
    return await alter_each(call, request, _set_anew)


async def alter_each(
    call: NodeCall, request: Any, command_of: Callable[[Altered, Any], AnyCommand]
) -> AlterConfigsResponse:
    """Change every resource of a request by itself. `command_of` whose settings they are and what
    is wanted may raise ApiError.
    """
    await call.broker.look_for(topics_of(request))

    async def alter(resource: Any) -> AlterConfigsResponseResource:
        if _takes_back_throttles(call, resource):
            return AlterConfigsResponseResource(resource.resource_type, resource.resource_name)
        command = command_of(_alterable(call, resource), resource)
        if not request.validate_only:
            await call.broker.propose(command)
        return AlterConfigsResponseResource(resource.resource_type, resource.resource_name)

    return AlterConfigsResponse(await answer_each(request.resources, alter, _refuse))


def _refuse(resource: Any, error: ApiError) -> AlterConfigsResponseResource:
    return AlterConfigsResponseResource(
        resource.resource_type, resource.resource_name, error.code, error.message
    )


def _alterable(call: NodeCall, resource: Any) -> Altered:
    """Whose settings are to be changed. Raises ApiError."""
    if resource.resource_type == ResourceType.TOPIC:
        return _topic(call, resource.resource_name)
    if resource.resource_type == ResourceType.GROUP:
        return _group(call, resource.resource_name)
    if resource.resource_type == ResourceType.BROKER:
        return _cluster(call)
    if resource.resource_type == CLIENT_METRICS:
        raise ApiError(ErrorCode.invalid_request, "telemetry is off: nobody wants clients' metrics")
    text = "only topics, groups and brokers have settings that can be changed"
    raise ApiError(ErrorCode.invalid_request, text)


def _takes_back_throttles(call: NodeCall, resource: Any) -> bool:
    """Whether a request does nothing but take back throttles, which nothing here has: Kafka's tool
    does so when partitions have moved. Raises ApiError.
    """
    asked = resource.configs
    names = [each.name for each in asked if _operation(each) == ConfigOperation.DELETE]
    if not asked or len(names) < len(asked) or not THROTTLES.issuperset(names):
        return False
    if resource.resource_type == ResourceType.TOPIC:
        _topic(call, resource.resource_name)
    elif not call.broker.may(call.client, AclOperation.ALTER_CONFIGS):
        raise ApiError(ErrorCode.cluster_authorization_failed, "for administrators only")
    return True


def _operation(asked: Any) -> int | None:
    """Return the operation; None: all settings are replaced."""
    found: int | None = getattr(asked, "config_operation", None)
    return found


def _topic(call: NodeCall, name: str) -> Altered:
    """Raises ApiError."""
    check_name(name)
    broker = call.broker
    topic = administered(broker, call.client, AclOperation.ALTER_CONFIGS, name)
    broker.views.refuse_writes(topic)

    def checked(settings: Mapping[str, str | None]) -> dict[str, str]:
        majority, longest = broker.majority_of(topic), broker.longest_batch
        found = check_settings(settings, majority, longest)
        broker.check_libraries(found, topic)
        return found

    return Altered(
        topic.settings,
        topic_defaults(broker, topic),
        checked,
        partial(AlterTopicCommand, topic.topic_id),
    )


def _group(call: NodeCall, name: str) -> Altered:
    """A group may have settings before it has members. Raises ApiError."""
    if not call.broker.may(call.client, AclOperation.ALTER_CONFIGS, AclResource.GROUP, name):
        raise ApiError(ErrorCode.group_authorization_failed, f"no right to group {name!r}")
    if not 0 < len(name) <= GROUP_CHARACTERS_MAX:
        raise ApiError(ErrorCode.invalid_request, "the group's name is empty, or too long")
    own, defaults = call.broker.access.groups.get(name, {}), group_defaults(call.broker)

    def change(settings: dict[str, str], unset: list[str]) -> AlterGroup:
        kept = {key: value for key, value in own.items() if key not in unset}
        then = {**defaults, **kept, **settings}
        if int(then[SESSION_MS]) <= int(then[HEARTBEAT_MS]):
            text = f"{SESSION_MS} must be longer than {HEARTBEAT_MS}"
            raise ApiError(ErrorCode.invalid_config, text)
        return AlterGroup(name, settings, unset)

    return Altered(own, defaults, check_group_settings, change)


def _cluster(call: NodeCall) -> Altered:
    """The same whichever node is named, as by clients that cannot name none. Raises ApiError."""
    if not call.broker.may(call.client, AclOperation.ALTER_CONFIGS):
        raise ApiError(ErrorCode.cluster_authorization_failed, "for administrators only")
    copies = call.broker.machine.state.placement.default_copies

    def change(settings: dict[str, str], unset: list[str]) -> ChangePlacement:
        kept = 0 if DEFAULT_COPIES in unset else copies
        return ChangePlacement(-1, [SetDefaultCopies(int(settings.get(DEFAULT_COPIES, kept)))])

    own = {DEFAULT_COPIES: str(copies)} if copies else {}
    return Altered(own, cluster_defaults(call.broker), _checked_for_all, change)


def _checked_for_all(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of the cluster, without those that are null. Raises ApiError."""
    return _checked(settings, CLUSTER_BOUNDS, "cluster", _IN_FILES)


def check_group_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings, without those that are null (their default). Raises ApiError."""
    return _checked(settings, GROUP_BOUNDS, "group")


def _checked(
    settings: Mapping[str, str | None], known: Mapping[str, range], whose: str, more: str = ""
) -> dict[str, str]:
    for key, value in settings.items():
        bounds = known.get(key)
        if bounds is None:
            text = f"unknown {whose} setting {key!r}, known are {', '.join(known)}{more}"
            raise ApiError(ErrorCode.invalid_config, text)
        is_number = value is not None and value.isascii() and value.isdigit()
        if value is not None and not (is_number and int(value) in bounds):
            text = f"{key}={value!r} is not a number from {bounds.start} to {bounds.stop - 1}"
            raise ApiError(ErrorCode.invalid_config, text)
    return {key: value for key, value in settings.items() if value is not None}


def _set_anew(altered: Altered, resource: Any) -> AnyCommand:
    """Raises ApiError."""
    settings = altered.check({each.name: each.value for each in resource.configs})
    return altered.command(settings, [key for key in altered.own if key not in settings])


class ConfigOperation(IntEnum):
    """What becomes of a setting (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@kafka_api(
    44,
    "IncrementalAlterConfigs",
    0,
    1,
    flexible_from=1,
    parts=RESOURCES,
    notes="Topics, groups and the cluster only.",
)
async def incremental_alter_configs(call: NodeCall, request: Any) -> AlterConfigsResponse:
    """Sets some settings, gives them back their default, or changes lists."""
    return await alter_each(call, request, _set_some)


def _set_some(altered: Altered, resource: Any) -> AnyCommand:
    """Raises ApiError."""
    names = [each.name for each in resource.configs]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.invalid_request, "a setting is there twice")
    given: dict[str, str | None] = {}
    unset: list[str] = []
    for each in resource.configs:
        altered.check({each.name: None})
        if each.config_operation == ConfigOperation.DELETE:
            unset.append(each.name)
        else:
            given[each.name] = _value(altered, each)
    return altered.command(altered.check(given), unset)


def _value(altered: Altered, wanted: Any) -> str:
    """What a setting is to be. Raises ApiError."""
    name, value = wanted.name, wanted.value or ""
    if wanted.config_operation == ConfigOperation.SET:
        return value
    if name not in LISTS:
        text = f"{name} is no list: it can only be set or deleted"
        raise ApiError(ErrorCode.invalid_config, text)
    before = _parts(altered.own.get(name, altered.defaults[name]))
    named = _parts(value)
    if wanted.config_operation == ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*before, *named]))
    if wanted.config_operation == ConfigOperation.SUBTRACT:
        return ",".join(part for part in before if part not in named)
    raise ApiError(ErrorCode.invalid_request, f"operation {wanted.config_operation} on {name}")


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]
