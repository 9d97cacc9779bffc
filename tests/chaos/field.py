"""Where a scenario takes place: a cluster, publishers, a subscriber, and how to see and heal them.

Invariant: leaving a field ends every process it started, and undoes every fault that `on_heal` and
`on_leave` know of, in reverse order, whatever happened.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from samelog.admin.answers import NodeState, Status
from samelog.admin.client import ask, node_status
from samelog.admin.errors import AdminError
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster, Process
from samelog.config.schema.render import to_toml
from samelog.config.tables.client import ClientConfig
from samelog.config.tables.node import NodeConfig
from tests.chaos import programs
from tests.chaos.load import TOPIC
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.notes import Kind, last_count, read_notes
from tests.chaos.record import Author
from tests.chaos.sidecars import SidecarProcess

SEGMENT_BYTES = 2 << 20
STATUS_S = 5.0
"""A node that starts beside others and the load takes seconds for a connection."""
POLL_S = 0.05
START_S = 300.0
HEAL_S = 180.0
MERGE_S = 180.0
STOP_S = 60.0
"""Nobody waits so long who need not: a busy machine is no fault. How long it took is in the row."""

READERS = ("subscriber", "reader")
"""Roles that have a directory each."""

ToolT = TypeVar("ToolT")


class NotInTime(Exception):
    """Something that had to happen did not, within its deadline."""


class LoadProcess:
    """One publisher or subscriber, over all its lives."""

    def __init__(self, field: Field, role: str, name: str, rate: float) -> None:
        self.name = name
        self.life = 0
        self.directory = field.directory / f"{role}s"
        self._field, self._role, self._rate = field, role, rate
        self._process: Process | None = None

    @property
    def notes(self) -> Path:
        """Of the present life."""
        return self._field.directory / f"notes-{self.name}-{self.life}"

    def has_notes(self) -> bool:
        """Whether the present life has done anything yet."""
        return self.notes.exists() and self.notes.stat().st_size > 0

    def is_acknowledged(self) -> bool:
        """Whether anything of the present life is."""
        return last_count(read_notes(self.notes), Kind.ACKNOWLEDGED) > 0

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin a life."""
        self.life += 1
        arguments = {
            "config": self._field.client_file,
            "dir": self.directory / self.name if self._role in READERS else self.directory,
            "notes": self.notes,
            "session": self.name,
            "life": self.life,
            "rate": self._rate,
            "timeout": MERGE_S,
        }
        options = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
        command = ["tests.chaos.load", self._role, *options]
        with (self._field.directory / f"{self.name}.log").open("ab") as log:
            self._process = programs.start(command, log)

    def kill(self) -> None:
        """End the life with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def finish(self) -> None:
        """Ask it to end cleanly."""
        if self._process is not None and self.is_running:
            self._process.terminate()

    def wait_end(self, timeout_s: float) -> int:
        """Its exit code. Raises NotInTime."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"{self.name} has not ended after {timeout_s:.0f} s") from None


