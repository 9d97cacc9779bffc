"""`python -m bench [name ...] [options]`: run benchmarks, each as bench/README.md describes; all
that are named get the options. Without a name: all but those that take an hour, or need Java.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import takewhile

ALL = (
    "kernels",
    "publisher",
    "compression",
    "raft",
    "transport",
    "storage",
    "throughput",
    "latency",
    "failover",
    "rolling",
    "backlog",
    "archived_around",
    "catch_up",
    "compaction",
    "filters",
    "checking",
    "kafka_requests",
    "hostile",
    "groups",
    "partitions",
    "descriptors",
    "syscalls",
    "spark",
    "plain",
)
LONG = ("kafka", "many", "dolphindb", "spark_kafka", "sites")
"""Only by name."""


def main() -> int:
    """Run the named benchmarks one after another; the first failure's exit code."""
    given = list(takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    names, options = given or list(ALL), sys.argv[1 + len(given) :]
    unknown = [name for name in names if name not in ALL + LONG]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are: {', '.join(ALL + LONG)}\n")
        return 2
    if len(names) == 1:  # itself, so that whoever ends this process ends it
        os.execv(sys.executable, [sys.executable, "-m", f"bench.{names[0]}", *options])
    for name in names:
        sys.stderr.write(f"## {name}\n")
        code = subprocess.call([sys.executable, "-m", f"bench.{name}", *options])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
