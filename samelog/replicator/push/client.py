"""Ships one session directory to every node of a cluster, independently of each other.

Lives in an event loop, at the publisher (in a thread of its own) or in a sidecar; the application
that writes the files never waits for it. What all nodes say of how far the session has come is put
together, and what is merged on a majority is removed here.

Invariant: the directory's files are only read, and removed by the rules of `push_release`; a fork
stops shipping for good, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from samelog.config.tables.client import ClientConfig, OnRecreate
from samelog.format.directory_files import RunFile
from samelog.format.errors import LogFormatError
from samelog.format.positions import SessionPosition
from samelog.replicator.cluster_pin import ClusterPin
from samelog.replicator.interfaces import InputName, RollByte, RunEnds
from samelog.replicator.known_nodes import KnownNodes
from samelog.replicator.push.backlog_marks import BacklogMarks
from samelog.replicator.push.connections import PushConnections
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.push.file_writer import FileWriter
from samelog.replicator.push.link import NodeStatus, PushLink
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.node_connection import PublisherEnd
from samelog.replicator.push.progress import (
    START,
    InputProgress,
    LostRange,
    SessionProgress,
    ToldTopics,
)
from samelog.replicator.push.recreation import HeldBytes, Recreation
from samelog.replicator.push.refused import RefusedRecords
from samelog.replicator.push.release import (
    Removal,
    find_lost,
    plan_removal,
    remove,
    waits_for_file,
)
from samelog.runtime.backoff import Backoff
from samelog.runtime.inotify import LoopInotify
from samelog.runtime.loop import end_all, spawn
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.link import NodeAddress
from samelog.runtime.network.tls import ReloadingContext
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.wire.bounds import Holder
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.push.effects import ProgressTold
from samelog.wire.push.layout import Layout
from samelog.wire.refusals import RefusedBatch

log = logging.getLogger(__name__)

RELEASE_DELAY_S = 0.2


@dataclass(frozen=True, slots=True)
class PushStatus:
    """How shipping is. `stopped`: why it has ended for good; `session_fault`: what is wrong with
    the directory at the moment.
    """

    nodes: tuple[NodeStatus, ...]
    stopped: ProtocolFault | None
    session_fault: LogFormatError | None
    lost: tuple[LostRange, ...]
    damaged: tuple[LostRange, ...]
    gone: Mapping[InputName, int]
    held: Mapping[InputName, HeldBytes]


class _Release(IntEnum):
    """Of which inputs files may be removed."""

    NOTHING = 0
    MOVED = 1
    """Those of which more was merged."""
    ALL = 2


class _FilesBeside(NamedTuple):
    """What is kept in the session's directory beside what is shipped."""

    pin: ClusterPin
    pin_writer: FileWriter
    refused: RefusedRecords
    recreation: Recreation
    marks: BacklogMarks


