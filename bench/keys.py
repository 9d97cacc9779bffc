"""How fast keys are looked up and stored, by how many there are: `python -m bench.keys --keys N`.

What a leader and its index do for each record, without the cluster around them: decode keys, look
them up, leave out what is known, rewrite the rest, read keys back, store them durably in a
thread. A tenth of the records repeat a key. Rates are of records that are judged, and of the wall.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from samelog.format import _kernels as kernels
from samelog.format.batch import leave_out
from samelog.format.compression import decompress
from samelog.sequencer.keys.keeper import STORE_KEYS
from samelog.sequencer.keys.key_filter import KeyFilter
from samelog.sequencer.keys.partition_keys import KeyPiece, PartitionKeys
from samelog.sequencer.merge.drafts import Draft, Tail
from samelog.sequencer.merge.filters import CannotJudge, GivenBatch
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import OsFileSystem
from samelog.store.keys.key_store import open_keys, stored_keys

BATCH = 1000
REPEATED = 10
"""One of so many records repeats a key."""
STEPS = 10


def key_of(number: int) -> bytes:
    """16 bytes that look random."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=16).digest()


def batch_of(first: int) -> bytes:
    """Records of new keys, and of some that were there."""
    numbers = [
        random.randrange(first) if at % REPEATED == 0 and first else first + at
        for at in range(BATCH)
    ]
    return kernels.build_batches(
        [b"v" * 64] * BATCH,
        keys=[key_of(number) for number in numbers],
        timestamps=5,
        batch_bytes=1 << 20,
        max_record_bytes=1 << 20,
    )


class Run:
    """One partition's index in a directory."""

    def __init__(self, directory: str) -> None:
        machine = StateMachine()
        machine.apply(CreateTopicCommand("t", "t", 1, {"dedup.key": "first"}, 0))
        self.filter = KeyFilter(machine, lambda number: True)
        self.path = os.path.join(directory, "keys")
        self.keys = PartitionKeys(open_keys(OsFileSystem(), self.path))
        self.filter.partitions[1] = self.keys
        self.judged = self.offset = self.number = 0
        self._threads = ThreadPoolExecutor(2)
        self._storing: tuple[KeyPiece, Future[None]] | None = None

    def take(self) -> None:
        """One batch, as the leader and the keeper do."""
        data = batch_of(self.number)
        self.number += BATCH
        draft = Draft(1, Tail(self.offset, 0, 0, 0), self.offset, self.offset)
        runs = self._judge(draft, data)
        left = leave_out(data, runs) if runs else data
        known = stored_keys(kernels.keys_of(left, 0, len(left), decompress))
        self.keys.read(known)
        self.offset += len(known)
        self.judged += BATCH
        self._store()
        while self.keys.is_crowded:
            time.sleep(0.01)
            self._store()

    def _judge(self, draft: Draft, data: bytes) -> Sequence[int]:
        """Which records stay, once the index has said all that it is asked for."""
        while True:
            try:
                return self.filter.staying(draft, GivenBatch(Input(1, "s", 1), 0, 0, data), ())
            except CannotJudge:
                work = self._threads.submit(self.keys.store.find, sorted(self.keys.asked))
                self.keys.told(work.result())

    def _store(self, *, is_last: bool = False) -> None:
        if self._storing is not None and self._storing[1].done():
            self._storing[1].result()
            self.keys.stored(self._storing[0])
            self._storing = None
        is_due = is_last or self.keys.waiting >= STORE_KEYS
        if is_due and self._storing is None and (piece := self.keys.due(self.offset)) is not None:
            store = self.keys.store
            work = self._threads.submit(store.advance, piece.entries, piece.stop, piece.sums)
            self._storing = piece, work

    def finish(self) -> None:
        """Everything is stored."""
        while self.keys.waits:
            time.sleep(0.01)
            self._store(is_last=True)
        self._threads.shutdown()
        self.keys.store.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--directory", help="where the index is made, and removed again")
    options = parser.parse_args(arguments)
    directory = tempfile.mkdtemp(prefix="keys-", dir=options.directory)
    run, step = Run(directory), max(BATCH, options.keys // STEPS)
    print("    keys      records/s   CPU us/record   peak MB   index MB")
    try:
        while run.offset < options.keys:
            stop, judged = run.offset + step, run.judged
            began, used = time.monotonic(), time.process_time()
            while run.offset < stop:
                run.take()
            if stop >= options.keys:
                run.finish()
            count, seconds = run.judged - judged, time.monotonic() - began
            cpu = (time.process_time() - used) / count * 1e6
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            size = os.stat(os.path.join(run.path, "data.mdb")).st_blocks >> 11
            print(f"{run.offset:>10} {count / seconds:>12,.0f} {cpu:>13.1f} {peak:>10} {size:>10}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
