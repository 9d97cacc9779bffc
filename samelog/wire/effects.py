"""What both the sending ends of push and pull want done; each has more effects of its own.

Invariant: effects are carried out in their order; what follows from one comes before the next one.
"""

from __future__ import annotations

import msgspec

from samelog.wire.messages import AnyMessage


class Send(msgspec.Struct, frozen=True):
    """Send this."""

    message: AnyMessage


class SendMore(msgspec.Struct, frozen=True):
    """There may be something to send: go on with `next_step`."""
