"""What a node knows of the keys of one partition: its index, and in memory what is not in that yet.

Keys that were read from the merged log wait here until the log is durable and the index has them.
Keys that the leader has proposed are here until they come back in the log. What the index said of
keys that are to be judged is here until they are.

Invariant: index and memory together have every key of the records below `covered_to`; what was
proposed counts only as long as nothing that was proposed before it is lost; an answer of the index
has what the index got since it was asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.sequencer.state.tables import keys as key_table
from samelog.store.keys.key_pages import ABSENT
from samelog.store.keys.key_store import KeyEntry, KeyStore

MEMORY_KEYS = 2_000_000
"""A leader plans no more while there are so many that the index lacks."""
GLANCED_KEYS = 4_096
"""So many are looked up at once, if no disk has to be waited for."""
ASKED_KEYS = 16_384
"""When so many are to be looked up, no batch is added."""
ANSWERED_KEYS = 524_288
"""When there are more answers that nobody takes, they go."""


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """Records that were read, up to `stop`: their keys, and the digests up to there."""

    stop: int
    entries: Sequence[KeyEntry]
    sums: dict[int, int]


class PartitionKeys:
    """One partition's."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self.read_to = store.end
        """Keys of records below come from the log."""
        self.covered_to = store.end
        self.sums = dict(store.sums)
        """Block -> digest, as far as was read."""
        self.taken: list[bytes] = []
        """What was proposed last."""
        self.fault: LogFormatError | None = None
        """Why the index cannot be read: what it has is not known, so nothing can be judged."""
        self.asked: set[bytes] = set()
        """What the index is to be asked for, or is being."""
        self._answers: dict[bytes, int] = {}
        self._recent: dict[bytes, int] = {}
        self._pieces: deque[KeyPiece] = deque()
        self._proposed: dict[bytes, int] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether memory has too much."""
        return len(self._recent) + len(self._proposed) > MEMORY_KEYS

    @property
    def waiting(self) -> int:
        """How many keys were read that the index lacks."""
        return len(self._recent)

    @property
    def waits(self) -> bool:
        """Whether anything was read that the index lacks."""
        return bool(self._pieces)

    @property
    def is_asking(self) -> bool:
        """Whether the index has yet to say something."""
        return bool(self.asked)

    @property
    def asks_more(self) -> bool:
        """Whether there is room for more questions to it."""
        return len(self.asked) < ASKED_KEYS

    def find(self, keys: Sequence[bytes]) -> dict[bytes, int] | None:
        """The offset of the newest record of each key, or ABSENT; None: the disk knows, so `ask`.
        Raises LogFormatError, and from then on there is a fault.
        """
        found: dict[bytes, int] = {}
        unknown: list[bytes] = []
        for key in keys:
            offset = self._proposed.get(key)
            if offset is None:
                offset = self._recent.get(key)
            if offset is None:
                offset = self._answers.get(key)
            if offset is None:
                unknown.append(key)
            else:
                found[key] = offset
        told = self._glance(unknown) if unknown else {}
        return found | told if len(told) == len(unknown) else None

    def _glance(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        if len(keys) > GLANCED_KEYS:
            return {}
        try:
            return self.store.glance(keys)
        except LogFormatError as error:
            self.fault = error
            raise

    # --- what the index is asked for, beside the event loop ---------------------------------------

    def ask(self, keys: Iterable[bytes]) -> None:
        """These are to be judged; those that are not known here are asked for."""
        if len(self._answers) > ANSWERED_KEYS:
            self._answers.clear()
        known = self._proposed, self._recent, self._answers
        self.asked.update(key for key in keys if not any(key in each for each in known))

    def told(self, found: Mapping[bytes, int]) -> None:
        """What the index had, when it was asked, of all that was to be asked."""
        for key in self.asked:
            newer = self._answers.get(key, ABSENT)  # it got that meanwhile
            self._answers[key] = max(newer, found.get(key, ABSENT))
        self.asked.clear()

    def judged(self, keys: Iterable[bytes]) -> None:
        """Answers about these are not needed any more."""
        if self._answers:
            for key in keys:
                self._answers.pop(key, None)

    # --- what the leader proposes -----------------------------------------------------------------

    def propose(self, entries: Iterable[KeyEntry], stop: int) -> None:
        """These are proposed, in records up to `stop`."""
        known = dict(entries)
        self._proposed.update(known)
        self.taken, self.covered_to = [*known], stop

    def take_back(self, stop: int) -> None:
        """What was proposed last is not, after all."""
        for key in self.taken:
            self._proposed.pop(key, None)
        self.taken, self.covered_to = [], stop

    def forget_proposals(self) -> None:
        """What was proposed may be lost. What was not comes back in the log."""
        self._proposed.clear()
        self.taken, self.covered_to = [], self.read_to

    # --- what is in the log -----------------------------------------------------------------------

    def read(self, keys: Sequence[bytes | None]) -> None:
        """The next records of the log have these keys."""
        first, stop = self.read_to, self.read_to + len(keys)
        entries = [(key, first + at) for at, key in enumerate(keys) if key is not None]
        for key, offset in entries:
            self._recent[key] = offset
            if self._proposed.get(key) == offset:
                del self._proposed[key]
        self._pieces.append(KeyPiece(stop, entries, self._digest(keys, first)))
        self.read_to, self.covered_to = stop, max(stop, self.covered_to)

    def _digest(self, keys: Sequence[bytes | None], first: int) -> dict[int, int]:
        """The digests of the blocks that these belong to, grown by them."""
        changed, at, size = {}, 0, key_table.BLOCK_RECORDS
        while at < len(keys):
            block = (first + at) // size
            stop = min(len(keys), (block + 1) * size - first)
            before = self.sums.get(block, 0)
            changed[block] = kernels.digest_keys(keys[at:stop], first + at, before)
            at = stop
        self.sums.update(changed)
        return changed

    def due(self, durable: int) -> KeyPiece | None:
        """What the index may get now, as one piece; None: nothing."""
        entries: dict[bytes, int] = {}
        sums: dict[int, int] = {}
        stop = None
        for piece in self._pieces:
            if piece.stop > durable:
                break
            entries.update(piece.entries)
            sums |= piece.sums
            stop = piece.stop
        return None if stop is None else KeyPiece(stop, [*entries.items()], sums)

    def stored(self, piece: KeyPiece) -> None:
        """The index has it."""
        while self._pieces and self._pieces[0].stop <= piece.stop:
            self._pieces.popleft()
        for key, offset in piece.entries:
            if self._recent.get(key) == offset:
                del self._recent[key]
                if key in self.asked or key in self._answers:
                    self._answers[key] = offset
