"""One publisher process of the demo: appends an airport's flights at an even pace and reports how
far it is.

Run as `python -m samelog.examples.demo.publisher`. On stdout: one JSON object per report; the
last one has "done": true.
"""

from __future__ import annotations

import argparse
import json
import time

import click

from samelog import Publisher
from samelog.examples.flights.data import TOPIC, load

SLICE_S = 0.02
REPORT_S = 0.1
MERGE_TIMEOUT_S = 60.0


def main() -> None:
    """Publish one airport."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--airport", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    flights = load(options.airport)
    started = time.monotonic()
    with Publisher(
        TOPIC, session=options.airport.lower(), directory=options.dir, config=options.config
    ) as publisher:
        appended = 0
        next_report = started
        total = len(flights.values)
        while appended < total:
            due = min(total, 1 + int(total * (time.monotonic() - started) / options.seconds))
            publisher.append_many(
                flights.values[appended:due],
                keys=flights.keys[appended:due],
                timestamps=flights.timestamps_ms[appended:due],
            )
            appended = due
            if time.monotonic() >= next_report:
                next_report += REPORT_S
                report(options.airport, appended=appended, done=False)
            time.sleep(SLICE_S)
        publisher.wait_merged(timeout=MERGE_TIMEOUT_S)
    report(options.airport, appended=appended, done=True)


def report(airport: str, *, appended: int, done: bool) -> None:
    """Tell the demo how far this publisher is."""
    click.echo(json.dumps({"airport": airport, "appended": appended, "done": done}))


if __name__ == "__main__":
    main()
