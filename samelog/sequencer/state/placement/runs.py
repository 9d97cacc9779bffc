"""Runs of publishers' sessions in data groups: begun there as group 0 has numbered them.

Invariant: of a session at most one run is open in a group; one that was closed there never opens
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samelog.sequencer.state.placement.commands import OpenPlacedInput
from samelog.sequencer.state.types import Rejection, Run, Session

if TYPE_CHECKING:
    from samelog.sequencer.state.types import State


def begin_run(state: State, command: OpenPlacedInput) -> Run | Rejection:
    """The run, as it is to be here; its inputs are not moved yet."""
    session = state.sessions.get(command.session)
    if session is None:
        session = Session(command.session, command.session_id, command.identity, [])
        state.sessions[command.session] = session
    last = session.runs[-1] if session.runs else None
    if last is not None and not last.closed:
        text = f"run {last.number} of session {command.session!r} is open in this group"
        return Rejection("RUN_OPEN", text)
    if command.number < (session.next_run if last is None else last.number + 1):
        return Rejection("RUN_CLOSED", f"run {command.number} was closed in this group")
    session.session_id, session.identity = command.session_id, command.identity
    session.idle_since_ms = -1
    run = Run(
        run_id=command.run_id,
        number=command.number,
        dedup_id=command.dedup_id,
        dedup_base=command.dedup_base,
        asked=command.asked,
        stage=command.stage,
    )
    session.runs.append(run)
    return run
