"""Commands about views: topics that store nothing.

Invariant: applying a command needs nothing but the state; field order is the format
(docs/state-machine.md).
"""

from __future__ import annotations

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class CreateViewCommand(Command, frozen=True, tag=110):
    """Make a view: what passes `where` of the topic with the id `base_id`, read by its version
    `version` (0: records as they are), with these columns. `names`: every column that the view
    needs, with its type. `schema`: what its rows are; empty: none.
    """

    topic_id: str
    name: str
    base_id: str
    where: str
    columns: list[str]
    version: Unsigned32
    names: dict[str, str]
    schema: str
    owner: str
    at_ms: int


class DropViewCommand(Command, frozen=True, tag=111):
    """Forget a view."""

    topic_id: str


ViewCommand = CreateViewCommand | DropViewCommand
