"""Rows a, b, c: a writer and a reader behind it, from end to end.

Invariant: clocks of two processes are compared on one machine only, whose monotonic clock they
share; connecting and warming up count for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench import machine
from bench.kafka.systems import Bulk, Pace, Pair, System
from bench.latency import percentiles
from bench.machine import percentile
from bench.meter import Meter, Spent, disk_written
from bench.processes import Program

WARM_UP_S = 2.0


def run_bulk(system: System, job: Bulk) -> dict[str, float]:
    """MB/s from the first record that is written to the last one that is read, and processor time
    per GB: of all processes, and of the nodes; bytes that the disk got for each byte of a record.
    """
    ran = run_pair(system, system.bulk(job))
    megabytes = job.size * job.records / 1e6
    gigabytes = megabytes / 1000
    found = {
        "mb_per_s": megabytes / ran.seconds,
        "cpu_s_per_gb": (ran.nodes.cpu_s + ran.cpu_s) / gigabytes,
        "nodes_cpu_s_per_gb": ran.nodes.cpu_s / gigabytes,
        **ran.disk_ratio(job.size * job.records),
    }
    return {f"{name}.{job.size}": figure for name, figure in found.items()}


def run_paced(system: System, job: Pace) -> dict[str, float]:
    """Milliseconds from when records were due until they were read; where the writer says so, also
    until they were handed over and until they were acknowledged; the cores that the nodes took.
    """
    ran = run_pair(system, system.paced(job))
    warm, steps = int(job.rate * WARM_UP_S), dict[str, float]()
    for name in ("late", "ack"):
        if taken := ran.written[0].get(f"{name}_ms", ())[warm:]:
            steps |= {f"{name}_p50_ms": percentile(taken, 0.5)}
            steps |= {f"{name}_p99_ms": percentile(taken, 0.99)}
    return {
        **percentiles(ran.read["ms"][warm:]),
        **steps,
        "nodes_cores": ran.nodes.cpu_s / ran.seconds,
        **ran.disk_ratio(job.size * job.records),
    }


class Ran(NamedTuple):
    """What writers and the reader behind them found, and what the nodes spent meanwhile. `disk`:
    bytes that were written to the disk until all was synced; None: unknown.
    """

    written: Sequence[Mapping[str, Any]]
    read: Mapping[str, Any]
    nodes: Spent
    disk: int | None

    @property
    def seconds(self) -> float:
        """From the first record that was written to the last one that was read."""
        return float(self.read["ended"] - min(each["began"] for each in self.written))

    @property
    def cpu_s(self) -> float:
        """Of writers and reader."""
        return float(sum(each["cpu_s"] for each in (*self.written, self.read)))

    def disk_ratio(self, payload: int) -> dict[str, float]:
        """Bytes to disk for each byte of records, of all nodes together."""
        return {} if self.disk is None else {"disk_bytes_per_byte": self.disk / payload}


def run_pair(system: System, pair: Pair) -> Ran:
    """Run a writer and the reader behind it."""
    return run_programs(system.meter, system.directory, [pair.writer], pair.reader)


def run_programs(
    meter: Meter,
    directory: str,
    writers: Sequence[Program],
    reader: Program,
    also: Sequence[Meter] = (),
) -> Ran:
    """Run writers and a reader that is ready with their first records. `directory`: the nodes';
    `also`: meters of other processes.
    """
    with ExitStack() as stack:
        for program in (*writers, reader):
            stack.enter_context(program)
        for program in (*writers, reader):
            program.wait_ready()
        machine.settled()
        disk = disk_written(directory)
        with ExitStack() as windows:
            spent = windows.enter_context(meter.window())
            for each in also:
                windows.enter_context(each.window())
            for program in writers:
                program.go()
            written = [each.result() for each in writers]  # one that fails ends the run
            read = reader.result()
        os.sync()
        after = disk_written(directory)
    return Ran(written, read, spent, after - disk if after and disk else None)
