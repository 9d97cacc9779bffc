"""One row, once, on the product that is on Python's path: prints its figures as JSON."""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys

from bench.kafka.nodes import Nodes
from bench.many.measure import KINDS, World
from bench.many.rows import LOADS

DESCRIPTORS = 150_000


def main() -> None:
    """Start nodes, measure, stop them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=LOADS)
    parser.add_argument("--amounts", type=json.loads, required=True)
    parser.add_argument("--place", required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what runs is stopped
    load = LOADS[given.row]
    allow_descriptors()
    with Nodes(given.place, load.limits) as nodes:
        print(json.dumps(KINDS[load.run](World(nodes), given.amounts)), flush=True)


def allow_descriptors() -> None:
    """Raise the limit of this process and of those it starts, as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in ((DESCRIPTORS, max(hard, DESCRIPTORS)), (hard, hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
        except (OSError, ValueError):
            continue
        return


if __name__ == "__main__":
    main()
