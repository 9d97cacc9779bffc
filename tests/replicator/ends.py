"""The four ends of push and pull connections, moved by scripts: what each of them says and does.

The peer is whatever a scenario says. Files and logs are real ones; the network, the time and the
cluster are made up.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from samelog.config.authorisation import Rights
from samelog.format.directory_files import RunFile
from samelog.format.errors import InvariantError
from samelog.replicator.interfaces import RequestRefused
from samelog.replicator.pull.conversation import PullConversation
from samelog.replicator.pull.copy import Copy, make_copy
from samelog.replicator.pull.server import PullServer
from samelog.replicator.push.ack_sender import AckSender
from samelog.replicator.push.conversation import PushConversation
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.served_session import PushSession
from samelog.replicator.turns import Turns
from samelog.runtime.faults import fault_of
from samelog.runtime.inotify import LoopInotify
from samelog.runtime.network.channel import Channel
from samelog.runtime.network.transport import Connection
from samelog.store.disk.files import OsFileSystem
from samelog.wire import messages
from samelog.wire.bounds import Holder
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import AnyMessage, Fault, Hello, OpenSession
from samelog.wire.pull.copies import EARLIEST, CopyState
from samelog.wire.pull.receiver import DISAGREES, PullTarget
from samelog.wire.pull.refusal import Refusal
from samelog.wire.pull.sender import READ_BYTES
from samelog.wire.sender import Sender, SharedWindow
from tests.replicator.fake_intake import FakeCluster, FakeIntake
from tests.replicator.fake_nodes import EVERYTHING
from tests.replicator.fake_source import FakeSource
from tests.replicator.said import message_of, show
from tests.replicator.session_files import SessionFiles, batch, random_batches
from tests.scenario_files import LoopCommands

CLUSTER = "fake"


class Line:
    """Takes the place of a connection, and writes down what is sent."""

    def __init__(self, script: EndScript, identity: str) -> None:
        self.identity = identity
        self.number = 1
        self.is_open = True
        self.is_full = False
        self._script = script

    @property
    def writable(self) -> bool:
        """Whether more can be sent."""
        return self.is_open and not self.is_full

    def send(self, message: AnyMessage) -> None:
        """A message."""
        if self.is_open:
            self._script.trace.append(f"sends {show(message)}")

    def send_data(self, handle: int, file: int, byte: int, data: bytes | memoryview) -> None:
        """Batches."""
        if self.is_open:
            text = f"sends DATA handle={handle} file={file} byte={byte}: {len(data)} bytes"
            self._script.trace.append(text)

    def send_part(self, handle: int, file: int, byte: int, part: bytes | memoryview) -> None:
        """A piece of a batch."""
        if self.is_open:
            text = f"sends PART handle={handle} file={file} byte={byte}: {len(part)} bytes"
            self._script.trace.append(text)

    def cork(self) -> None:
        """What is sent is written down at once."""

    def uncork(self) -> None:
        """As before."""

    def pause_reading(self) -> None:
        """Each step brings one thing only."""

    def resume_reading(self) -> None:
        """As before."""

    def close(self, fault: Fault | None = None) -> None:
        """The end."""
        if self.is_open:
            self.is_open = False
            text = "closes" if fault is None else f"closes: {fault.code.name}: {fault.message}"
            self._script.trace.append(text)
            error = fault and ProtocolFault(fault.code, fault.message, fault.remedy)
            self._script.loop.call_soon(self._script.end.on_closed, error)


class EndScript(LoopCommands):
    """What all ends have in common."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.end: Any = None
        self.line = Line(self, "")

    def dial(self, identity: str) -> None:
        """Another connection, to or from this peer; the one before is gone."""
        if self.end is not None and self.line.is_open:
            self.do_hang_up()
        self.line = Line(self, identity)

    @property
    def connection(self) -> Connection:
        """The line, as what it is used."""
        return cast(Connection, self.line)

    def now(self) -> float:
        """Clock.now"""
        return self.loop.now

    def guarded(self, name: str, *arguments: object) -> None:
        """Call the end as a connection does: what it raises ends the connection."""
        try:
            getattr(self.end, name)(*arguments)
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001 - as the connection does
            self.line.close(fault_of(error))

    def on_holders(self, nodes: Sequence[Holder]) -> None:
        self.trace.append(f"others have it: {[node.name for node in nodes]}")

    def do_hear(self, kind: str, *fields: str) -> None:
        """`hear KIND field=value...`: a message comes."""
        self.guarded("on_ack" if kind == "Ack" else "on_message", message_of(kind, fields))

    def do_data(self, handle: str, file: str, byte: str, count: str) -> None:
        """`data HANDLE FILE BYTE N`: a frame with N batches comes."""
        data = b"".join(batch(b"%d" % number) for number in range(int(count)))
        self.guarded("on_data", int(handle), int(file), int(byte), memoryview(data))

    def do_full(self) -> None:
        """`full`: nothing more can be sent."""
        self.line.is_full = True

    def do_writable(self) -> None:
        """`writable`: more can be sent again."""
        self.line.is_full = False
        self.writable()

    def writable(self) -> None:
        """Tell the end so."""
        self.guarded("on_writable")

    def do_hang_up(self) -> None:
        """`hang-up`: the connection is gone."""
        self.line.is_open = False
        self.end.on_closed(None)


