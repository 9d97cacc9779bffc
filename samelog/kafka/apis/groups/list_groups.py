"""ListGroups (16): the groups that a node coordinates: all on the leader, none elsewhere."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from samelog.kafka.api import KafkaApi, NodeCall, Outcome
from samelog.kafka.apis.groups.answering import answered
from samelog.kafka.codec.schemas import Tree
from samelog.kafka.groups.requests import Listed


def _handle(call: NodeCall, request: Any) -> Outcome:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}

    def made(groups: tuple[Listed, ...]) -> Tree:
        return _tree(
            ErrorCode.none,
            *(
                group
                for group in groups
                if call.broker.may_use_group(call.client, group.group)
                and (not states or group.state.lower() in states)
                and (not kinds or group.kind in kinds)
            ),
        )

    def lost(error: ErrorCode) -> Tree:
        return _tree(ErrorCode.none if error is ErrorCode.not_coordinator else error)

    return answered(call, None, lambda c, waiter: c.list_groups(waiter), made, lost)


def _tree(error: ErrorCode, *groups: Listed) -> Tree:
    trees = [
        {
            "group_id": group.group,
            "protocol_type": group.protocol_type,
            "group_state": group.state,
            "group_type": group.kind,
        }
        for group in groups
    ]
    return {"throttle_time": 0, "error_code": error, "groups": trees}


API = KafkaApi(
    key=16,
    name="ListGroups",
    first=0,
    last=5,
    flexible_from=3,
    handle=_handle,
    notes="The leader lists all groups, other nodes none, as each lists what it coordinates.",
)
