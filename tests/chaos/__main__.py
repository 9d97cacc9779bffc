"""Command line: python -m tests.chaos [--list] [SCENARIO…] [--runs N] [--seed S] [--seconds S]
[--json]; or python -m tests.chaos failover|nats …, which measure.

The exit code is 0 if at least one scenario ran and none is broken.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from tests.chaos import failover, nats, scenarios
from tests.chaos.registry import SCENARIOS
from tests.chaos.run import BROKEN, SKIPPED, Row, run_scenario
from tests.mounts import keep_to_ourselves

MEASUREMENTS = {"failover": failover.main, "nats": nats.main}
COLUMNS = (
    ("scenario", 24),
    ("seed", 5),
    ("acknowledged", 12),
    ("merged", 9),
    ("lost", 5),
    ("doubled", 7),
    ("reordered", 9),
    ("corrupt_detected", 16),
    ("pause_ms", 8),
    ("read_pause_ms", 13),
    ("healed_in_s", 11),
)


def say(text: str) -> None:
    """One line of data."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(row: Row) -> None:
    """One row of the table, its remarks below."""
    values = row.as_dict()
    say(" ".join(f"{values[name]!s:>{width}}" for name, width in COLUMNS) + f"  {row.verdict}")
    for remark in row.remarks:
        say(f"    {remark}")


def list_scenarios() -> None:
    """Every scenario, and why those that cannot run here cannot."""
    for name, entry in SCENARIOS.items():
        reason = entry.why_not()
        say(f"{name:24} {entry.what}" + (f" [skipped here: {reason}]" if reason else ""))
    for name, measurement in MEASUREMENTS.items():
        say(f"{name:24} {(sys.modules[measurement.__module__].__doc__ or '').splitlines()[0]}")


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description="Real faults on real processes.")
    parser.add_argument("scenario", nargs="*", help="all by default")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--runs", type=int, default=1, help="runs of each scenario")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; +1 for each")
    parser.add_argument("--seconds", type=float, help="how long faults go on, in each run")
    parser.add_argument("--json", action="store_true", help="an object a line")
    parser.add_argument("--keep", action="store_true", help="keep the files of every run")
    return parser.parse_args()


def main() -> int:
    """Run what was asked for."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that everything is undone
    # Who makes a mount namespace of this one keeps its disks mounted: power would not come back.
    keep_to_ourselves()
    if sys.argv[1:2] and sys.argv[1] in MEASUREMENTS:
        return MEASUREMENTS[sys.argv.pop(1)]()
    options = parse()
    if options.list:
        list_scenarios()
        return 0
    unknown = [name for name in options.scenario if name not in SCENARIOS]
    if unknown:
        sys.stderr.write(f"no scenario {unknown[0]!r}; --list names them\n")
        return 2
    if not options.json:
        say(" ".join(f"{name:>{width}}" for name, width in COLUMNS) + "  verdict")
    verdicts = []
    for name in options.scenario or SCENARIOS:
        for seed in range(options.seed, options.seed + options.runs):
            row = run_scenario(
                SCENARIOS[name], seed=seed, seconds=options.seconds, keep=options.keep
            )
            verdicts.append(row.verdict)
            say(json.dumps(row.as_dict())) if options.json else show(row)
    ran = [verdict for verdict in verdicts if verdict != SKIPPED]
    return 1 if BROKEN in ran or not ran else 0


if __name__ == "__main__":
    del scenarios  # imported for what it registers
    sys.exit(main())
