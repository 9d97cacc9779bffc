"""What can become of an administrative request.

Invariant: who sees an error learns whether a node may have done what was asked.
"""

from __future__ import annotations

from samelog.runtime.errors import RuntimeFault
from samelog.wire.errors import FaultCode


class AdminError(RuntimeFault):
    """A request that was refused, or that no node answered; the message names the node."""

    def __init__(
        self,
        message: str,
        *,
        code: FaultCode | None = None,
        sent: bool = False,
        nobody_there: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.sent = sent
        """Whether a node may have done what was asked."""
        self.nobody_there = nobody_there
        """Whether nobody listens where the node is to be."""


class NotLeaderError(AdminError):
    """Another node leads: `leader` at `address`, empty where that is not known."""

    def __init__(self, message: str, leader: str, address: str) -> None:
        super().__init__(message, code=FaultCode.NOT_LEADER)
        self.leader, self.address = leader, address
