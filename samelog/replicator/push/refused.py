"""Records of a session that the cluster has refused, because they do not fit their topic's schema.

They are lines of JSON in the file `refused` of the session's directory, until somebody removes it:
the session's own files go when all the rest is merged (docs/typed.md, T6). Invariant: what is
refused is durable here before anything that covers it is acknowledged; each record is in the file
once, as long as the file stays and is intact. The event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.format.directory_files import RefusedRecord
from samelog.format.errors import CorruptLog
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.file_writer import FileWriter
from samelog.store.disk.files import FileSystem
from samelog.store.disk.quarantine import set_aside
from samelog.wire.refusals import RefusedBatch, ToldMisfit, why_unfit

log = logging.getLogger(__name__)

REFUSED_FILE = "refused"
_Batch = tuple[int, int]


_decoder = msgspec.json.Decoder(RefusedRecord)


class RefusedRecords:
    """Of one session."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, REFUSED_FILE)
        self._known: dict[tuple[int, InputName], _Batch] | None = None
        """The newest batch that is in the file, by run and input."""
        self._end = 0
        self._writer = FileWriter()
        self.on_kept: Callable[[Sequence[RefusedRecord]], None] = lambda records: None
        """Told of what is new, once it is durable."""

    async def keep_in_turn(
        self, run: int, name: InputName, batch: RefusedBatch, data: bytes | None
    ) -> None:
        """Keep what was refused of a batch in a thread, after all batches before, and report the
        new records. `data`: as of `keep`. Raises LogFormatError.
        """
        await self._writer.run(partial(self._keep_and_report, run, name, batch, data))

    async def _keep_and_report(
        self, run: int, name: InputName, batch: RefusedBatch, data: bytes | None
    ) -> None:
        records = await asyncio.to_thread(self.keep, run, name, batch, data)
        if records:
            why = next(map(why_unfit, batch.told), "they do not fit the schema")
            log.error("%d records for %s-%d are refused: %s", len(records), *name, why)
            self.on_kept(records)

    async def finish(self) -> None:
        """Wait until all that is refused so far is kept."""
        await self._writer.finish()

    def keep(
        self, run: int, name: InputName, batch: RefusedBatch, data: bytes | None
    ) -> list[RefusedRecord]:
        """Keep what was refused of a batch; what is new of that. `data`: the batch; None: it is not
        here. Raises LogFormatError.
        """
        known = self._look()
        if (batch.roll, batch.start) <= known.get((run, name), (-1, 0)):
            return []
        records = [*_records(run, name, batch, data)]
        self._append(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
        known[run, name] = batch.roll, batch.start
        return records

    def _look(self) -> dict[tuple[int, InputName], _Batch]:
        """What is in the file; of a batch that is not there with all its lines nothing counts. A
        damaged file is set aside, since shipping must not wait for its repair.
        """
        size = self._fs.size(self._path) if self._fs.exists(self._path) else 0
        if self._known is not None and size == self._end:
            return self._known
        known: dict[tuple[int, InputName], _Batch] = {}
        end = at = count = 0
        for line in self._lines():
            try:
                each = _decoder.decode(line)
            except msgspec.MsgspecError as error:
                damage = CorruptLog(self._path, at, f"no record that was refused: {error}")
                log.error("%s; it is now %s", damage, set_aside(self._fs, self._path))
                known, end = {}, 0
                break
            at, count = at + len(line), count + 1
            if count == each.together:
                known[each.run, (each.topic, each.partition)] = each.roll, each.start
                end, count = at, 0
        self._known, self._end = known, end
        return known

    def _lines(self) -> list[bytes]:
        """Whole ones."""
        if not self._fs.exists(self._path):
            return []
        file = self._fs.open(self._path)
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def _append(self, lines: bytes) -> None:
        is_new = not self._fs.exists(self._path)
        file = self._fs.open(self._path, writable=True, create=True)
        try:
            file.truncate(self._end)
            file.pwrite(lines, self._end)
            file.datasync()
        finally:
            file.close()
        if is_new:
            self._fs.sync_directory(os.path.dirname(self._path))
        self._end += len(lines)


def _records(
    run: int, name: InputName, batch: RefusedBatch, data: bytes | None
) -> Iterator[RefusedRecord]:
    told = {each.record: each for each in batch.told}
    found: Sequence[kernels.Record | None]
    if data is None:
        found = [None] * sum(batch.runs)
    else:
        found = kernels.decode_records(data, 0, len(data), *name, decompress)
    numbers = [*compress(range(len(found)), (not stays for stays in _staying(batch.runs)))]
    for number in numbers:
        why = told.get(number, ToldMisfit(number, "", "", ""))
        record = found[number]
        yield RefusedRecord(
            topic=name[0],
            partition=name[1],
            run=run,
            roll=batch.roll,
            start=batch.start,
            record=number,
            together=len(numbers),
            column=why.column,
            expected=why.expected,
            found=why.found,
            timestamp=-1 if record is None else record.timestamp,
            key=None if record is None else record.key,
            value=None if record is None else record.value,
            headers=[] if record is None else [*record.headers],
            is_lost=record is None,
        )


def _staying(runs: Sequence[int]) -> Iterator[bool]:
    for place, length in enumerate(runs):
        yield from (place % 2 == 0 for _ in range(length))
