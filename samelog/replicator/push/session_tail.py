"""The files of one run of one input at the publisher, followed while somebody else writes them.

Scanning goes piece by piece and only as far as a link to a node asks for it, so that neither time
nor memory depends on the size of a backlog. The pieces read last are kept for a moment, because
the links to the other nodes want the same ones.

Invariant: `end` is a boundary of whole batches with valid CRCs, and never moves back; a short or
invalid batch behind it means "not yet", unless there is evidence of damage
(`store.session.damage`). A tail ends at damage: the part of the run ends there, and the next part
has a tail of its own.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping

from samelog.format import _kernels as kernels
from samelog.format.batch import HELD_BATCH_BYTES, LENGTH_PREFIX_BYTES, told_size
from samelog.format.errors import CorruptLog
from samelog.format.file_names import RunNames, data_name
from samelog.format.positions import SessionPosition
from samelog.replicator.interfaces import RollByte
from samelog.store.disk.file_cache import FileCache
from samelog.store.disk.files import File, FileSystem, NoSuchFile
from samelog.store.session.damage import Damage, find_damage
from samelog.wire.push.effects import FileExtent
from samelog.wire.push.layout import Layout

PIECE_BYTES = 1 << 20
KEPT_BYTES = 8 << 20

_Key = tuple[object, int, int]
"""(tail, roll, byte). A tail that is gone stays as long as its pieces: `id` would be another's."""


