"""How nodes tell each other which files were archived, where one missed it.

Invariant: as in `samelog.wire.messages`.
"""

from __future__ import annotations

from samelog.wire.bounds import Message, Place63, Unsigned32


class HistoryAsked(Message, frozen=True, tag=46):
    """Which files of a partition, by its number, were archived from this offset on?"""

    partition: Unsigned32
    offset: Place63


class HistoryTold(Message, frozen=True, tag=47):
    """These, as records of the history file (docs/formats.md); none: nothing is known here."""

    partition: Unsigned32
    records: bytes
