"""One subscriber process of the demo: keeps a copy of the merged log and counts what it is handed.

Run as `python -m samelog.examples.demo.subscriber`. On stdout: one JSON object per report; it
ends by itself once it has been handed `--expect` records.
"""

from __future__ import annotations

import argparse
import json
import time

import click

from samelog import Subscriber
from samelog.examples.flights.data import TOPIC

REPORT_S = 0.1
POLL_S = 0.1


def main() -> None:
    """Subscribe from earliest until everything expected is here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--expect", type=int, required=True)
    options = parser.parse_args()
    received = 0
    next_report = time.monotonic()
    with Subscriber(
        TOPIC, directory=options.dir, config=options.config, start="earliest"
    ) as subscriber:
        while received < options.expect:
            received += len(subscriber.batch(max_records=10_000, timeout=POLL_S))
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + REPORT_S
                report(options.name, received=received, done=False)
    report(options.name, received=received, done=True)


def report(name: str, *, received: int, done: bool) -> None:
    """Tell the demo how far this subscriber is."""
    click.echo(json.dumps({"subscriber": name, "received": received, "done": done}))


if __name__ == "__main__":
    main()
