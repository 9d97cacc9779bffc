"""The client programs of many sessions: publishers in one process, programs that only write session
directories for a sidecar, a subscriber, and a process that keeps the disk busy.

A record of load carries the time at which it was due; latency counts from that time. The cluster is
thrown away after each round, so programs end without closing their sessions.
"""

from __future__ import annotations

import argparse
import mmap
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.machine import percentile
from bench.processes import Clock, ready, stand_by
from samelog import Publisher, Subscriber

STAMP = struct.Struct(">q")
START = b"start"
SECOND = 1_000_000_000
OPEN_S = 300.0
PIECE = 1 << 20
FILE_PIECES = 256
POLL_S = 0.2
OPENERS = 16


def publish(given: argparse.Namespace) -> None:
    """Append `rate` records a second in each of `sessions` sessions, in turn. Without a config the
    sessions are only written, for a sidecar.
    """
    publishers = opened(given)
    ship(publishers, given)
    stand_by()
    if not given.records:
        sys.stdin.read()
        return
    padding, late = bytes(given.size - STAMP.size), list[float]()
    rate = given.rate * len(publishers)
    clock, begun = Clock(), time.monotonic_ns()
    for number in range(given.records):
        due = begun + int(number * SECOND / rate)
        if (wait := due - time.monotonic_ns()) > 0:
            time.sleep(wait / 1e9)
        publishers[number % len(publishers)].append(STAMP.pack(due) + padding)
        late.append((time.monotonic_ns() - due) / 1e6)
    ship(publishers, given)
    clock.found(late_ms=percentile(late, 0.99))


def ship(publishers: Sequence[Publisher], given: argparse.Namespace) -> None:
    """Wait until the records of all sessions are merged. Raises NotMerged."""
    deadline = time.monotonic() + given.open_s
    for each in publishers if given.config else ():
        each.wait_merged(timeout=max(0.1, deadline - time.monotonic()))


def opened(given: argparse.Namespace) -> list[Publisher]:
    """Open the sessions, and append a first record to each. Those that are only written are opened
    side by side, because their directories are synced.
    """
    config = given.config or None

    def open_one(number: int) -> Publisher:
        publisher = Publisher(
            given.topic, session=f"{given.topic}-{number}", directory=given.dir, config=config
        )
        publisher.append(START)
        return publisher

    with ThreadPoolExecutor(1 if config else OPENERS) as pool:
        return list(pool.map(open_one, range(given.first, given.first + given.sessions)))


def subscribe(given: argparse.Namespace) -> None:
    """Ready with the first record of every session, or after `open_s`; then milliseconds of every
    record since it was due, until all were read or none came for `patience` seconds.
    """
    found, starts, begun = list[float](), 0, time.monotonic()
    with Subscriber(
        given.topic, directory=given.dir, config=given.config, start="earliest"
    ) as subscriber:
        while starts < given.sessions and time.monotonic() < begun + given.open_s:
            starts += len(subscriber.batch(max_records=1000, timeout=1.0))
        opened_at = time.monotonic()
        ready()
        clock, last = Clock(), time.monotonic()
        while len(found) < given.records and time.monotonic() < last + given.patience:
            records = subscriber.batch(max_records=1000, timeout=POLL_S)
            now = time.monotonic_ns()
            values = [each.value or START for each in records]
            found += [
                (now - STAMP.unpack_from(value)[0]) / 1e6 for value in values if value != START
            ]
            last = now / 1e9 if records else last
        clock.found(ms=found, opened_at=opened_at, opened=starts)
        leave()


def first(given: argparse.Namespace) -> None:
    """Milliseconds from the first append to a topic that does not exist until it is merged."""
    found = []
    with Publisher(
        given.topic, session="first", directory=given.dir, config=given.config
    ) as publisher:
        publisher.append(START)
        publisher.wait_merged(timeout=OPEN_S)
        stand_by()
        clock = Clock()
        for number in range(given.records):
            begun = time.perf_counter()
            publisher.append(bytes(given.size), topic=f"{given.topic}-{number}")
            publisher.wait_merged(timeout=OPEN_S)
            found.append(1000 * (time.perf_counter() - begun))
        clock.found(ms=found)
        leave()


def occupy(given: argparse.Namespace) -> None:
    """Measure how fast the disk takes writes of 1 MiB with O_DIRECT, then write at a share of that
    rate, from one line of input to the next.
    """
    page, flags = mmap.mmap(-1, PIECE), os.O_CREAT | os.O_RDWR | os.O_DIRECT
    file = os.open(os.path.join(given.dir, "occupied"), flags, 0o600)
    begun = time.monotonic()
    for number in range(FILE_PIECES):
        os.pwrite(file, page, number * PIECE)
    os.fsync(file)
    rate = FILE_PIECES / (time.monotonic() - begun)
    stand_by()
    clock, begun, number, pause = Clock(), time.monotonic(), 0, 0.0
    while not select.select([sys.stdin], [], [], pause)[0]:
        os.pwrite(file, page, number % FILE_PIECES * PIECE)
        number += 1
        pause = max(0.0, begun + number / (rate * given.share) - time.monotonic())
    written = number / (time.monotonic() - begun)
    clock.found(mb_per_s=rate * PIECE / 1e6, written_mb_per_s=written * PIECE / 1e6)


def leave() -> None:
    """End at once."""
    sys.stdout.flush()
    os._exit(0)


ROLES: dict[str, Callable[[argparse.Namespace], None]] = {
    each.__name__: each for each in (publish, subscribe, first, occupy)
}


def main() -> None:
    """One role."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--config", default="")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--topic", default="many", help="sessions are named for it, too")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first session")
    parser.add_argument("--rate", type=float, default=0, help="records a second in each session")
    parser.add_argument("--records", type=int, default=0, help="in all; 0: stay quiet")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--share", type=float, default=0.4, help="of the rate that was measured")
    parser.add_argument("--open-s", type=float, default=OPEN_S)
    given = parser.parse_args()
    ROLES[given.role](given)
    leave()


if __name__ == "__main__":
    main()
