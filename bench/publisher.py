"""What a publisher's appends cost the application: one thread, local files, nothing shipped.

`append` writes every record as a batch of its own; `append_linger` lets records share batches;
`append_many` hands over a thousand at once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from statistics import median

from samelog import Publisher

MANY = 1000


def rate(count: int, append: Callable[[], None], times: int) -> float:
    """Records per second."""
    started = time.perf_counter()
    for _ in range(times):
        append()
    return count * times / (time.perf_counter() - started)


def measure(records: int, size: int) -> dict[str, float]:
    """One round of each way to append."""
    value = bytes(size)
    values = [value] * MANY
    with tempfile.TemporaryDirectory() as directory:
        with Publisher("t", session="plain", directory=directory) as publisher:
            publisher.append(value)
            alone = rate(1, lambda: publisher.append(value), records)
            many = rate(MANY, lambda: publisher.append_many(values), 10 * records // MANY)
        with Publisher("t", session="linger", directory=directory, linger_ms=5) as publisher:
            publisher.append(value)
            linger = rate(1, lambda: publisher.append(value), records)
    return {"append": alone, "append_linger": linger, "append_many": many}


def main() -> None:
    """Print the medians of some rounds: records per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds = [measure(options.records, options.size) for _ in range(options.rounds)]
    middle = {name: median(found[name] for found in rounds) for name in rounds[0]}
    if options.json:
        print(json.dumps({"size": options.size, "records_per_s": middle}))
        return
    for name, records_per_s in middle.items():
        print(f"{name:14} {records_per_s:12,.0f} records/s of {options.size} bytes")


if __name__ == "__main__":
    main()
