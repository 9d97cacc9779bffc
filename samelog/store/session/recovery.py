"""Opens a node's copy of a run after a crash, a loss of power, or damage to its disk.

A crash leaves a torn tail: the newest file ends in bytes that are no batch. They are cut. A durable
mark, a sealed name, a later file or an intact batch behind show that such bytes are damage instead
(`store.session.damage`). The run then ends in front of them. They and all bytes behind them are set
aside, and the node receives these bytes again from the publisher or another node: its copy of a run
has no gaps. Without marks, a copy of a torn tail is kept, too.

Invariant: a recovered run ends at a batch boundary, and is a prefix of what was appended. No byte
is removed that may be damage.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from samelog.format.errors import CorruptLog
from samelog.format.file_names import RunNames, data_name, from_name, sealed_name
from samelog.format.marks import RunMark
from samelog.store.disk.batch_walk import ValidExtent, valid_extent
from samelog.store.disk.files import File, FileSystem
from samelog.store.disk.quarantine import keep_copy, restore_prefix, set_aside
from samelog.store.session.damage import find_batch_behind
from samelog.store.session.run import HeldFile, HeldRun


@dataclass(slots=True)
class RunRecovery:
    """Recovers the runs of one input directory, and adds what it sets aside to `damaged`."""

    fs: FileSystem
    directory: str
    has_marks: bool
    damaged: list[CorruptLog]
    lost_durable: bool = False
    """Whether damaged bytes lie below a durable mark, or a lost mark may have covered them."""

    def recover(self, number: int, names: RunNames, mark: RunMark | None) -> HeldRun | None:
        """The run, ready for appending; None if nothing but leftovers was there."""
        self._clean(number, names)
        if not names.data and not names.starts:
            return None
        first = min(names.data, default=names.start[0])
        start = max(names.start, (first, 0))
        run = HeldRun(number, start, durable=start, hint=start[1])
        if mark is not None and (mark.roll, mark.byte) > start:
            run.durable, run.hint = (mark.roll, mark.byte), max(mark.hint, run.begin_of(mark.roll))
        roll = start[0]
        while self._take_up(run, roll, names):
            roll += 1
        return run

    def _clean(self, number: int, names: RunNames) -> None:
        """Finish a release or a start that a crash interrupted."""
        start = names.start
        for roll in sorted(names.data):
            if roll < start[0]:
                self._unlink(data_name(number, roll))
                names.data.discard(roll)
        first = min(names.data, default=start[0])
        self._unlink_seals(number, names, below=first)
        for roll, byte in names.starts:
            if (roll, byte) != start or roll < first:
                self._unlink(from_name(number, roll, byte))

    def _unlink_seals(self, number: int, names: RunNames, *, below: int) -> None:
        """Remove the seals of files that are gone: all, if nothing but seals is left."""
        is_gone = not names.data and not names.starts
        for roll in list(names.sealed):
            if is_gone or roll < below:
                self._unlink(sealed_name(number, roll, names.sealed.pop(roll)))

    # --- one file ------------------------------------------------------------------------------

    def _take_up(self, run: HeldRun, roll: int, names: RunNames) -> bool:
        """Check one file and add it to the run; whether the next one follows."""
        path = self._path(data_name(run.number, roll))
        if roll not in names.data:
            return self._take_up_missing(run, roll, names)
        length = names.sealed.get(roll)
        size = self.fs.size(path)
        if roll < run.durable[0]:
            if length == size:
                run.add(HeldFile(roll, size, is_sealed=True))
                return True
            return self._damage(run, roll, names, f"{size} bytes, {length} were durable")
        file = self.fs.open(path, writable=True)
        try:
            return self._take_up_tail(run, roll, names, file, size)
        finally:
            file.close()

    def _take_up_missing(self, run: HeldRun, roll: int, names: RunNames) -> bool:
        """The run ends before this file, unless something says that there was one."""
        if any(later > roll for later in names.data) or run.durable > (roll, run.begin_of(roll)):
            return self._damage(run, roll, names, "the file is missing")
        return False

    def _take_up_tail(
        self, run: HeldRun, roll: int, names: RunNames, file: File, size: int
    ) -> bool:
        """A file that reaches above the mark: check from shortly below the mark on, and cut."""
        begin = run.begin_of(roll)
        is_marked = roll == run.durable[0]
        stop = min(size, names.sealed.get(roll, size))
        checked = valid_extent(file, run.hint if is_marked else begin, stop)
        if is_marked and checked.end < run.durable[1]:
            reason = checked.reason or f"{size} bytes, {run.durable[1]} were durable"
            return self._damage(run, roll, names, reason)
        return self._cut(run, roll, names, file, checked)

    def _cut(
        self, run: HeldRun, roll: int, names: RunNames, file: File, checked: ValidExtent
    ) -> bool:
        """Let the file end behind its last intact batch; whether the next one follows."""
        end, is_whole = checked.end, checked.end == names.sealed.get(roll)
        is_damage = not is_whole and self._has_evidence(roll, names, file, end)
        if is_damage or not self.has_marks:
            self._keep(file, end, checked.reason, is_damage=is_damage)
        file.truncate(end)
        run.add(HeldFile(roll, max(end, run.begin_of(roll)), is_whole))
        if checked.last_start >= 0:
            run.last = (checked.last_start, checked.last_crc)
            run.last_append = (roll, checked.last_start)
        if not is_whole:
            self._drop_later(run.number, roll, names)
        return is_whole

    def _has_evidence(self, roll: int, names: RunNames, file: File, end: int) -> bool:
        """Whether the file was longer than its intact batches: it was complete, or one follows."""
        if roll in names.sealed or any(later > roll for later in names.data):
            return True
        size = file.size()
        return end < size and find_batch_behind(file, end, size) is not None

    def _keep(self, file: File, end: int, reason: str | None, *, is_damage: bool) -> None:
        """Copy the bytes from `end` on, which are about to be cut, and report them."""
        size, copy = file.size(), keep_copy(self.fs, file, end)
        if copy is None and not is_damage:
            return
        self.fs.sync_directory(self.directory)
        self.lost_durable |= not self.has_marks
        kept = "no bytes are left" if copy is None else f"a copy of what was cut is in {copy}"
        self.damaged.append(
            CorruptLog(file.path, end, f"{reason or f'the file has {size} bytes'}; {kept}")
        )

    # --- damage --------------------------------------------------------------------------------

    def _damage(self, run: HeldRun, roll: int, names: RunNames, reason: str) -> bool:
        """Set the file and its successors aside; go on behind its intact part, which is kept."""
        path = self._path(data_name(run.number, roll))
        begin = run.begin_of(roll)
        aside = set_aside(self.fs, path)
        self.lost_durable |= run.durable > (roll, begin)
        self._drop_later(run.number, roll, names)
        end = restore_prefix(self.fs, aside, path, begin)
        self.fs.sync_directory(self.directory)
        run.add(HeldFile(roll, end))
        run.durable, run.hint, run.last = (roll, end), begin, None
        self.damaged.append(CorruptLog(path, end, f"{reason}; the file is now {aside}"))
        return False

    def _drop_later(self, number: int, roll: int, names: RunNames) -> None:
        """Let the run end in the file `roll`, unsealed; set the files behind it aside."""
        for later in sorted(later for later in names.data if later > roll):
            path = self._path(data_name(number, later))
            if self.fs.size(path):
                aside = set_aside(self.fs, path)
                reason = f"follows a damaged file; it is now {aside}"
                self.damaged.append(CorruptLog(path, 0, reason))
            else:
                self._unlink(data_name(number, later))
            names.data.discard(later)
        for sealed in [sealed for sealed in names.sealed if sealed >= roll]:
            self._unlink(sealed_name(number, sealed, names.sealed.pop(sealed)))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _unlink(self, name: str) -> None:
        self.fs.unlink(self._path(name))
