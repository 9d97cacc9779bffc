"""A publisher: real session files and the real push client, in one simulated process.

Invariant: every record says whose it is; what the publisher is told is told to the checker.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from samelog.format import _kernels as kernels
from samelog.format.errors import LogFormatError
from samelog.publisher.errors import DiskFull
from samelog.publisher.session_writer import SessionWriter
from samelog.replicator.interfaces import InputName
from samelog.replicator.push.client import PushClient
from samelog.replicator.push.connections import PushConnections
from samelog.store.disk.disk_errors import DiskFault
from tests.cluster_sim.actor import Actor
from tests.cluster_sim.canonical import make_value
from tests.cluster_sim.checked import spoilt
from tests.cluster_sim.compaction import keyed
from tests.cluster_sim.first_keys import keyed_once
from tests.cluster_sim.history import Name, RunHistory, Written
from tests.cluster_sim.inotify import SimInotify
from tests.cluster_sim.kinds import MIRROR
from tests.cluster_sim.mirrored import SESSION, MirroredLogs
from tests.cluster_sim.process import Process
from tests.cluster_sim.shared_connections import OtherSessions
from tests.cluster_sim.violation import Violation

if TYPE_CHECKING:
    from tests.cluster_sim.world import World

SESSIONS = "/sessions"
BUDGET_BYTES = 1 << 30
REST_S = 0.5
SHARE_IN_GROUPS = 0.6
"""Of what is written, where there is a topic in data groups."""
"""How often a publisher looks whether the world is busy again."""


class PublisherActor(Actor):
    """One session, used again by every process."""

    role = "publisher"

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, f"p{number}")
        self.session = SESSION if world.options.kind == MIRROR else f"s{number}"
        self.mirrored = MirroredLogs()
        self.client: PushClient | None = None
        self.writer: SessionWriter | None = None
        self.others: OtherSessions | None = None
        self.is_stopped_for_good = False
        self.was_restored = False
        """Whether an old copy of its directory was put back."""
        self.disk.on_unlink = self._unlinks
        self._tls: Any = None
        """Of the running process, for all of its sessions."""

    @property
    def path(self) -> str:
        """The session's directory."""
        return f"{SESSIONS}/{self.session}"

    # --- the program ------------------------------------------------------------------------------

    async def run(self, process: Process) -> None:
        self.file_system(process).make_directory(SESSIONS)
        seed = f"{process.name} {self.world.options.seed}"
        connections, self._tls = PushConnections(self.clock, random.Random(seed)), self.tls()
        self.writer = self.open_writer(process, self.session)
        self.client = self.open_client(process, connections, self.session, self._progressed)
        self.client.start()
        if self.world.options.shares:
            self.others = OtherSessions(self, process, connections)
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / self.world.options.append_every_s))
            if self.world.is_busy:
                self._act()
            else:
                await asyncio.sleep(REST_S)

    def open_writer(self, process: Process, session: str) -> SessionWriter:
        """Open a session's directory as its writer."""
        return SessionWriter.open(
            self.file_system(process),
            f"{SESSIONS}/{session}",
            session=session,
            budget_bytes=BUDGET_BYTES,
            roll_bytes=self.world.options.roll_bytes,
        )

    def open_client(
        self,
        process: Process,
        connections: PushConnections,
        session: str,
        on_progress: Callable[[], None],
    ) -> PushClient:
        """Make what ships a session."""
        return PushClient(
            f"{SESSIONS}/{session}",
            self.client_config(),
            connections=connections,
            tls=self._tls,
            fs=self.file_system(process),
            on_progress=on_progress,
            new_inotify=cast(Any, lambda: SimInotify(self.disk)),
        )

    def _act(self) -> None:
        writer = cast(SessionWriter, self.writer)
        way = self.chance.random()
        try:
            if way < 0.02:
                writer.end_run()
            elif way < 0.1:
                writer.take_unsynced().sync(writer._fs)
            else:
                self.append(writer, self.session)
                if self.others is not None:
                    self.others.act()
        except DiskFull:
            self.world.trace.event(self.host, "has no room")

    def _place(self) -> Name:
        options, chance = self.world.options, self.chance
        name = (f"t{chance.randrange(options.topics)}", chance.randrange(options.partitions))
        placed = self.world.spanning.places if options.follows_groups else ()
        return chance.choice(placed) if placed and chance.random() < SHARE_IN_GROUPS else name

    def append(
        self, writer: SessionWriter, session: str, name: Name | None = None
    ) -> RunHistory | None:
        """Append some records in a session, to this partition or any. Return what the run has
        written to it; None: it takes nothing yet.
        """
        options, chance = self.world.options, self.chance
        name = self._place() if name is None else name
        log_id = self.world.checker.lineage.newest_id(name)
        if options.kind == MIRROR and not log_id:
            return None  # a mirror is there before its sidecar brings anything
        history = self.world.history
        numbers = history.next_numbers(session, name, chance.choice((1, 1, 1, 2, 5)))
        values = [make_value(session, n, options.value_bytes) for n in numbers]
        unfit: list[int] = []
        if self.world.are_checked:
            values, unfit = spoilt(chance, options.misfits, values)
        whose = session, values, numbers
        data = (
            keyed(chance, options, values)
            if options.keys
            else keyed_once(chance, options.first_keys, history, whose)
            if options.first_keys
            else kernels.build_batches(
                values, timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20
            )
        )
        if options.kind == MIRROR:
            data = self.mirrored.placed(log_id, data)
        output = writer.output(*name)
        output.write(data)
        position = output.position(writer._current_run())
        if position is None:
            raise Violation("publishers write", f"{session} has written nothing")
        run = writer.directory.run(position.run)
        run_id = "" if run is None else run.run_id
        end = position.roll, position.byte
        fit = [number for place, number in enumerate(numbers) if place not in unfit]
        written = history.written(session, run_id, name, Written(end, fit, len(data)))
        whose_run = session, run_id, name
        self.world.misfits.written(whose_run, end, [values[place] for place in unfit])
        return written

    def failed(self, error: Exception) -> None:
        self.world.trace.event(self.host, f"fails: {type(error).__name__}: {error}")
        if isinstance(error, DiskFault | LogFormatError) and self.disk.is_lossy:
            return
        if isinstance(error, DiskFault) and self.disk.used_bytes >= self.disk.capacity_bytes // 2:
            return
        raise Violation("publishers live", f"{self.host} ended: {error!r}") from error

    def gone(self) -> None:
        self.client = self.writer = self.others = None

    # --- what it is told --------------------------------------------------------------------------

    def _progressed(self) -> None:
        self.world.judge(self._judge_progress)

    def _judge_progress(self) -> None:
        client = cast(PushClient, self.client)
        checker = self.world.checker
        status = client.status
        if status.stopped is not None:
            checker.publisher_stopped(self, str(status.stopped))
        if status.lost:
            checker.publisher_lost(self, status.lost)
        own = self.world.rotting.own
        run_ids = {run.run: own(self.session, run.run_id) for run in client._session.runs}
        for name, progress in client.progress.items():
            place = progress.acknowledged
            if place.run in run_ids:
                checker.told_acknowledged(self, run_ids[place.run], name, place[1:])
        for (run, name), merged in client._progress._merged.items():
            if run in run_ids:
                checker.told_merged(self, run_ids[run], name, merged)
                self.world.misfits.check_kept(self, run_ids[run], name, merged)

    def _unlinks(self, process: Process, path: str, inode: object) -> None:
        is_data = re.fullmatch(r"log\.\d+\.\d+", path.rsplit("/", 1)[1])
        if is_data and path.startswith(f"{self.path}/"):
            self.world.judge(self.world.checker.publisher_removes, self, path)

    # --- for the end ------------------------------------------------------------------------------

    def waits_for(self) -> str:
        """What of this session is not merged yet; empty: nothing."""
        client, writer = self.client, self.writer
        if client is None or writer is None:
            return f"{self.host} is down"
        if self.is_stopped_for_good:
            return ""
        if self.others is not None and (waits := self.others.waits_for()):
            return waits
        for run in client._session.runs:
            if run.run == writer._run:
                run_id = self.world.rotting.own(self.session, run.run_id)
                for name, history in self.world.history.of_run(self.session, run_id):
                    if not self._is_merged(run_id, name, history):
                        return f"{self.session} run {run.run} {name}: {history.merged} merged"
                continue
            # A run that has carried bytes of earlier ones says so for good.
            known = client._session.inputs_of(run.run)
            names = [name for name in known if client._session.names_of(run.run, name).data]
            # A run that ends before the bytes of one input stays, with the newest file of each.
            if names and not any(client._progress.is_lost(run.run, name) for name in names):
                return f"{self.session} run {run.run} {names} is still there"
        return ""

    def _is_merged(self, run_id: str, name: InputName, history: RunHistory) -> bool:
        """Whether the publisher knows a run as merged, apart from rotten records at its end."""
        is_rotten = self.world.rotting.is_rotten
        left = history.appends[history.merged :]
        return all(is_rotten(self.session, run_id, name, append) for append in left)
