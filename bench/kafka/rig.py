"""All systems at once on this machine, for one round: each with three nodes or brokers, warmed up.

What cannot be had is left out, and said. Invariant: what was started is stopped, and its files are
gone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.kafka import nats
from bench.kafka.brokers import Brokers
from bench.kafka.nodes import Nodes
from bench.kafka.pairs import run_bulk
from bench.kafka.systems import (
    DEFAULT,
    EACH_FLUSHED,
    FLUSH,
    NATS,
    OWN,
    SINGLE,
    Bulk,
    KafkaSystem,
    System,
)
from bench.many.measure import World
from bench.many.rows import MANY_SESSIONS
from bench.maven import Unavailable
from bench.meter import WAITED

WARM_UP = (Bulk(1000, 40_000), Bulk(100, 150_000))


class Rig:
    """The systems of the present round; a context manager that stops them."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._stack = ExitStack()
        self._round: int | None = None
        self.skipped: dict[str, str] = {}
        self.directory = ""

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()
        self._round = None

    def of_round(self, number: int) -> None:
        """Start what this round needs, again for each round."""
        if self._round == number:
            return
        self.close()
        self.skipped = {}
        self.directory = tempfile.mkdtemp(prefix="round-", dir=self._work)
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._start_samelog()
        self._start_kafka()
        self._start_nats()
        for system in (self.systems[OWN], *self.kafka_systems):
            for job in WARM_UP:
                run_bulk(system, job)
        self._round = number

    def _start_samelog(self) -> None:
        self.nodes = self._stack.enter_context(Nodes(self.directory, MANY_SESSIONS))
        self.samelog = self.nodes.cluster
        self.kafka_systems = [self.nodes.listener()]
        self.plaintext_systems = [self.nodes.listener(tls=False)]
        self.systems: dict[str, System] = {
            OWN: self.nodes.own(),
            SINGLE: self.nodes.own(single=True),
        }

    def _start_kafka(self) -> None:
        self.brokers: Brokers | None = None
        try:
            brokers = self._stack.enter_context(Brokers(f"{self.directory}/kafka"))
            brokers.start()
        except Unavailable as error:
            self.skipped |= {FLUSH: str(error), DEFAULT: str(error)}
        else:
            self.brokers = brokers
            for name, config in ((FLUSH, EACH_FLUSHED), (DEFAULT, {})):
                for tls, made in ((True, self.kafka_systems), (False, self.plaintext_systems)):
                    told = brokers.told(tls=tls)
                    place = brokers.directory
                    made.append(KafkaSystem(name, told, brokers.pids, place, config))
        self.systems |= {each.name: each for each in self.kafka_systems}

    def world(self) -> World:
        """Our nodes, for measures of many sessions."""
        return World(self.nodes)

    @contextmanager
    def watched(self) -> Iterator[dict[str, dict[str, float]]]:
        """Measure how long the nodes' threads of each system wait for a processor: in the windows
        of a measure that has some, otherwise all the time. The value is complete at the end of the
        block.
        """
        self.nodes.even()
        found = dict[str, dict[str, float]]()
        meters = {each.name: each.meter for each in (*self.systems.values(), *self.kafka_systems)}
        with ExitStack() as stack:
            whole = {name: stack.enter_context(meter.waiting()) for name, meter in meters.items()}
            yield found
        for name, meter in meters.items():
            taken = meter.taken()
            found[name] = {WAITED: (taken if taken.seconds else whole[name]).waited}

    def apache(self) -> Brokers:
        """Apache Kafka. Raises Unavailable."""
        if self.brokers is None:
            raise Unavailable(self.skipped[FLUSH])
        return self.brokers

    def _start_nats(self) -> None:
        try:
            servers = self._stack.enter_context(nats.Servers(f"{self.directory}/nats"))
            servers.start()
        except Unavailable as error:
            self.skipped[NATS] = str(error)
        else:
            self.systems[NATS] = nats.NatsSystem(servers)
