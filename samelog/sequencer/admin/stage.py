"""Answers writers that stage records. Whoever may write a session may stage, publish and drop what
is in it; no administrator is needed.

Invariant: nobody publishes or drops what another identity has staged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.wire import admin_stage as wire
from samelog.wire.errors import FaultCode

if TYPE_CHECKING:
    from samelog.sequencer.node import Node


async def serve_stage(node: Node, identity: str, request: wire.StageRequest) -> wire.StageResponse:
    """Do what is asked. Raises ChangeRefused, NotLeader."""
    if len(request.runs) > wire.STAGED_RUNS_MAX:
        text = f"{len(request.runs)} runs in one request, allowed are {wire.STAGED_RUNS_MAX}"
        raise ChangeRefused(FaultCode.TOO_MANY, text, "stage larger pieces")
    for run in request.runs:
        session = node.replica.machine.state.sessions.get(run.session)
        if session is not None and session.identity != identity:
            text = f"session {run.session!r} belongs to {session.identity}, not to {identity}"
            raise ChangeRefused(FaultCode.NOT_AUTHORISED, text)
    match request:
        case wire.HoldStage():
            return await node.staging.hold(request)
        case wire.PublishStage():
            return await node.staging.publish(request)
        case wire.DropStage():
            return await node.staging.drop(request)
