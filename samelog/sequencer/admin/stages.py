"""Answers writers that stage records. Whoever may write a session may stage, publish and drop what
is in it; no administrator is needed.

Invariant: nobody publishes or drops what another identity has staged.
"""

from __future__ import annotations

from samelog.admin.answers import StageDropped, StageHeld, StagePublished
from samelog.admin.requests import DropStage, HoldStage, PublishStage, StageRequest
from samelog.sequencer.admin.parts import ServedNode
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.wire.errors import FaultCode


async def hold_stage(node: ServedNode, request: HoldStage, identity: str) -> StageHeld:
    """Raises ChangeRefused, NotLeader, as all of these do."""
    _check_owner(node, request, identity)
    return await node.stages.hold(request)


async def publish_stage(node: ServedNode, request: PublishStage, identity: str) -> StagePublished:
    """Have it published."""
    _check_owner(node, request, identity)
    return await node.stages.publish(request)


async def drop_stage(node: ServedNode, request: DropStage, identity: str) -> StageDropped:
    """Have it given up."""
    _check_owner(node, request, identity)
    return await node.stages.drop(request)


def _check_owner(node: ServedNode, request: StageRequest, identity: str) -> None:
    for run in request.runs:
        session = node.logs.machine.state.sessions.by_name.get(run.session)
        if session is not None and session.identity != identity:
            text = f"session {run.session!r} belongs to {session.identity}, not to {identity}"
            raise ChangeRefused(FaultCode.NOT_AUTHORISED, text)
