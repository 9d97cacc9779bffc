"""What went through one listener.

Invariant: totals only grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Connections now, and those refused; requests, their bytes, and the bytes of records that were
    answered. `held`: bytes held for clients now.
    """

    connections: int = 0
    refused: int = 0
    requests: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    held: Callable[[], int] = lambda: 0
