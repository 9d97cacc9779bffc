"""What the core wants done: one batch at a time, drained by the driver (docs/raft.md, "The driving
loop").

Invariant: a message in `send_after_save` promises what this batch, or an earlier one, makes
durable; everything in `send` is true whatever the disk does.
"""

from __future__ import annotations

import msgspec

from samelog.consensus.messages import RaftMessage
from samelog.consensus.types import Entry, HardState, SaveToken, Snapshot

Addressed = tuple[int, RaftMessage]


class Effects(msgspec.Struct, frozen=True):
    """One batch, to be carried out in the order of the fields; false if there is nothing to do."""

    send: list[Addressed]
    """May leave at once."""
    snapshot: Snapshot | None
    """Replaces the whole log and the state machine; to be durable before `entries`."""
    entries: list[Entry]
    """To be saved; they replace whatever the disk holds from the first one's index on."""
    hard_state: HardState | None
    """To be saved behind the entries."""
    must_sync: bool
    """Whether the save must be durable before `saved(token)`; otherwise writing it is enough."""
    token: SaveToken
    """For `saved`, once this and every earlier batch is saved."""
    send_after_save: list[Addressed]
    """May leave only once `saved(token)` may be called."""
    apply: list[Entry]
    """Committed entries for the state machine, in order, each exactly once."""
    reads: list[tuple[int, int | None]]
    """(context, index): the read may be answered once `index` is applied; None: ask again."""
    role_changed: bool
    """The role, the term or the known leader changed."""

    def __bool__(self) -> bool:
        return self is not NOTHING


NOTHING = Effects(
    send=[],
    snapshot=None,
    entries=[],
    hard_state=None,
    must_sync=False,
    token=0,
    send_after_save=[],
    apply=[],
    reads=[],
    role_changed=False,
)
"""The batch of a core that wants nothing."""
