"""Topics whose keys count once, in a world: records with keys, and what must be left of them.

Invariant: looking changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from samelog.format import _kernels as kernels
from tests.cluster_sim.options import Options, with_rules
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.canonical import End
    from tests.cluster_sim.history import History

WITHOUT_KEY = 0.1


def keyed_once(
    chance: random.Random, keys_most: int, history: History, whose: tuple[str, list[bytes], range]
) -> bytes:
    """Batches of these records of a session, with their numbers; most of them have a key."""
    session, values, numbers = whose
    keys: list[bytes | None] = []
    for number in numbers:
        key = b"key %d" % chance.randrange(keys_most)
        keys.append(None if chance.random() < WITHOUT_KEY else key)
        if keys[-1] is not None:
            history.keys[session, number] = key
    return kernels.build_batches(
        values, keys=keys, timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20
    )


def with_first_keys(options: Options, seed: int) -> Options:
    """The same world, but keys count once in all topics."""
    draw = random.Random(f"keys count once {seed}")
    return replace(
        with_rules(options),
        first_keys=draw.choice((10, 100, 1000)),
        horizon=draw.choice(("unlimited", "unlimited", "20", "3s")),
        segment_bytes=draw.choice((1 << 12, 1 << 14)),
        retention_bytes=draw.choice((-1, 1 << 13)),
    )


@dataclass(slots=True)
class FirstKeys:
    """What the keys of one log are, by the records in it."""

    horizon: str
    keys: dict[tuple[str, int], bytes]
    """(session, number) -> its key, of what was written."""
    newest: dict[bytes, int] = field(default_factory=dict)
    """Key -> the offset of its newest record."""
    ends: dict[bytes, End] = field(default_factory=dict)
    """Key -> where the batch of its first record ends."""

    def take(self, who: str, key: bytes | None, offset: int, end: End) -> None:
        """A record is merged."""
        if key is None:
            return
        before = self.newest.get(key)
        reach = int(self.horizon) if self.horizon.isdigit() else None
        is_first = before is None or (reach is not None and offset - before > reach)
        if not is_first and not self.horizon.endswith("s"):
            raise Violation("keys count once", f"{who} has {key!r} at {before} and {offset}")
        self.newest[key] = offset
        self.ends.setdefault(key, end)

    def counterpart(self, session: str, number: int) -> End | None:
        """Where the batch of the first record of the same key ends."""
        key = self.keys.get((session, number))
        return None if key is None else self.ends.get(key)
