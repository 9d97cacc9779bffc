"""`python -m bench [name ...]`: run benchmarks, all of them by default, each as bench/README.md
describes.
"""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "kernels",
    "publisher",
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
    "kafka",
    "kafka_requests",
    "spark",
)


def main() -> int:
    """Run the named benchmarks one after another; the first failure's exit code."""
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are: {', '.join(ALL)}\n")
        return 2
    for name in names:
        sys.stdout.write(f"## {name}\n")
        sys.stdout.flush()
        code = subprocess.call([sys.executable, "-m", f"bench.{name}"])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