class PushClient:
    """Ships one session. All calls and callbacks are in its event loop.

    Implements push_conversation.PushEvents.
    """

    def __init__(
        self,
        path: str,
        config: ClientConfig,
        *,
        connections: PushConnections,
        tls: ReloadingContext,
        fs: FileSystem,
        on_progress: Callable[[], None] = lambda: None,
        new_inotify: Callable[[], LoopInotify] = LoopInotify,
    ) -> None:
        """`connections` and `tls` are shared with other sessions. `on_progress` is called once per
        turn of the loop in which `progress` or `status` moved. `path` need not hold a session yet.
        """
        self._config = config
        self._connections = connections
        self._tls = tls
        self._on_progress = on_progress
        self._session = LocalSession(fs, path, self._changed, self._look_soon, new_inotify)
        self._session.watch.linger_for(config.publisher.linger_s)
        self._progress = SessionProgress()
        clock = connections.clock
        recreation = Recreation(self._session, self._progress, clock, self._reset_input)
        marks = BacklogMarks(self._session, self._merged_locally, clock)
        self.beside = _FilesBeside(
            ClusterPin(fs, path), FileWriter(), RefusedRecords(fs, path), recreation, marks
        )
        self._nodes = KnownNodes(config)
        self._is_started = False
        self._look_wanted = False
        """Whether something that happened needs another look at the directory."""
        self._links = [self._make_link(each) for each in self._nodes.all]
        self._leaving: set[asyncio.Task[None]] = set()
        """Connections that end, because this was the last session that used them."""
        self._releaser: asyncio.Task[None] | None = None
        self._release_wanted = _Release.NOTHING
        self._stopped: ProtocolFault | None = None
        self._to_tell: bool | None = None
        """Whether the status has changed, too, when progress is reported at the end of this turn of
        the loop; None: no report is due.
        """
        self.status_version = 0
        """Another number whenever `status` may be another one."""

    @property
    def progress(self) -> Mapping[InputName, InputProgress]:
        """How far each input has come, by the best knowledge of any node."""
        return self._progress.inputs

    def take_moved(self) -> Mapping[InputName, InputProgress]:
        """Return the positions that have moved since the last call."""
        moved, self._progress.moved = self._progress.moved, {}
        return moved

    @property
    def topics(self) -> ToldTopics:
        """What nodes said of topics; another value when that moves."""
        return self._progress.topics

    @property
    def status(self) -> PushStatus:
        """How it goes, for people."""
        return PushStatus(
            tuple(link.status for link in self._links),
            self._stopped,
            self._session.fault,
            tuple(self._progress.lost),
            tuple(self._session.damaged()),
            self._progress.gone(),
            self.beside.recreation.held,
        )

    @property
    def file_changes(self) -> int:
        """Another number whenever the session's files may have changed, unless `is_blind`."""
        return self._session.watch.changes

    @property
    def is_released(self) -> bool:
        """Whether the directory was looked at, and no run has files in it any more."""
        return self._session.identity is not None and not self._session.has_files

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._is_started = True
        self._session.start()
        self._connections.add(self)
        self._connect()

    def hurry(self) -> None:
        """Ship what was appended so far at once: something waits for it."""
        self._session.watch.hurry()

    async def stop(self) -> None:
        """Ship no more, and close the files."""
        self._is_started = False
        self._connections.remove(self)
        for link in self._links:
            self._leave(link)
        await asyncio.sleep(0)  # the conversations' ends are reported in the next turn
        await end_all([] if self._releaser is None else [self._releaser])
        await self.beside.marks.close()
        await self.beside.pin_writer.finish()
        await self.beside.refused.finish()
        await self._session.finish_writes()
        # They are cancelled; a second cancellation would interrupt the end of the connections.
        await asyncio.gather(*self._leaving, return_exceptions=True)
        try:
            self.beside.recreation.note_merged()
        except LogFormatError as error:
            log.warning("how far %s is merged is not noted: %s", self._session.path, error)
        self._session.close()

    def follow(self, config: ClientConfig) -> None:
        """Ship to these nodes from now on. What a node that is left has told still counts, and what
        no node has told is not released: nothing is lost by leaving one.
        """
        self._config = config
        self._session.watch.linger_for(config.publisher.linger_s)
        self._connections.reload()
        self._nodes.follow(config)
        self._follow_nodes()

    def _follow_nodes(self) -> None:
        known = {link.target: link for link in self._links}
        wanted = self._nodes.all
        self._links = [
            known.pop(each) if each in known else self._make_link(each) for each in wanted
        ]
        for link in known.values():
            self._leave(link)
        self._connect()
        self._tell_soon()

    # --- looking ------------------------------------------------------------------------------

    @property
    def is_blind(self) -> bool:
        """Whether changes of the directory are noticed by looking only."""
        return not self._session.has_inotify

    @property
    def is_at_rest(self) -> bool:
        """Whether the session waits for an event."""
        return (
            not (self._look_wanted or self._release_wanted or self._progress.unfinished)
            and self._session.is_at_rest
            and self.beside.recreation.is_settled
            and all(link.is_at_rest for link in self._links)
        )

    def look(self, *, is_whole: bool) -> None:
        """Do what is due, about once a second while the session does not rest. `is_whole`: poll the
        directory although nothing asks for that.
        """
        if is_whole or self._look_wanted or not self._session.is_at_rest:
            self._look_wanted = False
            self._session.poll()
        self._go_on()
        self.beside.recreation.settle()
        self.beside.marks.look()
        self.status_version += 1
        self._connect()
        for link in self._links:
            if link.conversation is not None:
                link.conversation.time_passed()
        self._tell_holds()
        if self._session.fault is not None:
            self._tell_soon()
        if self._release_wanted:
            self._release_soon()

    def expect(self, run: int, ends: RunEnds) -> None:
        """Take a run of a stage for damaged unless its files reach these ends; empty: no more."""
        self._session.expect(run, ends)
        self._tell_soon()

    def _look_soon(self) -> None:
        """What happened may need another look."""
        self._look_wanted = True
        self._connections.wake(self)

    def _make_link(self, target: NodeAddress) -> PushLink:
        return PushLink(
            target,
            identity=self._identity,
            converse=self._converse,
            backoff=Backoff(self._connections.random),
            on_status=self._tell_soon,
        )

    def _identity(self) -> tuple[str, str] | None:
        return None if self._stopped is not None else self._session.identity

    def _connect(self) -> None:
        """Use the connections to the nodes, once it is known whose session this is."""
        if self._identity() is None or not self._is_started:
            return
        for link in self._links:
            if link.shared is None:
                cluster = self._config.cluster
                link.shared = self._connections.join(link, link.target, cluster, self._tls)

    def _leave(self, link: PushLink) -> None:
        """Ship to a node no more."""
        link.leave()
        shared, link.shared = link.shared, None
        ended = None if shared is None else self._connections.leave(link, shared)
        if ended is not None:
            self._leaving.add(ended)
            ended.add_done_callback(self._leaving.discard)

    def _converse(
        self, channel: Channel, end: PublisherEnd, on_over: Callable[[Exception | None], None]
    ) -> PushConversation:
        return PushConversation(
            channel,
            self._session,
            self,
            self._connections.clock,
            cluster=self._config.cluster,
            turns=end.turns,
            window=end.window,
            on_over=on_over,
        )

    def _changed(self) -> None:
        """Runs or inputs have changed."""
        self._connections.wake(self)
        self._connect()
        self._progress.note_damage(self._session.damage.lost())
        self._tell_soon()
        for name, start in self._session.damage.starts():
            self._progress.reached(start.run, name, (START, start[1:], start[1:]))
        for link in self._links:
            if link.conversation is not None:
                link.conversation.session_changed()

    # --- what conversations tell --------------------------------------------------------------

    def on_reached(
        self, run: int, name: InputName, places: ProgressTold, layout: Layout | None
    ) -> None:
        """A node tells durable, acknowledged, merged, as `layout` counts."""
        merged_before = self._progress.merged_as(run, name, layout)
        if self._progress.reached_as(run, name, places, layout):
            self._tell_soon(status=False)
        merged = max(merged_before, places[2])
        ends = self._progress.ends.get(run)
        is_finished = ends is not None and merged >= ends.get(name, (0, 0))
        is_in_carried = layout is not None and merged_before[0] < len(layout.carried)
        if (
            merged[0] != merged_before[0]
            or is_finished
            or (is_in_carried and merged > merged_before)
        ):
            self._release_soon(is_whole=is_finished)
        if self._progress.unfinished:
            self._go_on()

    async def on_refused(self, run: int, name: InputName, batch: RefusedBatch) -> None:
        """Keep what was refused of a batch durably. Raises LogFormatError."""
        data = None
        try:
            data = self._session.tail(run, name).read_part(batch.roll, batch.start, batch.size)
        except (KeyError, NoSuchFile):
            log.error("what is refused of %s-%d, run %d, is not here any more", *name, run)
        await self.beside.refused.keep_in_turn(run, name, batch, data)

    def on_run_opened(self, run: RunFile, number: int) -> None:
        """Carry in this run the bytes that runs before it did not take."""
        self.beside.recreation.run_opened(run.run, number)

    def on_run_closed(self, run: RunFile, ends: RunEnds, parts: Container[InputName] = ()) -> None:
        """Record which bytes of a closed run the cluster lacks, and schedule the removal of the
        others. If a part of the run ends in damage, begin the next part.
        """
        if not self._session.is_current(run):
            return  # told before
        names = self._session.inputs_of(run.run)
        layouts = {name: self._session.layout(run.run, name) for name in names}
        for name in names:  # damage where the run was closed may not have been read yet
            with suppress(LogFormatError):
                find_lost(self._session, run.run, name, ends.get(name, START))
        if self._session.goes_on(run):
            self._progress.close_part(run.run, ends, layouts, parts)
            self._progress.unfinished[run.run] = ends
            self._go_on()
        elif self._progress.close_run(run.run, ends, layouts, parts):
            if run.stage is None:
                self._session.damage.closed.add(run.run_id)
            for name in names:
                self._close_input(run, name, ends)
        self._tell_soon()
        self._release_soon()

    def _go_on(self) -> None:
        """Begin the next part of a damaged run once a majority has merged the last one durably, as
        far as inputs have files of it left, and all damage that was found is noted: what the next
        part skips is reported as lost. Failed writes are retried.
        """
        for run, ends in tuple(self._progress.unfinished.items()):
            if self._session.is_noting:
                return
            names = self._session.inputs_of(run)
            if not all(self._is_merged(run, name, ends.get(name, START)) for name in names):
                continue
            if self._session.has_unnoted_damage(run):
                self._session.note_damage()
                return
            try:
                self._session.go_on(run, ends)
            except LogFormatError as error:
                log.error("run %d of %s waits behind damage: %s", run, self._session.path, error)
            else:
                del self._progress.unfinished[run]
                self._changed()

    def _is_merged(self, run: int, name: InputName, end: RollByte) -> bool:
        return self._progress.is_gone(run, name) or self.merged(run, name) >= end

    def _close_input(self, record: RunFile, name: InputName, ends: RunEnds) -> None:
        run, shipping = record.run, self._session.shipping(name)
        if shipping.holds(run) or shipping.drops(run) or shipping.carries(run):
            return
        try:
            if self._progress.is_gone(run, name):
                self._session.unbind(name)
                return
            lost = find_lost(self._session, run, name, ends.get(name, START))
        except LogFormatError as error:
            log.error("run %d of %s-%d is kept: %s", run, *name, error)
            lost = LostRange(run, name, ends.get(name, START), START)
        if lost is None:
            return
        if record.stage is None and self._is_untouched(run, name, ends):
            self.beside.recreation.left_out(lost)  # opened too late, or not at all
        else:
            log.error(
                "run %d of %s-%d was closed at %s: what is behind was never merged, and is kept",
                run,
                *name,
                lost.start,
            )
            self._progress.lose(lost)

    def _is_untouched(self, run: int, name: InputName, ends: RunEnds) -> bool:
        """Whether no node took a byte of an input for its topic, up to the end of this closed run,
        and a later run may carry the bytes. An input that a node has opened is bound to a topic. A
        cluster that has forgotten a run names no ends. Bytes that a node finds invalid are never
        taken: they would hold up every run that carries them.
        """
        if self._progress.is_invalid(run, name) or ends.get(name, START) > START:
            return False
        is_first = name in ends and run == self._session.shipping(name).begin[0]
        is_withheld = self._session.keeps(run, name)
        return is_first or is_withheld or self._session.topic_id(name) is None

    def knows_cluster(self, cluster_id: str) -> bool:
        """Whether it is noted that the session was shipped to this cluster."""
        return self.beside.pin.knows(cluster_id)

    async def on_cluster(self, cluster_id: str) -> None:
        """Note durably that the nodes' cluster has this id. Raises ProtocolFault if the session
        belongs to another one, LogFormatError.
        """
        await self.beside.pin_writer.run(partial(self._meet, cluster_id))

    async def _meet(self, cluster_id: str) -> None:
        if not self.knows_cluster(cluster_id):  # another node of it may have been met meanwhile
            await asyncio.to_thread(self.beside.pin.meet, cluster_id)

    def want_topic(self, topic: str, partitions: int) -> None:
        """Learn how many partitions it has; create it with so many, if it is not there."""
        self._progress.wanted_topics[topic] = partitions
        for link in self._links:
            if link.conversation is not None:
                link.conversation.topics_wanted()

    def wanted_topics(self) -> Mapping[str, int]:
        """What `want_topic` was called with."""
        return self._progress.wanted_topics

    def is_known(self, topic: str) -> bool:
        """Whether a node has said that a topic is there."""
        return self._progress.topics.counts.get(topic, 0) > 0

    def on_topic_told(self, topic: str, partitions: int, *, is_checked: bool) -> None:
        """A node tells how many partitions a topic has; another one may not know of the newest."""
        if self._progress.topic_told(topic, partitions, is_checked=is_checked):
            self._tell_soon(status=False)

    def on_holders(self, nodes: Sequence[Holder]) -> None:
        """Ship to these, too."""
        if self._nodes.learn(nodes, {link.status.node for link in self._links}):
            self._follow_nodes()

    def on_topic_gone(self, run: int, name: InputName, topic_id: str) -> None:
        """A topic that an input was opened for was deleted; records staged for it go with it."""
        is_staged = any(each.run == run and each.stage is not None for each in self._session.runs)
        if is_staged or self.beside.recreation.lets_go:
            if self._progress.let_go(run, name):
                log.warning("topic of %s-%d was deleted: run %d lets it go", *name, run)
        else:
            self.beside.recreation.topic_deleted(name, topic_id)
        self._tell_soon()
        self._release_soon()

    def _reset_input(self, name: InputName) -> None:
        """An input is shipped differently from now on."""
        for link in self._links:
            if link.conversation is not None:
                link.conversation.reset_input(name)
        self._tell_soon()
        self._release_soon()

    def _tell_holds(self) -> None:
        """Tell all nodes what is held and what is damaged, for people who look there."""
        parts = self.beside.recreation.told()
        if parts is None:
            return
        for link in self._links:
            if link.conversation is not None:
                link.conversation.tell_holds(parts)

    def on_holds_decided(self, topic_ids: Sequence[str], *, continues: bool) -> None:
        """An operator has decided; where that cannot be noted, nothing changes."""
        try:
            decision = OnRecreate.CONTINUE if continues else OnRecreate.DISCARD
            self.beside.recreation.decide(decision, topic_ids)
            self._tell_soon()
        except LogFormatError as error:
            log.error("session %s: the decision is not noted: %s", self._session.path, error)

    def is_start_lost(self, run: int, name: InputName) -> bool:
        """Whether all nodes lack bytes of an input that come before its files."""
        talking = [link.conversation for link in self._links if link.conversation is not None]
        said = [conversation.lacks_start(run, name) for conversation in talking]
        wanted = [each for each in said if each is not None]
        return bool(wanted) and all(wanted)

    def note_refused(self, run: int, name: InputName, code: FaultCode) -> None:
        """A node refuses an input for a reason that time alone does not remove."""
        if code is FaultCode.INVALID_BATCH:
            self._progress.note_invalid(run, name)
        elif code is FaultCode.UNKNOWN_TOPIC:
            self.beside.recreation.note_unknown(name)

    def is_given_up(self, run: int, name: InputName) -> bool:
        """Whether an input is left behind: no node takes it, and a newer run waits."""
        talking = [link.conversation for link in self._links if link.conversation is not None]
        said = [conversation.refuses(run, name) for conversation in talking]
        refusals = [each for each in said if each is not None]
        return self._session.runs[-1].run > run and bool(refusals) and all(refusals)

    def on_fork(self, fault: ProtocolFault) -> None:
        """A node holds other bytes at the same place: nothing may be shipped any more."""
        if self._stopped is not None:
            return
        self._stopped = fault
        log.error("shipping of %s has stopped: %s", self._session.path, fault)
        for link in self._links:
            self._leave(link)
        self._tell_soon()

    def on_status(self) -> None:
        """The phase or a problem of a conversation has changed."""
        self._connections.wake(self)
        self._tell_soon()

    def merged(self, run: int, name: InputName) -> RollByte:
        """What is merged, by all that is known, and by the positions that it is shipped at."""
        return self._progress.merged_as(run, name, self._session.layout(run, name))

    def _merged_locally(self, run: int, name: InputName) -> SessionPosition:
        """What is merged of a run, by the positions in its files."""
        layout = self._session.layout(run, name)
        place = self._progress.merged_as(run, name, layout)
        return SessionPosition(run, *place) if layout is None else layout.local(place)

    # --- telling and releasing ----------------------------------------------------------------

    def _tell_soon(self, *, status: bool = True) -> None:
        self.status_version += status
        if self._to_tell is None:
            asyncio.get_running_loop().call_soon(self._tell)
        self._to_tell = status or bool(self._to_tell)

    def _tell(self) -> None:
        has_status, self._to_tell = self._to_tell, None
        self._on_progress()
        if has_status:
            self._tell_holds()

    def _release_soon(self, *, is_whole: bool = True) -> None:
        """Look for files to remove, a little later, because more positions will move. `is_whole`:
        of all inputs, not only of those of which more was merged.
        """
        wanted = _Release.ALL if is_whole else _Release.MOVED
        self._release_wanted = max(self._release_wanted, wanted)
        self._connections.wake(self)
        if self._releaser is None and self._is_started:
            self._releaser = spawn(self._release(), "release")

    async def _release(self) -> None:
        try:
            while self._release_wanted:
                await asyncio.sleep(RELEASE_DELAY_S)
                wanted, self._release_wanted = self._release_wanted, _Release.NOTHING
                await self._release_once(is_whole=wanted is _Release.ALL)
        except LogFormatError as error:
            self._release_wanted = _Release.ALL
            log.error("files of %s could not be removed: %s", self._session.path, error)
        finally:
            self._releaser = None

    async def _release_once(self, *, is_whole: bool) -> None:
        """Raises LogFormatError."""
        moved = self._progress.merged_more
        waiting = {n: None for n in moved if waits_for_file(self._session, self._progress, n)}
        self._progress.merged_more = waiting
        removal = plan_removal(self._session, self._progress, None if is_whole else moved)
        await remove(self._session.fs, removal)
        self._removed(removal)

    def _removed(self, removal: Removal) -> None:
        if removal.is_put_off:
            self._progress.merged_more |= dict.fromkeys(self._progress.inputs)
        for run in removal.finished:
            self._session.forget_run(run)
            self._progress.forget_run(run, self._session.carried())
        if removal.paths:
            # A run that carried bytes of a finished one may be over now.
            if removal.finished:
                self._release_wanted = _Release.ALL
            self._session.poll()
            self._tell_soon()
