"""What may be wrong with Raft's files.

Invariant: the message names file, reason and remedy.
"""

from __future__ import annotations


class RaftStoreError(Exception):
    """The Raft files cannot be trusted; an operator has to look."""
