"""Runs the demo: starts the processes, kills the leader in the middle, waits, runs the pipeline,
stops them, and gathers the report.

Invariant: every process started here is ended here, whatever happens.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from typing import Any

from samelog.cli.local_cluster import ClusterOptions, LocalCluster, LocalNode
from samelog.cli.output import progress, talk
from samelog.examples.demo import proof
from samelog.examples.demo.pipeline import Pipeline, publish_weather
from samelog.examples.flights.data import AIRPORTS, TOPIC, TOTAL
from samelog.replicator.admin_client import AdminError, node_status
from samelog.wire.admin import Status

KILL_AT = 0.4
RESTART_AT = 0.6
LATE_AT = 0.7
DEADLINE_S = 80.0
POLL_S = 0.02
EARLY, LATE = "early", "late"


class DemoFailed(Exception):
    """The demo could not be brought to its end; the message says which part did not do what."""


class Child:
    """A child process that reports JSON lines on stdout."""

    def __init__(self, title: str, module: str, log_file: str, **options: object) -> None:
        self.title = title
        self.last: dict[str, Any] = {}
        self._log_file = log_file
        arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
        with open(log_file, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._reports.put(json.loads(line))

    def look(self) -> dict[str, Any]:
        """The newest report. Raises DemoFailed when the process ended without being done."""
        ended = self._process.poll()
        while not self._reports.empty():
            self.last = self._reports.get()
        if ended not in (None, 0):
            raise DemoFailed(f"{self.title} ended with exit code {ended}, see {self._log_file}")
        return self.last

    @property
    def done(self) -> bool:
        """Whether it has finished its work."""
        return bool(self.look().get("done"))

    def end(self) -> None:
        """Stop the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Demo:
    """One run of the demo in one directory."""

    def __init__(
        self, directory: str, *, publish_seconds: float, picture: str | None = None
    ) -> None:
        """`picture`: where the pipeline draws to; None: there is no pipeline."""
        self._picture = picture
        self._directory = os.path.abspath(directory)
        self._publish_seconds = publish_seconds
        self._cluster = LocalCluster(self._directory, ClusterOptions(cluster="demo"))
        self._publishers: list[Child] = []
        self._subscribers: list[Child] = []
        self._started = time.monotonic()
        self._killed: LocalNode | None = None
        self._restarted = False
        self._killed_at = 0.0
        self._failover_s: float | None = None
        self._publishing_from = 0.0
        self._publishing_s = 0.0

    def run(self) -> dict[str, Any]:
        """The whole demo; its report. Raises DemoFailed or ClusterError."""
        try:
            talk("starting three nodes")
            self._cluster.start()
            talk("publishing from EWR, JFK and LGA")
            self._start_children()
            self._supervise()
            statuses = self._wait_equal()
            pipeline = self._run_pipeline()
        finally:
            for child in (*self._publishers, *self._subscribers):
                child.end()
            self._cluster.stop()
        talk("checking the files")
        return {**self._report(statuses), "pipeline": pipeline}

    def _run_pipeline(self) -> dict[str, Any] | None:
        """What it reports, or why it could not be run."""
        if self._picture is None:
            return None
        talk("running the pipeline flights: Spark starts, counts and draws")
        publish_weather(self._cluster.client_file, self._path("publishers"))
        pipeline = Pipeline(self._cluster.client_file, self._path("lake"), self._picture)
        return pipeline.run(self._path("pipeline.log"))

    # --- running ----------------------------------------------------------------------------------

    def _start_children(self) -> None:
        self._subscribe(EARLY)
        for airport in AIRPORTS:
            child = Child(
                f"publisher {airport}",
                "samelog.examples.demo.publisher",
                self._path(f"publisher-{airport.lower()}.log"),
                airport=airport,
                config=self._cluster.client_file,
                dir=self._path("publishers"),
                seconds=self._publish_seconds,
            )
            self._publishers.append(child)

    def _subscribe(self, name: str) -> None:
        child = Child(
            f"subscriber {name}",
            "samelog.examples.demo.subscriber",
            self._path(f"subscriber-{name}.log"),
            name=name,
            config=self._cluster.client_file,
            dir=self._path("subscribers", name),
            expect=TOTAL,
        )
        self._subscribers.append(child)

    def _supervise(self) -> None:
        """Kill and restart the leader, add the late subscriber, until all are done."""
        deadline = time.monotonic() + DEADLINE_S
        shown = 0
        with progress("flights appended", TOTAL) as advance:
            while not self._all_done():
                if time.monotonic() > deadline:
                    raise DemoFailed(f"not done after {DEADLINE_S:.0f} s: {self._where()}")
                appended = sum(child.look().get("appended", 0) for child in self._publishers)
                advance(appended - shown)
                shown = appended
                self._act(appended / TOTAL)
                time.sleep(POLL_S)

    def _all_done(self) -> bool:
        publishers = all(child.done for child in self._publishers)
        if publishers and not self._publishing_s:
            self._publishing_s = time.monotonic() - self._publishing_from
        ready = len(self._subscribers) == 2 and self._failover_s is not None
        return publishers and ready and all(child.done for child in self._subscribers)

    def _act(self, share: float) -> None:
        if share > 0 and not self._publishing_from:
            self._publishing_from = time.monotonic()
        if share >= KILL_AT and self._killed is None:
            self._kill_leader()
        if self._killed is not None and self._failover_s is None:
            self._look_for_new_leader()
        if self._killed is not None and share >= RESTART_AT and not self._restarted:
            self._restarted = True
            self._killed.start()
        if share >= LATE_AT and len(self._subscribers) == 1:
            self._subscribe(LATE)

    def _kill_leader(self) -> None:
        status = self._any_status()
        if status is None or status.leader is None:
            return
        self._killed = next(node for node in self._cluster.nodes if node.name == status.leader)
        self._killed.kill()
        self._killed_at = time.monotonic()
        talk(f"killed the leader, {self._killed.name}")

    def _look_for_new_leader(self) -> None:
        status = self._any_status()
        if status is None or self._killed is None:
            return
        if status.leader not in (None, self._killed.name):
            self._failover_s = time.monotonic() - self._killed_at
            talk(f"{status.leader} leads after {self._failover_s:.2f} s")

    def _any_status(self) -> Status | None:
        for node in self._cluster.nodes:
            if node is not self._killed:
                status = self._status(node)
                if status is not None:
                    return status
        return None

    def _status(self, node: LocalNode) -> Status | None:
        try:
            return node_status(self._cluster.client_config(), node.address)
        except AdminError:
            return None

    def _wait_equal(self) -> list[Status]:
        """Wait until every node has merged everything; their last words."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            statuses = [self._status(node) for node in self._cluster.nodes]
            known = [status for status in statuses if status is not None]
            if len(known) == len(self._cluster.nodes) and all(map(_has_everything, known)):
                return known
            time.sleep(POLL_S)
        raise DemoFailed("the nodes did not all merge everything in time")

    def _where(self) -> str:
        children = (*self._publishers, *self._subscribers)
        return "; ".join(f"{child.title}: {child.last}" for child in children)

    # --- reporting --------------------------------------------------------------------------------

    def _report(self, statuses: list[Status]) -> dict[str, Any]:
        copies = [self._copy_of_node(node, statuses) for node in self._cluster.nodes]
        copies += [self._copy_of_subscriber(name) for name in (EARLY, LATE)]
        table = proof.read_table(copies[0]["directory"])
        proven = proof.prove(table)
        published = sum(child.last["appended"] for child in self._publishers)
        return {
            "published": published,
            "merged": proven.records,
            "unique": proven.unique,
            "complete": proven.complete and published == TOTAL,
            "identical": len({copy["sha256"] for copy in copies}) == 1,
            "order_kept": proven.order_kept,
            "leader_killed": self._killed is not None,
            "killed": None if self._killed is None else self._killed.name,
            "failover_seconds": self._failover_s,
            "records_per_second": published / self._publishing_s,
            "publishers": [self._publisher_row(child, table) for child in self._publishers],
            "copies": copies,
            "delays": proof.delays_by_carrier(table),
            "seconds": time.monotonic() - self._started,
        }

    def _copy_of_node(self, node: LocalNode, statuses: list[Status]) -> dict[str, Any]:
        status = next(status for status in statuses if status.node == node.name)
        directory = proof.partition_directory(os.path.join(node.data, "merged"))
        role = "leader" if status.leader == node.name else "follower"
        end = next(each.end_offset for each in status.partitions if each.topic == TOPIC)
        return _copy(node.name, role, directory, end)

    def _copy_of_subscriber(self, name: str) -> dict[str, Any]:
        directory = proof.partition_directory(self._path("subscribers", name))
        child = next(child for child in self._subscribers if child.title.endswith(name))
        return _copy(f"subscriber {name}", "", directory, child.last["received"])

    def _publisher_row(self, child: Child, table: Any) -> dict[str, Any]:
        from pyarrow import compute

        airport = child.last["airport"]
        ours = compute.match_substring(table["value"].cast("string"), f'"origin":"{airport}"')
        return {
            "session": airport.lower(),
            "appended": child.last["appended"],
            "merged": compute.sum(ours).as_py(),
        }

    def _path(self, *parts: str) -> str:
        return os.path.join(self._directory, *parts)


def _copy(name: str, role: str, directory: str, offset: int) -> dict[str, Any]:
    known = proof.facts(directory)
    return {
        "name": name,
        "role": role,
        "offset": offset,
        "bytes": known.size_bytes,
        "sha256": known.sha256,
        "directory": known.directory,
    }


def _has_everything(status: Status) -> bool:
    return any(
        partition.topic == TOPIC and partition.end_offset == TOTAL
        for partition in status.partitions
    )
