"""What readers without a copy ask a node of the transactions in a merged log.

Invariant: as in `samelog.wire.messages`.
"""

from __future__ import annotations

from typing import TypeAlias

from samelog.wire.bounds import AbortedPart, Handle, Message, Place63, Signed64


class FindAborted(Message, frozen=True, tag=39):
    """Which transactions of an open merged log were aborted that have records in [first, stop), and
    a marker behind the offset `behind`? Answered by AbortedFound, or Refused.
    """

    handle: Handle
    first: Place63
    stop: Place63
    behind: Signed64 = -1


ABORTED_TOLD = 1000
"""In one AbortedFound."""


class AbortedFound(Message, frozen=True, tag=29):
    """These, by the order of their markers, or the first ABORTED_TOLD of them. The node's log ends
    at `end_offset`; below `stable_offset` all transactions are decided.
    """

    handle: Handle
    stable_offset: Place63
    end_offset: Place63
    found: tuple[AbortedPart, ...]


TransactionMessage: TypeAlias = FindAborted | AbortedFound
