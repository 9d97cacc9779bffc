"""Rows a, b, c: a writer and a reader behind it, from end to end.

Invariant: clocks of two processes are compared on one machine only, whose monotonic clock they
share; connecting and warming up count for nothing.
"""

from __future__ import annotations

from bench import machine
from bench.kafka.systems import Bulk, Pace, System
from bench.latency import percentiles

WARM_UP_S = 2.0


def run_bulk(system: System, job: Bulk) -> dict[str, float]:
    """MB/s from the first record that is written to the last one that is read, and processor time
    per GB: of all processes, and of the nodes.
    """
    writer, reader = system.bulk(job)
    with writer, reader:
        writer.wait_ready()
        reader.wait_ready()
        machine.settled()
        before = machine.cpu_s(system.pids())
        writer.go()
        read, written = reader.result(), writer.result()
        nodes = machine.cpu_s(system.pids()) - before
    megabytes = job.size * job.records / 1e6
    gigabytes = megabytes / 1000
    return {
        f"mb_per_s.{job.size}": megabytes / (read["ended"] - written["began"]),
        f"cpu_s_per_gb.{job.size}": (nodes + read["cpu_s"] + written["cpu_s"]) / gigabytes,
        f"nodes_cpu_s_per_gb.{job.size}": nodes / gigabytes,
    }


def run_paced(system: System, job: Pace) -> dict[str, float]:
    """Milliseconds from when records were due until they were read, and the cores that the nodes
    took.
    """
    writer, reader = system.paced(job)
    with writer, reader:
        writer.wait_ready()
        reader.wait_ready()
        machine.settled()
        before = machine.cpu_s(system.pids())
        writer.go()
        read, written = reader.result(), writer.result()
        nodes = machine.cpu_s(system.pids()) - before
    taken = read["ms"][int(job.rate * WARM_UP_S) :]
    return percentiles(taken) | {"nodes_cores": nodes / (read["ended"] - written["began"])}
