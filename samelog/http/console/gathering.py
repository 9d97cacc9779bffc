"""What a page asks of all nodes, as each of them knows its own part only: joined into one answer.

Invariant: whatever a node answered is in it, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from samelog.http.console.upstream import NodeUnreachable, NodeUpstream

ShownPlan = Mapping[str, Any]


def is_of_all_nodes(path: str, query: Mapping[str, str]) -> bool:
    """Whether a GET of this is to be asked of all nodes: the plans for the data groups."""
    return path == "/archive/plan" and query.get("data_groups") == "true"


async def body_of(node: NodeUpstream, target: str) -> bytes | None:
    """What a node answers with success; None: nothing."""
    try:
        answer = await node.ask("GET", target, None)
        try:
            body = await answer.whole()
        finally:
            answer.close()
    except NodeUnreachable:
        return None
    return body if answer.status == HTTPStatus.OK else None


def joined(plans: Sequence[ShownPlan]) -> ShownPlan:
    """The plans of several nodes, in the order of partitions; of copies those that fail, or that
    are under way, are shown.
    """
    planned = [each for plan in plans for each in plan["planned"]]
    return {
        **plans[0],
        "planned": sorted(planned, key=lambda each: (each["topic"], each["partition"])),
        "held": [name for plan in plans for name in plan["held"]],
        "copies": max((plan["copies"] for plan in plans), key=_urgency),
    }


def _urgency(copies: ShownPlan) -> tuple[bool, bool]:
    return bool(copies["problem"]), bool(copies["file"])
