"""samelog beside Apache Kafka 4.4.0 and NATS JetStream on this machine: `make bench-kafka`.

Runs what is missing of the rounds, one after another, and adds each to bench/results/kafka.jsonl;
the table and charts are rewritten after each. It may be interrupted at any time and goes on
there; rounds of other code or other amounts do not count.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys

from bench.kafka import rows
from bench.kafka.measures import AMOUNTS, fewer, measures
from bench.kafka.rig import Rig
from bench.rounds.page import Page, table
from bench.rounds.run import WORK, Rounds, place_of

NOTES = """\
Medians of the rounds, ranges in brackets; a ratio is ours over the peer's. Three nodes, brokers or
servers, and all clients, on this one machine, all up at once; systems take turns. samelog has
`fsync = "always"` and mutual TLS everywhere. Kafka: three KRaft brokers, three replicas,
`min.insync.replicas=2`, `acks=all`, idempotent, `linger.ms=5` (single records: 0), mutual TLS but
between controllers; *each record synced* is `flush.messages=1`. What is no ratio is worth less than
what is: the disk's pace and the load are below. Kafka is 4.4.0; rounds of ce38c01c and before
had 4.1.1."""


def main() -> int:
    """Run what is missing, or say what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=sorted(AMOUNTS), help="these measures")
    parser.add_argument("--share", type=float, default=1.0, help="of each amount, for a quick look")
    parser.add_argument("--list", action="store_true", help="how many rounds there are")
    parser.add_argument("--json", action="store_true", help="the rows, as JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what runs is stopped
    amounts = {
        name: settings if given.share == 1 else fewer(settings, given.share)
        for name, settings in AMOUNTS.items()
    }
    place = place_of(given.share)
    page = Page(
        place, "kafka", "samelog beside Apache Kafka", rows.all_rows(), rows.charts(), NOTES
    )
    with Rig(WORK) as rig:
        rounds = Rounds(measures(rig, amounts), page, WORK)
        if given.list:
            for name, there in rounds.counting().items():
                print(f"{name:20} {len(there)} of {given.rounds} rounds")
            return 0
        rounds.advance(given.rounds, given.only or ())
    rounds.write()
    found = json.loads((place / "kafka.json").read_text(encoding="utf-8"))["rows"]
    print(json.dumps(found) if given.json else table([row for row in found if row["rounds"]]))
    if failed := rounds.failed():
        sys.stderr.write(f"failed: {', '.join(sorted(failed))}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