class PushSenderScript(EndScript):
    """A publisher's end of a push connection, over a real session directory that is polled."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.files = SessionFiles(path / "s")
        self.session = LocalSession(
            OsFileSystem(), str(self.files.path), self._changed, new_inotify=_no_inotify
        )
        self.known_merged: dict[tuple[int, Any], Any] = {}
        self.gives_up = False

    def _changed(self) -> None:
        if self.end is not None:
            self.end.session_changed()

    def writable(self) -> None:
        self.turns.go_on()

    # what the conversation tells
    def knows_cluster(self, cluster_id: str) -> bool:
        """Any."""
        return True

    async def on_cluster(self, cluster_id: str) -> None:
        """Not asked."""

    def on_reached(self, run: int, name: Any, places: Any, layout: Any) -> None:
        self.known_merged[run, name] = places[2]
        self.trace.append(f"run {run} {_name(name)} reached {places}")

    async def on_refused(self, run: int, name: Any, batch: Any) -> None:
        self.trace.append(f"run {run} {_name(name)}: {batch.place} refused, {batch.runs}")

    def on_run_opened(self, run: RunFile, number: int) -> None:
        """The message itself is in the trace."""

    def on_run_closed(self, run: RunFile, ends: Any, parts: Any = ()) -> None:
        self.trace.append(f"run {run.run} closed at { {_name(k): v for k, v in ends.items()} }")

    def on_topic_gone(self, run: int, name: Any, topic_id: str) -> None:
        self.trace.append(f"run {run} {_name(name)}: topic {topic_id} gone")

    def on_holds_decided(self, topic_ids: Sequence[str], *, continues: bool) -> None:
        self.trace.append(f"what is held {'continues' if continues else 'is discarded'}")

    def wanted_topics(self) -> dict[str, int]:
        return {}

    def is_known(self, topic: str) -> bool:
        return False

    def on_topic_told(self, topic: str, partitions: int, *, is_checked: bool) -> None:
        self.trace.append(f"{topic} has {partitions} partitions")

    def is_start_lost(self, run: int, name: Any) -> bool:
        return False

    def note_refused(self, run: int, name: Any, code: Any) -> None:
        """The refusal itself is in the trace."""

    def is_given_up(self, run: int, name: Any) -> bool:
        return self.gives_up

    def on_fork(self, fault: ProtocolFault) -> None:
        self.trace.append(f"fork: {fault.message}")

    def on_status(self) -> None:
        self.trace.append(f"phase {self.end.phase.name}" if self.end is not None else "phase")

    def merged(self, run: int, name: Any) -> Any:
        return self.known_merged.get((run, name), (0, 0))

    # commands
    def do_connect(self) -> None:
        """`connect`: a new connection; the directory is looked at."""
        self.dial("samelog://node/n0")
        self.session.start()
        self.turns = Turns(self.connection, cast(Any, self))
        self.end = PushConversation(
            cast(Channel, self.line),
            self.session,
            self,
            cast(Any, self),
            cluster=CLUSTER,
            turns=self.turns,
            window=SharedWindow(1 << 30),
            on_over=lambda error: self.trace.append("over"),
        )

    def do_begin(self) -> None:
        """`begin`: the publisher begins a run."""
        self.files.begin()

    def do_append(self, partition: str, *values: str) -> None:
        """`append P VALUE...`: a batch for each value."""
        for value in values:
            self.files.append(batch(value.encode()), ("flights", int(partition)))

    def do_roll(self, partition: str) -> None:
        """`roll P`: the file is sealed."""
        self.files.roll(("flights", int(partition)))

    def do_move(self, partition: str, former: str, byte: str) -> None:
        """`move P ID BYTE`: the topic ID is deleted, and what follows belongs to the next one."""
        self.session.poll()
        name = ("flights", int(partition))
        begin = (self.files.run, 0, int(byte))
        shipping = replace(self.session.shipping(name), former=(former,), begin=begin)
        self.session.ship_differently(name, shipping)
        self.session.unbind(name)
        self.end.reset_input(name)

    def do_end(self) -> None:
        """`end`: the run ends cleanly."""
        self.files.end()

    def do_release(self, partition: str, roll: str) -> None:
        """`release P ROLL`: a file is removed."""
        path = self.files.file(int(roll), ("flights", int(partition)))
        for file in path.parent.glob(path.name + "*"):
            file.unlink()

    def do_poll(self) -> None:
        """`poll`: the directory is looked at."""
        self.session.poll()

    def do_tick(self) -> None:
        """`tick`: now and then."""
        self.guarded("time_passed")

    def do_give_up(self) -> None:
        """`give-up`: no node takes what this one refuses."""
        self.gives_up = True

    def do_problems(self) -> None:
        """`problems`: what cannot be shipped."""
        for name, problem in self.end.problems.items():
            self.trace.append(f"{_name(name)}: {problem}")


class PushReceiverScript(EndScript):
    """A node's end of a push connection; the cluster commits, merges and closes at once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.cluster = FakeCluster()
        self.intake = FakeIntake(self.cluster)

    def do_connect(self) -> None:
        """`connect`: a publisher has said Hello."""
        hello = Hello(messages.ConnectionRole.PUSH, cluster=CLUSTER)
        rights, opened = Rights((EVERYTHING,), ["n0"]), OpenSession(1, "s", "i")
        self.dial("samelog://publisher/p")
        self.acks = AckSender(self.connection)
        channel = cast(Channel, self.line)
        self.end = PushSession(channel, opened, hello, self.intake, rights, shared=self)

    # what sessions ask of the connection that they share
    def in_turn(self, work: Callable[[], None]) -> None:
        self.loop.call_soon(work)

    def kept(self, size_bytes: int) -> None:
        """Each step brings one thing only."""

    def session_over(self, session: PushSession) -> None:
        """Nothing counts them."""

    def holds_changed(self, session: PushSession) -> None:
        """Scripts ignore them."""

    def do_cluster(self, *settings: str) -> None:
        """`cluster merges=False`...: what it does by itself, from now on; it moves once."""
        for setting in settings:
            name, value = setting.split("=")
            setattr(self.cluster, name, ast.literal_eval(value))
        self.cluster.move()

    def do_delete_topic(self, name: str) -> None:
        """`delete-topic NAME`."""
        self.cluster.delete_topic(name)

    def do_refuse(self, code: str) -> None:
        """`refuse CODE`: inputs are opened no more."""
        self.intake.refusal = RequestRefused(FaultCode[code], "not now")

    def do_held(self) -> None:
        """`held`: what came."""
        for (number, run), held in self.intake.held.items():
            self.trace.append(f"input {number} run {run} ends at {held.end}")