class Field:
    """One cluster under load."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        seconds: float,
        publishers: int = 3,
        rate: float = 500,
        nodes: int = 3,
        copies: int = 0,
    ) -> None:
        """`copies`: of the topic; 0: on all nodes."""
        self._copies = copies
        self.directory = directory
        self.random = random.Random(seed)
        self.seconds = seconds
        self.cluster = LocalCluster(
            str(directory / "cluster"), ClusterOptions(nodes=nodes, segment_bytes=SEGMENT_BYTES)
        )
        self.nodes: list[ChaosNode] = []
        self.client_file = directory / "client.toml"
        self.client: ClientConfig
        self.publishers = [
            LoadProcess(self, "publisher", f"p{number}", rate) for number in range(publishers)
        ]
        self.subscriber = LoadProcess(self, "subscriber", "reader", 0)
        self.onlookers: list[LoadProcess] = []
        """More subscribers, whose copies are not looked at."""
        self.sidecars: list[SidecarProcess] = []
        self.past_notes: dict[Author, Path] = {}
        self.lost_disks: set[str] = set()
        """Sessions whose own files a power loss may have cut."""
        self.power_losses = 0
        """How often a scenario that counts them had nodes lose their power."""
        self.remarks: list[str] = []
        self._tools: dict[type[object], object] = {}
        self._heal = ExitStack()
        self._leave = ExitStack()

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._leave:
            self._leave.callback(self._heal.close)
            self._end_processes()

    def _end_processes(self) -> None:
        for load in self.loads:
            load.kill()
        for sidecar in self.sidecars:
            sidecar.kill()
        for node in self.nodes:
            node.kill()

    # --- setting up -------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make directories, certificates and configurations."""
        self.cluster.prepare()
        self.nodes = [
            ChaosNode(self.cluster.directory, node.name, node.address, kafka=node.kafka)
            for node in self.cluster.nodes
        ]
        self.cluster.nodes[:] = self.nodes
        self.client = self.cluster.client_config()

    def move_data(self, node: ChaosNode, disk: Path) -> None:
        """Put a node's data directory onto another disk."""

        def edit(config: NodeConfig) -> NodeConfig:
            return replace(config, data=str(disk / "data"))

        node.change(edit)

    def start(self) -> None:
        """Start everything; return when records flow to the subscriber."""
        if not self.client_file.exists():
            self.client_file.write_text(to_toml(self.client), encoding="utf-8")
        for node in self.nodes:
            node.start()
        self.wait_live(START_S)
        if self._copies:
            ask(self.client, CreateTopic(TOPIC, 1, {}, self._copies))
        for sidecar in self.sidecars:
            sidecar.start()
        for load in self.loads:
            self.begin(load)
        self.wait_for(lambda: all(load.has_notes() for load in self.loads), "records flow")
        for node in self.nodes:
            node.begin_log()

    def equip(self, tool: object) -> None:
        """Give the field an injector, for `tool`."""
        self._tools[type(tool)] = tool

    def tool(self, kind: type[ToolT]) -> ToolT:
        """The injector of this kind that the scenario's preparation has made."""
        tool = self._tools[kind]
        if not isinstance(tool, kind):
            raise TypeError(kind)
        return tool

    @property
    def loads(self) -> Sequence[LoadProcess]:
        """Subscribers and publishers."""
        return (self.subscriber, *self.onlookers, *self.publishers)

    def begin(self, load: LoadProcess) -> None:
        """Begin a life, and remember its notes."""
        load.start()
        if load in self.publishers:
            self.past_notes[Author(load.name, load.life)] = load.notes

    def on_heal(self, undo: Callable[[], object]) -> None:
        """Call this when the scenario heals, or is left."""
        self._heal.callback(undo)

    def on_leave(self, undo: Callable[[], object]) -> None:
        """Call this after all processes have ended."""
        self._leave.callback(undo)

    # --- looking ----------------------------------------------------------------------------------

    def status(self, node: ChaosNode) -> Status | None:
        """What a node says, None when it says nothing."""
        if node.pid is None:
            return None
        try:
            return node_status(self.cluster.client_config(), node.address, STATUS_S)
        except AdminError:
            return None

    def is_live(self, node: ChaosNode) -> bool:
        """Whether a node says so of itself."""
        status = self.status(node)
        return status is not None and any(
            info.name == node.name and info.state is NodeState.LIVE for info in status.nodes
        )

    def leader(self, among: Sequence[ChaosNode] | None = None) -> ChaosNode:
        """The node that nodes `among` say leads, and that is among them."""
        asked = list(self.nodes if among is None else among)
        found: list[ChaosNode] = []

        def look() -> bool:
            for node in asked:
                status = self.status(node)
                found.extend(n for n in asked if status is not None and n.name == status.leader)
                if found:
                    return True
            return False

        self.wait_for(look, "a leader")
        return found[0]

    def follower(self) -> ChaosNode:
        """A node that does not lead, by chance."""
        leader = self.leader()
        return self.random.choice([node for node in self.nodes if node is not leader])

    def elections(self) -> int:
        """Terms in which the nodes have logged a leader."""
        return len(set().union(*(node.terms() for node in self.nodes)))

    def wait_for(self, holds: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
        """Wait until something holds. Raises NotInTime."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            if time.monotonic() > deadline:
                raise NotInTime(f"not within {timeout_s:.0f} s: {what}")
            wait(POLL_S)

    def wait_live(self, timeout_s: float = HEAL_S) -> None:
        """Wait until all nodes are Live. Raises NotInTime."""
        for node in self.nodes:
            try:
                self.wait_for(partial(self.is_live, node), f"{node.name} is Live", timeout_s)
            except NotInTime as error:
                raise NotInTime(f"{error}; it says: {node.last_log_line()}") from None

    # --- healing ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Undo every fault; start again what has ended, as an init system would."""
        self._heal.close()
        for node in self.nodes:
            node.resume()
            if node.pid is None:
                node.start()
        for sidecar in self.sidecars:
            sidecar.heal()
        for load in self.loads:
            if not load.is_running:
                self.begin(load)

    def settle(self) -> None:
        """End the load; return when everything is merged and copied. Raises NotInTime."""
        deadline = time.monotonic() + HEAL_S
        for publisher in self.publishers:  # one that has only just begun would not understand
            self.wait_for(publisher.has_notes, f"{publisher.name} appends")
            publisher.finish()
        for publisher in self.publishers:
            code = publisher.wait_end(max(1.0, deadline - time.monotonic()) + MERGE_S)
            if code != 0:
                raise NotInTime(f"{publisher.name} ended with {code}: not all was merged")
        self.wait_for(
            self._is_even,
            "all nodes and the subscriber hold the same",
            max(5.0, self._left(deadline)),
        )

    def _left(self, deadline: float) -> float:
        return deadline - time.monotonic()

    def _is_even(self) -> bool:
        statuses = [self.status(node) for node in self.nodes]
        ends = {
            (info.end_offset, info.committed_offset)
            for status in statuses
            if status is not None
            for info in status.partitions
            if info.topic == TOPIC
        }
        if None in statuses or len(ends) != 1:
            return False
        end, committed = next(iter(ends))
        return end == committed and self._received() >= end

    def _received(self) -> int:
        """Where the subscriber's copy ends, from its own index-free count of notes."""
        return last_count(read_notes(self.subscriber.notes), Kind.RECEIVED)

    def rejected(self) -> list[str]:
        """What the subscriber would not take from a node."""
        log = self.directory / f"{self.subscriber.name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "CRC does not match" in line or "damaged" in line]

    def stop(self) -> None:
        """End everything cleanly, so that the files can be judged."""
        for reader in (self.subscriber, *self.onlookers):
            reader.finish()
        for reader in (self.subscriber, *self.onlookers):
            reader.wait_end(STOP_S)
        for sidecar in self.sidecars:
            sidecar.stop(STOP_S)
        self.cluster.stop()

    def copies(self) -> list[Path]:
        """Directories whose merged logs are to be the same."""
        nodes = [Path(node.data) for node in self.nodes]
        if self._copies:
            nodes = [path for path in nodes if any(path.glob(f"groups/*/merged/{TOPIC}-0"))]
            if len(nodes) != self._copies:
                self.remarks.append(f"{len(nodes)} of {self._copies} nodes have the topic")
        return [*nodes, self.subscriber.directory / self.subscriber.name]


def is_root() -> bool:
    """Whether disks may be mounted and namespaces made."""
    return os.geteuid() == 0
