"""Appending with and without blocks reserved ahead, interleaved: what preallocation is worth on
this disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

from samelog.store.disk.append_file import AppendFile
from samelog.store.disk.files import OsFileSystem

CHUNK = bytes(1 << 20)


def plain(directory: str, megabytes: int) -> float:
    """Seconds for plain appends of 1 MiB."""
    file = OsFileSystem().open(os.path.join(directory, "plain"), writable=True, create=True)
    started = time.perf_counter()
    for number in range(megabytes):
        file.pwrite(CHUNK, number << 20)
    seconds = time.perf_counter() - started
    file.close()
    os.unlink(file.path)
    return seconds


def reserved(directory: str, megabytes: int) -> float:
    """Seconds for the same through AppendFile, which reserves ahead."""
    file = OsFileSystem().open(os.path.join(directory, "reserved"), writable=True, create=True)
    appender = AppendFile(file, 0)
    started = time.perf_counter()
    for _ in range(megabytes):
        appender.append(CHUNK)
    seconds = time.perf_counter() - started
    file.close()
    os.unlink(file.path)
    return seconds


def main() -> None:
    """Print medians as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rounds = [
            (plain(directory, options.megabytes), reserved(directory, options.megabytes))
            for _ in range(options.rounds)
        ]
    slow, fast = (statistics.median(column) for column in zip(*rounds, strict=True))
    print(
        json.dumps(
            {
                "plain_mb_per_s": options.megabytes / slow,
                "reserved_mb_per_s": options.megabytes / fast,
                "ratio": slow / fast,
            }
        )
    )


if __name__ == "__main__":
    main()