class PullSenderScript(EndScript):
    """A node's end of a pull connection, over real merged and session logs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.source = FakeSource(path)

    def do_connect(self, who: str = "samelog://publisher/p", window: str = "16777216") -> None:
        """`connect [IDENTITY] [WINDOW]`: somebody has said Hello."""
        self.dial(who)
        rights = Rights((EVERYTHING,), ["n0"])
        sender = Sender(window_bytes=int(window), read_bytes=READ_BYTES)
        self.end = PullServer(
            self.connection, self.source, rights, sender=sender, clock=cast(Any, self)
        )

    def do_append(self, partition: str, *values: str) -> None:
        """`append P VALUE...`: a batch for each value is merged."""
        for value in values:
            self.source.merged[int(partition)].append(batch(value.encode()))

    def do_append_many(self, partition: str, count: str) -> None:
        """`append-many P N`: N random batches are merged at once."""
        data = random_batches(random.Random(1), int(count))
        self.source.merged[int(partition)].append(data)

    def do_roll(self, partition: str) -> None:
        """`roll P`: another segment begins."""
        self.source.merged[int(partition)].roll()

    def do_archive(self, partition: str, offset: str) -> None:
        """`archive P OFFSET`."""
        self.source.merged[int(partition)].archive(int(offset))

    def do_session(self, run: str, *values: str) -> None:
        """`session RUN VALUE...`: bytes of a session come."""
        for value in values:
            self.source.session.append(int(run), batch(value.encode()))

    def do_seal(self, run: str) -> None:
        """`seal RUN`: the session's file is sealed."""
        log = self.source.session.log
        log.seal(int(run), *log.end(int(run)))
        self.source.session.changed()

    def do_committed(self, partition: str, end: str) -> None:
        """`committed P OFFSET`: where the cluster's log ends."""
        self.source.merged[int(partition)].committed = int(end)

    def do_behind(self) -> None:
        """`behind`: the node does not know what is committed, until `current`."""
        self.source.current.clear()

    def do_current(self) -> None:
        """`current`: it does."""
        self.source.current.set()

    def do_leaderless(self) -> None:
        """`leaderless`: no node leads any more."""
        self.source.leaderless = True

    def do_delete(self) -> None:
        """`delete`: the topic is gone."""
        self.source.delete()