class PieceCache:
    """The pieces read last, by where they start; shared by all tails of a session."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pieces: OrderedDict[_Key, memoryview] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key, limit_bytes: int) -> memoryview | None:
        """A piece that is not longer than wanted."""
        piece = self._pieces.get(key)
        return piece if piece is not None and len(piece) <= limit_bytes else None

    def put(self, key: _Key, piece: memoryview) -> None:
        """Keep a piece, and drop the oldest ones."""
        old = self._pieces.pop(key, None)
        self._bytes += len(piece) - (0 if old is None else len(old))
        self._pieces[key] = piece
        while self._bytes > self._limit_bytes:
            self._bytes -= len(self._pieces.popitem(last=False)[1])


class FilePart:
    """A file that is read from a byte on as if it began there."""

    __slots__ = ("_base", "_file")

    def __init__(self, file: File, base: int) -> None:
        self._file, self._base = file, base

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._file.path

    def size(self) -> int:
        """Bytes behind the base."""
        return max(0, self._file.size() - self._base)

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        return self._file.pread(size, self._base + position)


class RunTail:
    """One run of one input, by wire positions. Its owner tells it of changes with `look` and
    `notice`.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        run: int,
        pieces: PieceCache,
        layout: Layout | None = None,
    ) -> None:
        """`layout`: how wire positions differ from those in the files; None: they do not."""
        self.first: RollByte = (0, 0)
        """Where the bytes held begin."""
        self.end: RollByte = (0, 0)
        """Up to where whole batches are known."""
        self.reaches: RollByte = (0, 0)
        """Up to where the run is known to reach, by its record or by durable marks."""
        self.damage: Damage | None = None
        """The damage that ends this part of the run."""
        self.on_damage: Callable[[], None] = lambda: None
        """Called when damage is found."""
        self.blocked: str | None = None
        """Why the bytes behind `end` are no batch (yet)."""
        self.layout = layout
        self._directory = directory
        self._run = run
        self._files = FileCache(fs)
        self._names = RunNames()
        self._lengths: dict[int, int] = {}
        self._pieces = pieces
        self._listeners: list[Callable[[], None]] = []
        self.may_have_more = True
        """Whether the file at `end` may hold bytes that were not looked at."""

    # --- being told ---------------------------------------------------------------------------

    def look(self, known: Mapping[int, RunNames]) -> None:
        """The directory was listed: the names in it, by run."""
        if self.layout is None:
            names = known.get(self._run, RunNames())
        else:
            names = self.layout.names(known)
        self._names = names
        self.may_have_more = True
        if names.data:
            self.first = max(names.start, (min(names.data), 0))
            self.end = max(self.end, self.first)
        for roll in [roll for roll in self._lengths if roll < self.first[0]]:
            del self._lengths[roll]
            self._files.drop(roll)

    def notice(self) -> None:
        """There may be more: tell those who listen. The first one who wants it looks, and whatever
        is found is told to all; so the others need not be asked to look as well.
        """
        self.may_have_more = True
        for listener in tuple(self._listeners):
            listener()
            if not self.may_have_more:
                return

    def _tell_others(self, asking: Callable[[], None] | None) -> None:
        for listener in tuple(self._listeners):
            if listener is not asking:
                listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` when there may be more, or `end` has moved."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    # --- local positions ------------------------------------------------------------------------

    def local(self, place: RollByte) -> SessionPosition:
        """The position in the files of a wire position."""
        if self.layout is None:
            return SessionPosition(self._run, *place)
        return self.layout.local(place)

    def wire(self, position: SessionPosition) -> RollByte:
        """The wire position of a position in the files."""
        return position[1:] if self.layout is None else self.layout.wire(position)

    def reaches_beyond(self, place: RollByte) -> bool:
        """Whether there is anything behind a batch boundary, whole batches or not. Raises
        DiskFault.
        """
        if not any(roll >= place[0] for roll in self.rolls):
            return False
        self.raise_to(place)
        self.may_have_more = True
        while self.normal(self.end) <= self.normal(place) and self.advance():
            pass
        return self.normal(self.end) > self.normal(place) or self.blocked is not None

    def advance_to_end(self) -> None:
        """Know all whole batches that are there now. Raises DiskFault."""
        if self.rolls:
            self.raise_to((self.rolls[-1], 0))
        self.may_have_more = True
        while self.advance():
            pass

    def all_lengths(self) -> list[tuple[int, int]]:
        """The files of a run that is over, missing ones included, and how long each is: up to its
        last whole batch, or its end if that is damaged. Raises DiskFault.
        """
        self.advance_to_end()
        first, last = (self.rolls[0], self.rolls[-1]) if self.rolls else (0, -1)
        lengths = {roll: self._lengths.get(roll, 0) for roll in range(first, last + 1)}
        if self.end[0] == last:
            is_damaged = self.damage is not None and self.damage.start >= self.end
            lengths[last] = self._file(last).size() if is_damaged else self.end[1]
        return list(lengths.items())

    # --- how far it reaches -------------------------------------------------------------------

    @property
    def part_end(self) -> RollByte:
        """Where the part of the run ends, as far as is known."""
        return self.end if self.damage is None else self.damage.start

    @property
    def is_damaged(self) -> bool:
        """Whether this part of the run ends in damage."""
        return self.damage is not None

    @property
    def has_bytes(self) -> bool:
        """Whether there is a file of this run."""
        return bool(self._names.data)

    @property
    def rolls(self) -> list[int]:
        """The files there are."""
        return sorted(self._names.data)

    def extent(self, roll: int) -> FileExtent | None:
        """How far a file reaches, as far as that is known."""
        if roll == self.end[0]:
            return FileExtent(self.end[1], None)
        length = self._lengths.get(roll)
        return None if length is None else FileExtent(length, roll + 1)

    def sealed_length(self, roll: int) -> int | None:
        """The length of a file that will never grow."""
        return self._names.sealed.get(roll, self._lengths.get(roll))

    def normal(self, place: RollByte) -> RollByte:
        """The end of a sealed file is the start of the next one: always the latter, also behind
        empty files.
        """
        while place[1] == self.sealed_length(place[0]):
            place = place[0] + 1, 0
        return place

    def raise_to(self, place: RollByte) -> None:
        """A batch boundary is known, further up than the scan has come. Files below it may be gone:
        a power failure can undo some removals of released files, and keep others.
        """
        if place <= self.end:
            return
        for roll in range(self.end[0], place[0]):
            length = self._names.sealed.get(roll)
            if length is None and roll not in self._names.data:
                continue
            self._lengths[roll] = self._file(roll).size() if length is None else length
        self.end = place
        self.may_have_more = True
        self._roll_over()

    def advance(self, asking: Callable[[], None] | None = None) -> bool:
        """Move `end` over the next piece of whole batches; False: there is none, for now.

        All who listen are told, but for the one that is `asking`. Raises DiskFault.
        """
        if not self.may_have_more or (self.damage and self.end >= self.damage.start):
            return False
        roll, byte = self.end
        try:
            moved = self._scan(self._file(roll), byte)
        except NoSuchFile:
            moved = False
        else:
            if self._roll_over():
                moved = self.may_have_more = True
        if not moved:
            moved = self._look_for_damage()
        if moved and (asking is None or len(self._listeners) > 1):
            self._tell_others(asking)
        return moved

    def _look_for_damage(self) -> bool:
        """Whether the bytes behind `end` are damaged, which is news for all who listen."""
        roll, names = self.end[0], self._names
        may_grow = roll not in names.sealed and roll >= max(names.data, default=roll)
        if may_grow and self.blocked is None and self.reaches <= self.end:
            return False  # nothing is behind, or nothing whole yet
        return self.judge(self.end)

    def judge(self, place: RollByte) -> bool:
        """Find out whether the bytes at a batch boundary are damaged, where none could be read;
        `damage` says so then. Raises DiskFault.
        """
        if self.damage is None:
            found = find_damage(self._file, self._names, end=place, known=self.reaches)
            if found is not None:
                self._end_at(found)
        if self.damage is not None:
            self.may_have_more = False
        return self.damage is not None

    def _end_at(self, damage: Damage) -> None:
        self.damage = damage
        self.on_damage()

    def lose_start(self) -> None:
        """End the part where it begins, because the files before the first one are missing, and the
        cluster lacks their bytes. Damage behind is found again in the next part.
        """
        self._end_at(Damage((0, 0), self.first, "the files before are missing"))

    def _scan(self, file: File | FilePart, byte: int) -> bool:
        """Look at the next piece of a file; whether there was one."""
        roll = self.end[0]
        room = self._names.sealed.get(roll, file.size()) - byte
        data = file.pread(min(room, PIECE_BYTES), byte) if room > 0 else b""
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.short and not scan.end and len(data) < told_size(data) <= room:
            data = file.pread(told_size(data), byte)
            scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        self.blocked = scan.error
        self.may_have_more = 0 < scan.end < room
        if scan.end:
            self._pieces.put((self, roll, byte), memoryview(data)[: scan.end])
            self.end = (roll, byte + scan.end)
        return scan.end > 0

    def _roll_over(self) -> bool:
        """Go on in the next file if this one is complete."""
        roll, byte = self.end
        length = self._names.sealed.get(roll)
        if length is None and roll in self._names.data and max(self._names.data) > roll:
            length = self._file(roll).size()
        if length != byte:
            return False
        self._lengths[roll] = byte
        self.end = (roll + 1, 0)
        return True

    # --- reading ------------------------------------------------------------------------------

    def read(self, roll: int, byte: int, limit_bytes: int) -> memoryview:
        """Whole valid batches from a boundary below `end`: up to `limit_bytes`, at least one.

        Raises:
            NoSuchFile: the file was released.
            CorruptLog: no valid batch starts there.
            DiskFault: the disk fails.
        """
        key = (self, roll, byte)
        piece = self._pieces.get(key, limit_bytes)
        if piece is None:
            piece = self._read(roll, byte, limit_bytes)
            self._pieces.put(key, piece)
        return piece

    def _read(self, roll: int, byte: int, limit_bytes: int) -> memoryview:
        file = self._file(roll)
        data = file.pread(limit_bytes, byte)
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if scan.short and not scan.end:
            data = file.pread(told_size(file.pread(LENGTH_PREFIX_BYTES, byte)), byte)
            scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES)
        if not scan.end:
            raise CorruptLog(file.path, byte, scan.error or "the batch is cut")
        return memoryview(data)[: scan.end]

    def read_part(self, roll: int, byte: int, size_bytes: int) -> bytes:
        """Bytes of a batch that was read before. Raises NoSuchFile, DiskFault."""
        return self._file(roll).pread(size_bytes, byte)

    def find_batch(self, roll: int, start: int, stop: int) -> tuple[int, int] | None:
        """Return (end, CRC) of the valid batch that starts there, or None. If a batch was there
        when the file was scanned, it is damaged by now. Raises DiskFault.
        """
        found = self._batch_at(roll, start, stop)
        if found is None and (roll, start) < self.end:
            self.judge((roll, start))
        return found

    def _batch_at(self, roll: int, start: int, stop: int) -> tuple[int, int] | None:
        try:
            size = told_size(self._file(roll).pread(LENGTH_PREFIX_BYTES, start))
            data = self._file(roll).pread(min(stop - start, size), start)
        except NoSuchFile:
            return None
        scan = kernels.scan(data, max_batch_bytes=HELD_BATCH_BYTES, max_batches=1)
        return (start + scan.end, scan.last_crc) if scan.batches else None

    def _file(self, roll: int) -> File | FilePart:
        opened = self._files.find(roll)
        if self.layout is None:
            return opened or self._open(roll, self._run, roll)
        run, own, base = self.layout.source(roll)
        opened = opened or self._open(roll, run, own)
        return FilePart(opened, base) if base else opened

    def _open(self, key: int, run: int, roll: int) -> File:
        return self._files.open(key, os.path.join(self._directory, data_name(run, roll)))
