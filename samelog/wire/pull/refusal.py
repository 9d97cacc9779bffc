"""Why a handle of a pull connection ends, as both of its ends see it.

Invariant: it is a value: what is refused is no error of the connection, which goes on.
"""

from __future__ import annotations

from typing import NamedTuple

from samelog.wire.errors import FaultCode


class Refusal(NamedTuple):
    """Why a handle ends. `earliest`: the first offset that can be read; -1: not said.
    `successor`: the id of the log that took the place of the one that is gone.
    """

    code: FaultCode
    message: str
    remedy: str = ""
    earliest: int = -1
    successor: str = ""

    def __str__(self) -> str:
        """For people."""
        return f"{self.code.name}: {self.message}" + (f" ({self.remedy})" if self.remedy else "")
