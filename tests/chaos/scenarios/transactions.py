"""Transactions of Kafka clients: atomic, once, in order, whoever is killed.

Invariant: every node and client that is killed is started again; what is checked was read when
nothing was under way any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from samelog.cli.local_cluster import Process
from tests.chaos import programs
from tests.chaos.field import Field, LoadProcess, NotInTime
from tests.chaos.nodes import wait
from tests.chaos.registry import scenario
from tests.chaos.scenarios.kafka import need_client
from tests.chaos.scenarios.processes import kill_and_restart
from tests.chaos.transactions import (
    COPIED,
    MOVES,
    PARTITIONS,
    problems,
    producer_of,
    read_committed,
)

BACKGROUND = 50.0
"""Records a second of publishers beside."""
MOVERS = 3
END_S = 120.0


class PromiseBroken(NotInTime):
    """A transaction was torn, lost, doubled, or out of order."""


class Client:
    """A transactional client, over all its lives."""

    def __init__(self, field: Field, role: str, name: str) -> None:
        self.name = name
        self._field, self._role = field, role
        self._life = 0
        self._process: Process | None = None

    @property
    def notes(self) -> Path:
        """Of all its lives."""
        return self._field.directory / f"told-{self.name}"

    def keep_running(self) -> None:
        """Begin another life, unless it lives."""
        if self._process is None or self._process.poll() is not None:
            self._life += 1
            arguments = (self._role, self._field.client_file, self.name, self._life, self.notes)
            command = ["tests.chaos.transactions", *map(str, arguments)]
            with (self._field.directory / f"{self.name}.log").open("ab") as log:
                self._process = programs.start(command, log)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Let it end what it has begun."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(END_S)

    def told(self) -> list[str]:
        """What it was told of its transactions."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []


def few_publishers(field: Field) -> None:
    """Publishers write little, beside."""
    field.publishers = [
        LoadProcess(field, "publisher", load.name, BACKGROUND) for load in field.publishers
    ]


@scenario("kafka-transactions", prepare=few_publishers, needs=(need_client,), seconds=30.0)
def kafka_transactions(field: Field) -> None:
    """Transactional Kafka clients, one of which copies exactly once; SIGKILL of the leader, which
    coordinates, of any nodes, and of the clients, again and again.
    """
    boot = field.client.kafka_bootstrap
    _make_topics(boot)
    movers = [Client(field, "mover", f"mover-{number}") for number in range(MOVERS)]
    copier = Client(field, "copier", "copier")
    clients = [*movers, copier]
    try:
        _disturb(field, clients)
        field.wait_live()
        for client in movers:
            client.end()
            producer_of(boot, client.name)  # what a killed one left open is aborted
        _check(boot, movers, copier)
        _delete_topics(field, boot)
    finally:
        for client in clients:
            client.kill()


def _make_topics(boot: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": boot})
    wanted = [NewTopic(name, PARTITIONS) for name in (MOVES, COPIED)]
    for made in admin.create_topics(wanted, operation_timeout=30).values():
        made.result(60)


def _delete_topics(field: Field, boot: str) -> None:
    """Nobody else knows what is in them. Raises NotInTime."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": boot})
    for gone in admin.delete_topics([MOVES, COPIED]).values():
        gone.result(60)
    places = [Path(node.data) / "merged" for node in field.nodes]

    def are_gone() -> bool:
        names = [path.name for place in places for path in place.iterdir()]
        return not any(name.startswith((MOVES, COPIED)) for name in names)

    if not _in_time(are_gone):
        raise NotInTime("the files of deleted topics are still there")


def _disturb(field: Field, clients: list[Client]) -> None:
    end = time.monotonic() + field.seconds
    while time.monotonic() < end:
        for client in clients:
            client.keep_running()
        wait(field.random.uniform(0.5, 3))
        victims = field.random.sample(clients, field.random.randint(0, 2))
        for client in victims:
            client.kill()
        if field.random.random() < 0.5:
            kill_and_restart(field, [field.leader()])
        elif field.random.random() < 0.5:
            kill_and_restart(field, field.random.sample(field.nodes, field.random.randint(1, 3)))


def _check(boot: str, movers: list[Client], copier: Client) -> None:
    """Raises PromiseBroken, NotInTime."""
    moves = read_committed(boot, MOVES)
    notes = [line for mover in movers for line in mover.told()]
    wrong = problems(moves, notes)
    if not any("committed" in line for line in notes):
        wrong.append("no transaction was committed")

    def is_copied() -> bool:
        copier.keep_running()
        return read_committed(boot, COPIED) == moves

    if not _in_time(is_copied):
        copied = read_committed(boot, COPIED)
        sizes = [list(map(len, each)) for each in (copied, moves)]
        wrong.append(f"what is copied differs from what was committed: {sizes}")
    copier.end()
    if not wrong and read_committed(boot, COPIED) != moves:
        wrong.append("something was copied twice")
    if wrong:
        raise PromiseBroken("; ".join(wrong))


def _in_time(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        wait(1.0)
    return True
