"""The load: publisher, producer and subscriber processes that note what they are told.

Run as `python -m tests.chaos.load ROLE …`. SIGTERM ends a publisher, producer or
program: it stops appending and exits with 0 once everything is merged, with 3 if that takes too
long. It ends a subscriber at once.

Invariant: a publisher appends at its rate whatever the cluster does; it waits for nobody.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Protocol

from samelog import Publisher, Subscriber
from samelog.config.load import load_client
from samelog.format.positions import SessionPosition
from samelog.publisher.errors import NotMerged
from samelog.publisher.records import TopicPartition
from samelog.runtime.stop import Stop
from tests.chaos.notes import Kind, NoteBook
from tests.chaos.record import PADDING_BYTES_MAX, Author, Writer

TOPIC = "chaos"
SLICE_S = 0.01
SINGLE_SHARE = 0.2
"""How many slices append record by record."""
ROLL_BYTES = 512 << 10
NOT_MERGED_CODE = 3


class Appender(Protocol):
    """One life of whoever writes."""

    def append(self, count: int) -> None:
        """Append so many records."""

    def look(self) -> None:
        """Note what was acknowledged since the last time."""

    def end(self, timeout_s: float) -> int:
        """Wait until nothing is left to be acknowledged: the exit code."""


class Values:
    """The values of one life's records."""

    def __init__(self, author: Author) -> None:
        self._writer = Writer(author)
        self.random = random.Random(f"{author.session} {author.life}")

    @property
    def count(self) -> int:
        """How many there were."""
        return self._writer.count

    def take(self, count: int) -> list[bytes]:
        """The next ones, of various lengths."""
        padding = self.random.randbytes(PADDING_BYTES_MAX // 2).hex().encode()
        lengths = [self.random.randrange(PADDING_BYTES_MAX) for _ in range(count)]
        return [self._writer.take(padding[:length]) for length in lengths]


class Load:
    """One life of a publisher."""

    def __init__(self, publisher: Publisher, author: Author, notes: NoteBook) -> None:
        self._publisher = publisher
        self._values = Values(author)
        self._notes = notes
        self._name = TopicPartition(TOPIC, 0)
        self._unacknowledged: deque[tuple[SessionPosition, int]] = deque()
        self._unmerged: deque[tuple[SessionPosition, int]] = deque()

    def append(self, count: int) -> None:
        """Append so many records, now and then one by one."""
        values = self._values.take(count)
        if self._values.random.random() < SINGLE_SHARE:
            for value in values:
                self._publisher.append(value)
        else:
            self._publisher.append_many(values)
        place = self._publisher.positions.appended[self._name]
        self._unacknowledged.append((place, self._values.count))
        self._unmerged.append((place, self._values.count))
        self._notes.write(Kind.APPENDED, self._values.count)

    def look(self) -> None:
        """Note what was acknowledged and merged since the last time."""
        known = self._publisher.positions
        self._note(self._unacknowledged, known.acknowledged.get(self._name), Kind.ACKNOWLEDGED)
        self._note(self._unmerged, known.merged.get(self._name), Kind.MERGED)

    def _note(
        self,
        waiting: deque[tuple[SessionPosition, int]],
        reached: SessionPosition | None,
        kind: Kind,
    ) -> None:
        count = 0
        while reached is not None and waiting and waiting[0][0] <= reached:
            count = waiting.popleft()[1]
        if count:
            self._notes.write(kind, count)

    def end(self, timeout_s: float) -> int:
        """Wait until everything is merged: the exit code."""
        try:
            self._publisher.wait_merged(timeout=timeout_s)
        except NotMerged as error:
            sys.stderr.write(f"{error}\n")
            return NOT_MERGED_CODE
        self._notes.write(Kind.ACKNOWLEDGED, self._values.count)
        self._notes.write(Kind.MERGED, self._values.count)
        self._notes.write(Kind.ENDED, self._values.count)
        return 0


def publish(options: argparse.Namespace, stop: Stop) -> int:
    """Append at a rate until told to stop: the exit code."""
    with Publisher(
        TOPIC,
        session=options.session,
        directory=options.dir,
        config=options.config,
        roll_bytes=ROLL_BYTES,
    ) as publisher:
        load = Load(publisher, Author(options.session, options.life), NoteBook(options.notes))
        append_until(stop, load, options.rate)
        return load.end(options.timeout)


def append_until(stop: Stop, load: Appender, rate: float) -> None:
    """Append so many records a second until told to stop."""
    begin = time.monotonic()
    appended = 0
    while not stop.wait(SLICE_S):
        due = int((time.monotonic() - begin) * rate)
        if due > appended:
            # After a pause of this process itself, no more than a second's records at once.
            load.append(min(due - appended, int(rate) + 1))
            appended = due
        load.look()


def produce(options: argparse.Namespace, stop: Stop) -> int:
    """As `publish`, with a client of Kafka's."""
    from tests.chaos.kafka_load import KafkaLoad

    bootstrap = load_client(options.config).kafka_bootstrap
    author = Author(options.session, options.life)
    load = KafkaLoad(bootstrap, Values(author), NoteBook(options.notes))
    append_until(stop, load, options.rate)
    return load.end(options.timeout)


def write_locally(options: argparse.Namespace, stop: Stop) -> int:
    """As `publish`, for a sidecar to ship."""
    from tests.chaos.local_load import LocalLoad

    with Publisher(
        TOPIC, session=options.session, directory=options.dir, roll_bytes=ROLL_BYTES
    ) as publisher:
        values = Values(Author(options.session, options.life))
        session = Path(options.dir, options.session)
        load = LocalLoad(publisher, session, values, NoteBook(options.notes))
        append_until(stop, load, options.rate)
        return load.end(options.timeout)


def subscribe(options: argparse.Namespace, stop: Stop) -> int:
    """Read until told to stop, and note how far; as a reader, what a sidecar copies."""
    notes = NoteBook(options.notes)
    received = 0
    config = None if options.role == "reader" else options.config
    with Subscriber(TOPIC, directory=options.dir, config=config, start="earliest") as subscriber:
        while not stop.is_set:
            records = subscriber.batch(max_records=10_000, timeout=0.1)
            if records:
                received += len(records)
                notes.write(Kind.RECEIVED, received)
    return 0


ROLES = {
    "publisher": publish,
    "producer": produce,
    "program": write_locally,
    "subscriber": subscribe,
    "reader": subscribe,
}


def main() -> int:
    """One process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=tuple(ROLES))
    parser.add_argument("--config", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--notes", required=True)
    parser.add_argument("--session", default="")
    parser.add_argument("--life", type=int, default=0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--timeout", type=float, default=60.0)
    options = parser.parse_args()
    stop = Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return ROLES[options.role](options, stop)


if __name__ == "__main__":
    sys.exit(main())
