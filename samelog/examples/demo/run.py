"""Runs the demo: starts the processes, kills the leader, silences the next one, waits, runs the
pipeline, stops them, and gathers the report.

Invariant: every process started here is ended here, whatever happens.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from samelog.examples.demo import picture, proof
from samelog.examples.demo.picture import Course, Failure, Moment
from samelog.examples.demo.processes import Child, Cluster, DemoFailed, DemoNode
from samelog.examples.demo.proof import Pipeline, publish_weather
from samelog.examples.flights.data import AIRPORTS, TOPIC, TOTAL, check_installed
from samelog.examples.flights.picture import check_installed as check_drawing

KILL_AT, SILENCE_AT = 0.3, 0.6
LATE_AT = 0.7
DEADLINE_S = 300.0
POLL_S = 0.02
EARLY, LATE = "early", "late"
PICTURE = "cluster.png"
FAILED = {signal.SIGKILL: "leader killed", signal.SIGSTOP: "leader silent"}
StatusAnswer = dict[str, Any]
"""What a node answers to GET /status."""


@dataclass(slots=True)
class Failover:
    """The leader that failed, how, when, in which term; and how long nobody led.

    SIGKILL closes its connections, so the others know at once. SIGSTOP closes nothing and answers
    nothing, as when a host hangs or its network is cut: the others must wait for the timeout.
    """

    leader: DemoNode
    fault: signal.Signals
    term: int
    at: float
    seconds: float | None = None

    def end(self) -> None:
        """Let a leader that was stopped go on."""
        if self.fault is signal.SIGSTOP:
            self.leader.signal(signal.SIGCONT)


class Demo:
    """One run of the demo in one directory."""

    def __init__(
        self,
        directory: str,
        *,
        publish_seconds: float,
        lake_picture: str | None = None,
        say: Callable[[str], None] = lambda text: None,
        on_appended: Callable[[int], None] = lambda flights: None,
    ) -> None:
        """`lake_picture`: where the pipeline draws to; None: there is no pipeline. `say` is called
        with what happens; `on_appended` with how many flights more were appended.
        """
        self._lake_picture = lake_picture
        self._directory = os.path.abspath(directory)
        self._publish_seconds = publish_seconds
        self._say = say
        self._on_appended = on_appended
        self._cluster = Cluster(self._directory, self._path("cluster.log"))
        self._publishers: list[Child] = []
        self._subscribers: list[Child] = []
        self._started = time.monotonic()
        self._failovers: list[Failover] = []
        self._samples: list[Moment] = []

    def run(self) -> dict[str, Any]:
        """The whole demo; its report. Raises DemoFailed, DataMissing, PipelineError."""
        check_installed()
        check_drawing()
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        try:
            self._say("starting three nodes")
            self._cluster.start()
            self._say("publishing from EWR, JFK and LGA")
            self._start_children()
            self._supervise()
            statuses = self._wait_equal()
            pipeline = self._run_pipeline()
        finally:
            for child in (*self._publishers, *self._subscribers):
                child.end()
            for failover in self._failovers:
                failover.end()
            self._cluster.stop()
        self._say("checking the files")
        return {**self._report(statuses), "pipeline": pipeline}

    def _run_pipeline(self) -> dict[str, Any] | None:
        """What it reports, or why it could not be run."""
        if self._lake_picture is None:
            return None
        self._say("running the pipeline flights: Spark starts, counts and draws")
        publish_weather(self._cluster.client_file, self._path("publishers"))
        pipeline = Pipeline(self._cluster.client_file, self._path("lake"), self._lake_picture)
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
        """Kill the leader, add the late subscriber, until all are done."""
        deadline = time.monotonic() + DEADLINE_S
        shown = 0
        while not self._all_done():
            if time.monotonic() > deadline:
                raise DemoFailed(f"not done after {DEADLINE_S:.0f} s: {self._reports()}")
            appended = sum(child.newest().get("appended", 0) for child in self._publishers)
            self._on_appended(appended - shown)
            shown = appended
            self._note(appended)
            self._act(appended / TOTAL)
            time.sleep(POLL_S)
        self._note(shown)

    def _note(self, appended: int) -> None:
        """For the picture."""
        early, *late = [child.newest().get("received", 0) for child in self._subscribers]
        self._samples.append(Moment(time.monotonic(), appended, early, *late or [None]))

    def _all_done(self) -> bool:
        publishers = all(child.done for child in self._publishers)
        led_again = [each.seconds is not None for each in self._failovers]
        ready = len(self._subscribers) == 2 and led_again == [True, True]
        return publishers and ready and all(child.done for child in self._subscribers)

    def _act(self, share: float) -> None:
        if self._failovers and self._failovers[-1].seconds is None:
            self._look_for_new_leader(self._failovers[-1])
        elif share >= KILL_AT and not self._failovers:
            self._fail_leader(signal.SIGKILL)
        elif share >= SILENCE_AT and len(self._failovers) == 1 and self._all_ready():
            self._fail_leader(signal.SIGSTOP)
        if share >= LATE_AT and len(self._subscribers) == 1:
            self._subscribe(LATE)

    def _all_ready(self) -> bool:
        return all(node.is_ready() for node in self._cluster.nodes)

    def _fail_leader(self, fault: signal.Signals) -> None:
        """Unless nobody knows a leader just now."""
        status = self._any_status(self._cluster.nodes)
        if status is None or status["leader"] is None:
            return
        leader = next(node for node in self._cluster.nodes if node.name == status["leader"])
        leader.signal(fault)
        self._failovers.append(Failover(leader, fault, status["term"], time.monotonic()))
        self._say(f"{fault.name} to the leader, {leader.name}")

    def _look_for_new_leader(self, failover: Failover) -> None:
        others = tuple(node for node in self._cluster.nodes if node is not failover.leader)
        status = self._any_status(others)
        if status is not None and status["leader"] is not None and status["term"] > failover.term:
            failover.seconds = time.monotonic() - failover.at
            failover.end()
            self._say(f"{status['leader']} leads after {failover.seconds:.2f} s")

    def _any_status(self, nodes: tuple[DemoNode, ...]) -> StatusAnswer | None:
        answers = (node.status() for node in nodes)
        return next((status for status in answers if status is not None), None)

    def _wait_equal(self) -> list[StatusAnswer]:
        """Wait until every node has merged everything; their last words."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            statuses = [node.status() for node in self._cluster.nodes]
            known = [status for status in statuses if status is not None]
            if len(known) == len(self._cluster.nodes) and all(map(_has_everything, known)):
                return known
            time.sleep(POLL_S)
        raise DemoFailed("the nodes did not all merge everything in time")

    def _reports(self) -> str:
        children = (*self._publishers, *self._subscribers)
        return "; ".join(f"{child.title}: {child.last}" for child in children)

    # --- reporting --------------------------------------------------------------------------------

    def _report(self, statuses: list[StatusAnswer]) -> dict[str, Any]:
        copies = [self._copy_of_node(node, statuses) for node in self._cluster.nodes]
        copies += [self._copy_of_subscriber(name) for name in (EARLY, LATE)]
        table = proof.read_table(self._cluster.nodes[0].merged)
        proven = proof.prove(table)
        picture.draw(self._course(table), self._path(PICTURE))
        published = sum(child.last["appended"] for child in self._publishers)
        return {
            "published": published,
            "merged": proven.records,
            "unique": proven.unique,
            "complete": proven.complete and published == TOTAL,
            "identical": len({copy["sha256"] for copy in copies}) == 1,
            "order_kept": proven.order_kept,
            "failovers": [
                {"leader": each.leader.name, "signal": each.fault.name, "seconds": each.seconds}
                for each in self._failovers
            ],
            "publish_seconds": self._publish_seconds,
            "publishers": [self._publisher_row(child, table) for child in self._publishers],
            "copies": copies,
            "delays": proof.delays_by_carrier(table),
            "picture": self._path(PICTURE),
            "seconds": time.monotonic() - self._started,
        }

    def _course(self, table: Any) -> Course:
        failures = [
            Failure(each.at, each.seconds or 0.0, f"{FAILED[each.fault]}, {each.seconds:.2f} s")
            for each in self._failovers
        ]
        return Course(self._samples, failures, proof.origins(table))

    def _copy_of_node(self, node: DemoNode, statuses: list[StatusAnswer]) -> dict[str, Any]:
        status = next(status for status in statuses if status["node"] == node.name)
        role = "leader" if status["leader"] == node.name else "follower"
        end = next(row["end_offset"] for row in status["partitions"] if row["topic"] == TOPIC)
        return _copy(node.name, role, proof.partition_directory(node.merged), end)

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


def _has_everything(status: StatusAnswer) -> bool:
    return any(row["topic"] == TOPIC and row["end_offset"] == TOTAL for row in status["partitions"])
