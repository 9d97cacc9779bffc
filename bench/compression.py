"""What compression costs a publisher, and saves: one thread, local files, nothing shipped.

Records are JSON ticks of about 110 bytes, a thousand in one append. `ratio`: the bytes that were
written without compression, by those with it; nodes, copies and the network carry the latter.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from itertools import product
from statistics import median
from typing import NamedTuple

from samelog import Publisher
from samelog.config.tables.client import Compression
from samelog.format import _kernels as kernels
from samelog.format.compression import decompress

MANY = 1000
BATCHES = (1 << 16, 1 << 20)


class Cost(NamedTuple):
    """Of one codec: MB/s of records appended, processor seconds for each GB of these, the bytes
    that were written, and MB/s of records decoded.
    """

    append_mb_s: float
    cpu_s_per_gb: float
    stored_bytes: int
    decode_mb_s: float


def ticks(count: int) -> list[bytes]:
    """Prices that wander."""
    source, price = random.Random(1), 100.0
    found = []
    for number in range(count):
        price += source.choice([-0.01, 0.0, 0.01])
        tick = {
            "symbol": source.choice(["AAPL", "MSFT", "NVDA", "AMZN"]),
            "price": round(price, 2),
            "size": source.randrange(1, 50) * 100,
            "time": f"2026-03-01T09:30:{number // 1000 % 60:02d}.{number % 1000:03d}Z",
            "venue": source.choice("NPQZ"),
        }
        found.append(json.dumps(tick).encode())
    return found


def measure(values: list[bytes], codec: Compression, batch_bytes: int) -> Cost:
    """One round."""
    megabytes = sum(map(len, values)) / 1e6
    parts = [values[start : start + MANY] for start in range(0, len(values), MANY)]
    with tempfile.TemporaryDirectory() as directory:
        with Publisher(
            "t", session="s", directory=directory, batch_bytes=batch_bytes, compression=codec
        ) as publisher:
            publisher.append_many(parts[0])
            started, used = time.perf_counter(), time.process_time()
            for part in parts:
                publisher.append_many(part)
            append_s, cpu_s = time.perf_counter() - started, time.process_time() - used
        with open(os.path.join(directory, "s", "t-0", "log.0.0"), "rb") as file:
            stored = file.read()
    started = time.perf_counter()
    kernels.decode_columns(stored, 0, len(stored), decompress)
    decode_s = time.perf_counter() - started
    return Cost(megabytes / append_s, cpu_s / megabytes * 1e3, len(stored), megabytes / decode_s)


def main() -> None:
    """Print the medians of some rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    values = ticks(options.records)
    print("| codec | batches | append MB/s | processor s/GB | ratio | decode MB/s |")
    print("|---|---|---|---|---|---|")
    plain = 0.0
    for batch_bytes, codec in product(BATCHES, Compression):
        rounds = [measure(values, codec, batch_bytes) for _ in range(options.rounds)]
        found = [median(figures) for figures in zip(*rounds, strict=True)]
        plain = found[2] if codec is Compression.NONE else plain
        told = f"{found[0]:.0f} | {found[1]:.1f} | {plain / found[2]:.1f} | {found[3]:.0f}"
        print(f"| {codec.value} | {batch_bytes >> 10} KiB | {told} |")


if __name__ == "__main__":
    main()
