"""What of a node's log and term is on its disk, and what is on the way there.

Every batch of effects carries a token; the driver gives it back when the batch is durable. An entry
that is replaced while its save is under way must not count as durable when that old save ends, so
replacing shortens pending saves.

Invariant: entries up to durable_index are on disk exactly as they are in the log.
"""

from __future__ import annotations

from samelog.consensus.types import SaveToken
from samelog.format.errors import InvariantError


class Saves:
    """The book of saves under way. `handed_index`: the last entry that was handed to the driver."""

    __slots__ = (
        "_pending",
        "_saved",
        "durable_index",
        "durable_term",
        "handed_index",
        "kept_index",
        "last_token",
    )

    def __init__(self, durable_index: int, durable_term: int) -> None:
        self.durable_index = durable_index
        self.durable_term = durable_term
        self.handed_index = durable_index
        self.kept_index = 0
        """Of the last entry on the disk at the start, whose bytes may not be there."""
        self.last_token: SaveToken = 0
        """The token of the newest batch."""
        self._saved: SaveToken = 0
        self._pending: list[tuple[SaveToken, int, int]] = []
        """A few; an empty deque would take 0.7 KB in each group."""

    def hand_out(self, last_index: int, term: int) -> None:
        """A batch that makes the log up to `last_index`, and `term`, durable goes to the driver.

        Its token is `last_token` from now on.
        """
        self.handed_index = last_index
        self.last_token += 1
        self._pending.append((self.last_token, last_index, term))

    def keep(self, commit: int, last_index: int, term: int) -> None:
        """Note that the entries behind the commit index are on a restarted node's disk, and count
        only once the batch that goes to the driver is durable.
        """
        self.replaced_from(commit + 1)
        self.hand_out(last_index, term)
        self.kept_index = last_index

    @property
    def on_disk(self) -> int:
        """The last entry of the log that is on the disk, whether it counts or not."""
        return max(self.durable_index, self.kept_index)

    def saved(self, token: SaveToken) -> None:
        """All batches up to the one with this token are durable. Raises InvariantError out of
        order.
        """
        if not self._saved <= token <= self.last_token:
            raise InvariantError(f"save {token} reported after {self._saved}, of {self.last_token}")
        self._saved = token
        done = 0
        for at, index, term in self._pending:
            if at > token:
                break
            self.durable_index, self.durable_term = index, term
            done += 1
        del self._pending[:done]

    def replaced_from(self, index: int) -> None:
        """The log changes at and above `index`: what is saved or being saved there no longer
        counts.
        """
        last = index - 1
        self.durable_index = min(self.durable_index, last)
        self.handed_index = min(self.handed_index, last)
        self.kept_index = min(self.kept_index, last)
        self._pending = [(token, min(upto, last), term) for token, upto, term in self._pending]

    def snapshot_installed(self, index: int) -> None:
        """The log was replaced by a snapshot: nothing counts until the batch that carries it is
        durable.
        """
        self.replaced_from(1)
        self.handed_index = index