class PullReceiverScript(EndScript):
    """A subscriber's end of a pull connection; `source` is a node's log, to take bytes from."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.on_growth: Callable[[Copy], None] = self.on_change
        self.source = FakeSource(path / "node")
        self.copies: dict[tuple[str, int], Copy] = {}
        self.addresses = frozenset({"here", "elsewhere"})
        self.is_far = self.is_near = False

    # what the conversation tells
    def on_topic(self, topic: str, topic_id: str, partitions: int) -> list[Copy]:
        self.trace += [f"topic {topic}: None", f"topic {topic} has {partitions} partitions"]
        for partition in range(partitions):
            if (topic, partition) not in self.copies:
                where, name = str(self.path / "copies"), (topic, partition)
                self.copies[name] = make_copy(OsFileSystem(), where, name, topic_id, None)
        return list(self.copies.values())

    def on_refused(self, topic: str, refusal: Refusal) -> None:
        self.trace.append(f"topic {topic}: {refusal}")

    def on_change(self, copy: Copy) -> None:
        if isinstance(copy.fault, Refusal) and copy.fault.code in DISAGREES:
            self.trace.append(f"{_name(copy.name)} disagrees: {copy.fault}")
        at = f"at {tuple(copy.log.end())} of {copy.cluster_end}"
        caught_up = ", caught up" if copy.caught_up else ""
        self.trace.append(f"{_name(copy.name)} {copy.state.name} {at}{caught_up}")

    def on_cluster(self, cluster_id: str) -> None:
        """Any."""

    def on_archived(self, copy: Copy, start: Any) -> None:
        copy.archive(start, keep=False)
        self.trace.append(f"{_name(copy.name)} archived below {start.offset}")

    def on_cut(self, copy: Copy, base: int) -> None:
        copy.cut(base)

    def on_given_up(self, copy: Copy) -> None:
        self.trace.append(f"{_name(copy.name)} is given up: {copy.fault}")

    def on_begun_anew(self, copy: Copy) -> None:
        """The client's matter: `replaced` follows, or not."""

    def on_taken(self, copy: Copy) -> None:
        self.trace.append(f"{_name(copy.name)} is to be taken over")

    on_elsewhere = EndScript.on_holders

    # commands
    def do_connect(self, *topics: str) -> None:
        """`connect TOPIC...`: a connection that copies these."""
        self.dial("samelog://node/n0")
        (self.path / "copies").mkdir(exist_ok=True)
        self.end = PullConversation(
            self.connection,
            self,
            cast(Any, self),
            PullTarget(CLUSTER, topics, "here", self.addresses, self.is_far, self.is_near),
            find_start=lambda topic, topic_id, partition: EARLIEST,
            on_over=lambda error: self.trace.append("over"),
        )

    def do_tick(self) -> None:
        """`tick`: now and then."""
        self.end.tick()

    def do_far(self) -> None:
        """`far`: the node is in another rack, from the next connection on."""
        self.is_far = True

    def do_near(self) -> None:
        """`near`: the node is near the reader, from the next connection on."""
        self.is_near = True

    def do_elsewhere(self, partition: str) -> None:
        """`elsewhere P`: another node gives the copy of P from now on."""
        self.copies["flights", int(partition)].enter(CopyState.COPYING, self.now())

    def do_released(self, partition: str) -> None:
        """`released P`: no other node gives the copy of P any more."""
        self.copies["flights", int(partition)].enter(CopyState.WAITING, self.now())

    def do_agree(self) -> None:
        """`agree`: that the node refuses is known, so that it is not left."""
        for copy in self.copies.values():
            copy.refused_by["here"] = Refusal(FaultCode.FORK, "other")

    def do_nodes(self, *addresses: str) -> None:
        """`nodes ADDRESS...`: those that can be asked; `here` is the one that is."""
        self.addresses = frozenset(addresses)

    def do_stop(self, partition: str) -> None:
        """`stop P`: the disk of a copy has failed."""
        self.copies["flights", int(partition)].state = CopyState.STOPPED

    def do_source(self, partition: str, *values: str) -> None:
        """`source P VALUE...`: the node merges a batch for each value; `roll` begins a segment."""
        for value in values:
            if value == "roll":
                self.source.merged[int(partition)].roll()
            else:
                self.source.merged[int(partition)].append(batch(value.encode()))

    def do_take(self, handle: str, partition: str) -> None:
        """`take HANDLE P`: the node sends what the copy of P lacks of its segment."""
        base, byte = self.copies["flights", int(partition)].log.end()
        log = self.source.merged[int(partition)].log
        segment = log.segment(base)
        size = 0 if segment is None else segment.size
        data = log.read(base, byte, max(1, size - byte)) if size > byte else b""
        self.guarded("on_data", int(handle), base, byte, memoryview(data))


END_SCRIPTS: dict[str, type[EndScript]] = {
    "push_sender": PushSenderScript,
    "push_receiver": PushReceiverScript,
    "pull_sender": PullSenderScript,
    "pull_receiver": PullReceiverScript,
}


def _name(name: tuple[str, int]) -> str:
    return f"{name[0]}-{name[1]}"


def _no_inotify() -> LoopInotify:
    raise OSError("not here")
