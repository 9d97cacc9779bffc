"""Commands about what is told of the cluster's life.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from samelog.sequencer.state.command_base import Command


class NoteElection(Command, frozen=True, tag=121):
    """A node leads in this term; told once, whoever says it how often."""

    term: int
    node: str
    at_ms: int
