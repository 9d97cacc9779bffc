"""Runs of publishers' sessions in data groups: begun there as group 0 has numbered them.

Invariant: of a session at most one run is open in a group; one that was closed there never opens
again.
"""

from __future__ import annotations

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.tables.sessions import OpenPlacedInput, Run, Session
from samelog.sequencer.state.types import State


def begin_run(state: State, command: OpenPlacedInput) -> Run | Rejection:
    """The run, as it is to be here; its inputs are not moved yet."""
    session = state.sessions.by_name.get(command.session)
    if session is None:
        session = Session(command.session, command.session_id, command.identity, [])
        state.sessions.by_name[command.session] = session
    if session.runs and not session.runs[-1].closed:
        text = f"run {session.runs[-1].number} of session {command.session!r} is open in this group"
        return Rejection("RUN_OPEN", text)
    if command.number < session.next_number:
        return Rejection("RUN_CLOSED", f"run {command.number} was closed in this group")
    session.session_id, session.identity = command.session_id, command.identity
    return session.begin(command, command.number, command.asked)
