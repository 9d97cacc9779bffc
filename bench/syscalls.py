"""The system calls that the leader of three nodes makes for each round, and the bytes that it reads
for each byte of record: records published and produced one at a time, at a slow pace, and in bulk
through the Kafka listener.

`strace` counts calls and bytes, so figures hardly depend on how busy the machine is; a call that
strace slows down changes no count at this pace. Calls of an idle leader are counted first, and
taken off those of a round in `net`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from bench.kafka.systems import QUIET, create, plaintext
from bench.kafka_requests import TOPIC, leader_of
from bench.many.metrics import COMMIT, scrape
from samelog import Publisher, Subscriber
from samelog.cli.local_cluster import LocalCluster, LocalNode

CALL = re.compile(r"^(\d+) +(?:<\.\.\. )?(\w+)(?:\((?:(\d+)<(.*?)>[,)])?|( resumed>))")
RESULT = re.compile(r" = (\d+)(?:<.*>)?$")
UNFINISHED = "<unfinished ...>"
READS = frozenset({"read", "pread64", "preadv", "readv", "recvfrom", "recvmsg"})
SHOWN = 14
IDLE_S, SETTLE_S, ATTACH_S = 5.0, 3.0, 1.0
FLUSH_S = 120.0


class Traced(NamedTuple):
    """What strace saw. `calls`: by name; `read`: bytes, of each file or socket."""

    calls: Counter[str]
    read: Counter[str]

    @property
    def from_files(self) -> int:
        """Bytes read from files, not from sockets and pipes."""
        return sum(count for name, count in self.read.items() if name.startswith("/"))


class Call(NamedTuple):
    """A system call that has begun in a thread."""

    name: str
    target: str


def parse(text: str) -> Traced:
    """Count what `strace -f -y` has written; a call that another thread interrupts counts once."""
    calls, read, begun = Counter[str](), Counter[str](), dict[str, Call]()
    for line in text.splitlines():
        match = CALL.match(line)
        if match is None:
            continue
        thread, name, _, target, resumed = match.groups()
        if resumed:
            call = begun.pop(thread, None)
        else:
            calls[name] += 1
            call = Call(name, target or "")
            if line.endswith(UNFINISHED):
                begun[thread] = call
                continue
        result = RESULT.search(line)
        if call is not None and call.name in READS and result is not None:
            read[call.target] += int(result[1])
    return Traced(calls, read)


@contextmanager
def traced(pid: int, found: list[Traced]) -> Iterator[None]:
    """Append what a process does in the block to `found`."""
    with tempfile.NamedTemporaryFile() as file:
        command = ["strace", "-f", "-y", "-qq", "-s", "0", "-o", file.name, "-p", str(pid)]
        strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(ATTACH_S)
        if strace.poll() is not None:
            raise RuntimeError("strace cannot attach to a node; is it installed and allowed to?")
        Path(file.name).write_bytes(b"")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)
            strace.wait()
        found.append(parse(Path(file.name).read_text(encoding="utf-8", errors="replace")))


class Figures:
    """Measures loads at the leader."""

    def __init__(self, leader: LocalNode, pid: int) -> None:
        self._leader, self._pid = leader, pid
        self._idle = Counter[str]()

    def idle(self) -> dict[str, object]:
        """Calls of a second without load."""
        with traced(self._pid, found := list[Traced]()):
            time.sleep(IDLE_S)
        self._idle = found[0].calls
        return {"what": "idle", "calls_per_s": round(self._idle.total() / IDLE_S, 1)}

    def rounds(self, what: str, load: Callable[[], None]) -> dict[str, object]:
        """Calls of a round of Raft under a load."""
        with traced(self._pid, found := list[Traced]()):
            before, began = self._committed(), time.monotonic()
            load()
            seconds, number = time.monotonic() - began, self._committed() - before
        calls = found[0].calls
        net = {
            name: round((count - self._idle[name] * seconds / IDLE_S) / number, 2)
            for name, count in calls.most_common(SHOWN)
        }
        return {
            "what": what,
            "rounds": number,
            "calls_per_round": round(calls.total() / number, 1),
            "net": round((calls.total() - self._idle.total() * seconds / IDLE_S) / number, 1),
            "calls": net,
        }

    def bytes_read(self, what: str, size: int, load: Callable[[], None]) -> dict[str, object]:
        """Bytes read for each of `size` bytes that a load writes."""
        with traced(self._pid, found := list[Traced]()):
            load()
        files = Counter[str]()
        for name, count in found[0].read.items():
            if name.startswith("/"):
                files[re.sub(r"[0-9a-f]{8,}|\d+", "N", "/".join(name.split("/")[-3:]))] += count
        return {
            "what": what,
            "bytes_read": round(found[0].read.total() / size, 2),
            "from_files": round(found[0].from_files / size, 2),
            "calls_per_mb": round(found[0].calls.total() / (size / 1e6)),
            "files": {name: round(count / size, 3) for name, count in files.most_common(SHOWN)},
        }

    def _committed(self) -> int:
        return int(scrape(str(self._leader.http))[f"{COMMIT}_count"])


def paced(count: int, rate: int, one: Callable[[], None]) -> None:
    """Call `one` so many times, at a rate."""
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        one()


def main() -> None:
    """Print each figure as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--rate", type=int, default=80)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=64)
    given = parser.parse_args()
    value = bytes(given.size)
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(os.path.join(directory, "c")) as cluster,
    ):
        cluster.start()
        create(plaintext(cluster), TOPIC)
        leader = leader_of(cluster)
        if leader.pid is None:
            raise RuntimeError("the leader has ended")
        figures = Figures(leader, leader.pid)
        config = cluster.client_file
        producer = Producer({**plaintext(cluster), **QUIET, "linger.ms": 0})

        def produce() -> None:
            producer.produce(TOPIC, value)
            producer.flush(FLUSH_S)

        def produce_all() -> None:
            for _ in range(given.megabytes * 1_000_000 // given.size):
                bulk.produce(TOPIC, value)
                bulk.poll(0)
            bulk.flush(FLUSH_S)
            time.sleep(SETTLE_S)

        with (
            Publisher(TOPIC, session="p", directory=f"{directory}/p", config=config) as publisher,
            Subscriber(TOPIC, directory=f"{directory}/s", config=config) as subscriber,
        ):

            def publish() -> None:
                publisher.append(value)
                subscriber.batch(timeout=FLUSH_S)

            publish()
            produce()
            time.sleep(SETTLE_S)
            print(json.dumps(figures.idle()), flush=True)
            for what, one in (("published", publish), ("produced", produce)):
                row = figures.rounds(what, partial(paced, given.rounds, given.rate, one))
                print(json.dumps(row), flush=True)
        queue = {"queue.buffering.max.messages": 1_000_000}
        bulk = Producer({**plaintext(cluster), **QUIET, **queue})
        size = given.megabytes * 1_000_000
        print(json.dumps(figures.bytes_read("produced in bulk", size, produce_all)), flush=True)


if __name__ == "__main__":
    main()
