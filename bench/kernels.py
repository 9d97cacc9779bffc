"""How fast the compiled kernels are on one core, with 100-byte values.

Usage: python -m bench.kernels [--json]. Cases run in rounds, one after the other, so that a busy
moment of the machine hits all of them; the best and the median round are shown, in records (or
bytes) per second of wall time, beside the target.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from samelog.format import _kernels as kernels
from samelog.format.arrow import to_arrow
from samelog.format.batch import slice_batch
from samelog.format.compression import Codec, compress, decompress

ROUNDS = 25
VALUE_BYTES = 100
RECORDS = 10_000  # about a megabyte of batches: what one read of a tail brings
BATCH_BYTES = 64 * 1024
SINGLES = 2000
RECORD_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """Something to measure: `run` handles `units` of `unit`."""

    name: str
    units: float
    unit: str  # what is counted per second, in the scale it is shown in
    target: float  # of that unit per second; 0: none
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Result:
    """The rounds of a case, in its unit per second."""

    name: str
    unit: str
    best: float
    median: float
    target: float


def values() -> list[bytes]:
    """Values that differ and do not compress much."""
    source = random.Random(1)
    return [source.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(RECORDS)]


def build(data: list[bytes]) -> bytes:
    """The batches that most cases work on."""
    return kernels.build_batches(
        data, timestamps=1, batch_bytes=BATCH_BYTES, max_record_bytes=RECORD_LIMIT
    )


def build_cases(data: list[bytes]) -> list[Case]:
    """Writing."""
    keys = [b"key-%d" % number for number in range(len(data))]
    headers = [[("source", b"gate")]] * len(data)
    times = list(range(len(data)))
    value = data[0]
    builder = kernels.BatchBuilder()

    def full() -> bytes:
        return kernels.build_batches(
            data,
            keys=keys,
            headers=headers,
            timestamps=times,
            batch_bytes=BATCH_BYTES,
            max_record_bytes=RECORD_LIMIT,
        )

    def singles() -> None:
        for _ in range(SINGLES):
            kernels.build_record(value, None, None, 1)

    def adds() -> bytes:
        for _ in range(SINGLES):
            builder.add(value, None, None, 1)
        return builder.finish()

    millions = len(data) / 1e6
    return [
        Case("build_batches, values", millions, "M records", 5, lambda: build(data)),
        Case("build_batches, keys, headers and times", millions, "M records", 0, full),
        Case("build_record", SINGLES / 1e6, "M records", 2, singles),
        Case("BatchBuilder.add", SINGLES / 1e6, "M records", 0, adds),
    ]


def header_cases(log: bytes) -> list[Case]:
    """What happens to batches on their way."""
    scratch = bytearray(log)
    gigabytes = len(log) / 1e9

    def assign() -> None:
        kernels.assign_offsets(
            scratch,
            0,
            len(scratch),
            5,
            1,
            file_position=0,
            bytes_since_index=0,
            index_interval=4096,
            points=[],
        )

    return [
        Case("crc32c", gigabytes, "GB", 0, lambda: kernels.crc32c(log)),
        Case(
            "crc32c without the instruction",
            gigabytes,
            "GB",
            0,
            lambda: kernels.crc32c_portable(log),
        ),
        Case("scan with CRC, 64 KiB batches", gigabytes, "GB", 3, lambda: kernels.scan(log)),
        Case("assign_offsets, 64 KiB batches", gigabytes, "GB", 0, assign),
    ]


def decode_cases(data: list[bytes], log: bytes) -> list[Case]:
    """Reading."""
    millions, stop = len(data) / 1e6, len(log)
    packed = compressed(log)
    first = log[: kernels.scan(log, max_batches=1).end]
    records = kernels.scan(first).records

    def table(source: bytes) -> object:
        return to_arrow(source, 0, len(source), topic="t", partition=0)

    return [
        Case(
            "decode_records",
            millions,
            "M records",
            1.5,
            lambda: kernels.decode_records(log, 0, stop, "t", 0, decompress),
        ),
        Case("to_arrow", millions, "M records", 8, lambda: table(log)),
        Case("to_arrow, zstd", millions, "M records", 0, lambda: table(packed)),
        Case("slice_batch", records / 1e6, "M records", 0, lambda: slice_batch(first, 1)),
    ]


def compressed(log: bytes) -> bytes:
    """The same batches with zstd."""
    out = b""
    for header in kernels.batch_headers(log, 0, len(log)):
        start, size = header[0], header[1]
        body = compress(Codec.ZSTD, log[start + kernels.HEADER_BYTES : start + size])
        tail = Codec.ZSTD.to_bytes(2, "big") + log[start + 23 : start + 61] + body
        crc = kernels.crc32c(tail).to_bytes(4, "big")
        out += bytes(8) + (len(tail) + 9).to_bytes(4, "big") + bytes(4) + b"\x02" + crc + tail
    return out


def measure(cases: list[Case]) -> list[Result]:
    """Run every case once per round."""
    rates: dict[str, list[float]] = {case.name: [] for case in cases}
    for _ in range(ROUNDS):
        for case in cases:
            case.run()  # whatever the case before left in the caches
            begin = perf_counter()
            case.run()
            rates[case.name].append(case.units / (perf_counter() - begin))
    return [
        Result(case.name, case.unit, max(rates[case.name]), median(rates[case.name]), case.target)
        for case in cases
    ]


def show(results: list[Result]) -> None:
    """Print a table."""
    print(f"{'':40} {'best':>9} {'median':>9} {'target':>9}")
    for result in results:
        target = f"{result.target:.1f}" if result.target else "-"
        print(
            f"{result.name:40} {result.best:9.2f} {result.median:9.2f} {target:>9} {result.unit}/s"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    given = parser.parse_args()
    data = values()
    log = build(data)
    cases = [*build_cases(data), *header_cases(log), *decode_cases(data, log)]
    gc.freeze()
    results = measure(cases)
    if given.json:
        fields = ("name", "unit", "best", "median", "target")
        print(json.dumps([{name: getattr(result, name) for name in fields} for result in results]))
    else:
        show(results)


if __name__ == "__main__":
    main()
