"""Whose a quota is that was set over the Kafka protocol: a user's, a client id's, or of both.

In the replicated state one text says whose it is. It was the name of a user alone before there were
quotas of client ids: a node of then takes all others for users whom nobody is.

Invariant: each owner has one text, and no two have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_AND, _ANY_USER = "\0", "\1"
"""Neither is in a name."""


class QuotaOwner(NamedTuple):
    """Names; empty: of everybody who has no quota of its own; None: it does not matter."""

    user: str | None
    client: str | None

    @classmethod
    def read(cls, text: str) -> QuotaOwner:
        """The owner that a text is of."""
        if text.startswith(_ANY_USER):
            return cls(None, text.removeprefix(_ANY_USER))
        user, is_both, client = text.partition(_AND)
        return cls(user, client if is_both else None)

    @property
    def text(self) -> str:
        """What stands in the replicated state."""
        if self.client is None:
            return self.user or ""
        return f"{_ANY_USER if self.user is None else self.user + _AND}{self.client}"


def owners_for(user: str, client: str) -> Sequence[QuotaOwner]:
    """Whose quotas may count for a user with a client id; the first one that has a rate does."""
    return (
        QuotaOwner(user, client),
        QuotaOwner(user, ""),
        QuotaOwner(user, None),
        QuotaOwner("", client),
        QuotaOwner("", ""),
        QuotaOwner("", None),
        QuotaOwner(None, client),
        QuotaOwner(None, ""),
    )
