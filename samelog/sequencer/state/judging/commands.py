"""Commands about records that nodes have refused.

Invariant: applying one needs nothing but the state; field order is the format.
"""

from __future__ import annotations

from samelog.format.numbers import Unsigned32
from samelog.sequencer.state.command_base import Command


class ForgetRefused(Command, frozen=True, tag=146):
    """A publisher has kept what was refused of an input, up to the batch at this place."""

    input: Unsigned32
    run: Unsigned32
    roll: int
    start: int
