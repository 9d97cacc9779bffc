"""What it costs that nodes check records (`schema.enforce=node`): processor time of the process
that checks, of the node that asks it, and how long the leader's event loop is held at a time.

Records of about 100 bytes of JSON, in batches of 64 KiB, plain and compressed; and Arrow streams of
a thousand rows, of which columns and shape are looked at only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil
import pyarrow as pa

from samelog.format import _kernels as kernels
from samelog.format.compression import Codec
from samelog.format.recompression import packed
from samelog.sequencer.judging.process import ProcessJudge
from samelog.typed.judging import judge_batch
from samelog.typed.schema import parse_schema
from samelog.typed.values.codecs import codec_of
from tests.judging.test_schema_filter import World

BATCH_BYTES = 64 << 10
TASK_BATCHES = 2
COLUMNS: list[dict[str, Any]] = [
    {"name": "symbol", "type": "string", "nullable": False},
    {"name": "price", "type": "float64"},
    {"name": "size", "type": "int64"},
    {"name": "venue", "type": "string"},
]
JSON_TEXT = json.dumps({"format": "json", "columns": COLUMNS})
OPEN = [{"name": each["name"], "type": each["type"]} for each in COLUMNS]
ARROW_TEXT = json.dumps({"format": "arrow", "columns": OPEN})


def json_rows(count: int) -> list[bytes]:
    """Values of about 100 bytes."""
    draw = random.Random(1)
    return [
        json.dumps(
            {
                "symbol": f"S{draw.randrange(1000)}",
                "price": round(draw.uniform(1, 1000), 4),
                "size": draw.randrange(1, 100_000),
                "venue": draw.randbytes(16).hex(),
            }
        ).encode()
        for _ in range(count)
    ]


def batches_of(values: Sequence[bytes], codec: Codec = Codec.NONE) -> list[bytes]:
    """As a publisher cuts them."""
    data = kernels.build_batches(
        list(values), timestamps=1, batch_bytes=BATCH_BYTES, max_record_bytes=1 << 24
    )
    headers = kernels.batch_headers(data, 0, len(data))
    found = [data[header[0] : header[0] + header[1]] for header in headers]
    return [packed(each, codec) for each in found] if codec else found


def judged_us(text: str, batches: Sequence[bytes], records: int) -> float:
    """Processor time for each record, in this process."""
    schemas = {1: parse_schema(text)}
    spent_s = 0.0
    for _ in range(2):  # once to warm up
        began = time.process_time()
        for batch in batches:
            assert not judge_batch(schemas, 1, batch).records
        spent_s = time.process_time() - began
    return spent_s / records * 1e6


async def asked_us(text: str, batches: Sequence[bytes], records: int) -> tuple[float, float]:
    """The same of the process that checks, and of this one, which asks it."""
    judge = ProcessJudge()
    tasks = [batches[n : n + TASK_BATCHES] for n in range(0, len(batches), TASK_BATCHES)]
    try:
        await judge.judge("s", "k", [text], tasks[0])
        assert judge._worker is not None
        worker = psutil.Process(judge._worker._process.pid)
        before, began = sum(worker.cpu_times()[:2]), time.process_time()
        for task in tasks:
            await judge.judge("s", "k", [text], task)
        own_s = time.process_time() - began
        return (sum(worker.cpu_times()[:2]) - before) / records * 1e6, own_s / records * 1e6
    finally:
        await judge.close()


def longest_plan_ms(values: Sequence[bytes], text: str) -> float:
    """Processor time of one call of a leader's planner, where 64 sessions have records."""
    names = [chr(0x4E00 + n) for n in range(64)]
    world = World("".join(names), text=text)
    data = b"".join(batches_of(values))
    for number in range(1, len(names) + 1):
        world.put(number, data)
    longest = 0.0
    for _ in range(40):
        began = time.thread_time()
        merges = world.plan()
        longest = max(longest, time.thread_time() - began)
        world.commit(merges)
        world.check()
    return longest * 1000


def main() -> None:
    """Measure, and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, prog="bench checking")
    parser.add_argument("--records", type=int, default=200_000)
    count = parser.parse_args().records
    values = json_rows(count)
    plain, zstd = batches_of(values), batches_of(values, Codec.ZSTD)
    row = {"symbol": "S1", "price": 1.5, "size": 3, "venue": "x"}
    table = pa.table({name: [cell] * count for name, cell in row.items()})
    streams = batches_of(codec_of(parse_schema(ARROW_TEXT)).encode(table))
    worker_us, node_us = asyncio.run(asked_us(JSON_TEXT, plain, count))
    found = {
        "value_bytes": round(sum(map(len, values)) / count),
        "json_us": judged_us(JSON_TEXT, plain, count),
        "json_zstd_us": judged_us(JSON_TEXT, zstd, count),
        "arrow_us": judged_us(ARROW_TEXT, streams, count),
        "worker_us": worker_us,
        "asking_us": node_us,
        "longest_plan_ms": longest_plan_ms(values[:2000], JSON_TEXT),
    }
    sys.stdout.write(json.dumps({k: round(v, 3) for k, v in found.items()}) + "\n")


if __name__ == "__main__":
    main()
