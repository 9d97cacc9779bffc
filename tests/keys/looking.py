"""Indexes of which tests say what is in memory, and lookups that are over at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from samelog.sequencer.keys.partition_keys import PartitionKeys
from samelog.store.keys.key_pages import ABSENT
from samelog.store.keys.key_store import KeyEntry, NoKeys


async def at_once(work: Callable[..., Any], /, *arguments: Any) -> Any:
    """Instead of a thread."""
    return work(*arguments)


class DiskKeys(NoKeys):
    """An index that is on a disk only; it may be asked where somebody may wait."""

    def __init__(self, has: Mapping[bytes, int] | None = None) -> None:
        super().__init__()
        self.has = dict(has or {})
        self.may_wait = False

    def glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        return {}

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        assert self.may_wait, "the event loop waits for a disk"
        return {key: self.has[key] for key in keys if key in self.has}

    def advance(self, entries: Sequence[KeyEntry], end: int, sums: Mapping[int, int]) -> None:
        self.has.update(entries)


def offsets(known: PartitionKeys, keys: Sequence[bytes]) -> dict[bytes, int]:
    """Those of the keys that are known, however long a disk takes."""
    found = known.find(keys)
    if found is None:
        known.ask(keys)
        known.told(known.store.find(sorted(known.asked)))
        found = known.find(keys)
    assert found is not None
    return {key: offset for key, offset in found.items() if offset != ABSENT}
