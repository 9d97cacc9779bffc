"""A node's session logs: what a loss of power or a rotten disk leaves of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.sequencer.merge.merger import read_agreed
from samelog.sequencer.merge.session_store import BeingMade, SessionStore
from samelog.sequencer.state.instructions import Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.store.disk.files import File, OsFileSystem
from samelog.store.disk.os_file import OsFile
from samelog.store.disk.tail_memory import PIECE_COST_BYTES, TailMemory
from samelog.store.session.directory import read_topic_id
from samelog.store.session.log import InputLog
from tests.cluster_sim.disk import Disk
from tests.cluster_sim.files import SimFileSystem
from tests.cluster_sim.process import Process, ProcessDied


def machine_with_input() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("a" * 32, "t", 1, {}, 0))
    machine.apply(OpenRunCommand("s", "b" * 32, "samelog://publisher/p", 0, "c" * 32, None, None))
    machine.apply(OpenInputCommand("s", "a" * 32, 0))
    return machine


class Untold:
    """Implements events.SessionEvents."""

    def session_log_unsynced(self, number: int) -> None:
        """Send nothing."""


def open_store(path: Path, machine: StateMachine) -> SessionStore:
    return SessionStore(OsFileSystem(), str(path / "sessions"), machine, Untold())


class Rounds:
    """Implements syncer.Syncer; a round begins when `gate` is open."""

    def __init__(self) -> None:
        self.rounds: list[set[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def sync(self, files: Iterable[File]) -> None:
        synced = list(files)
        await self.gate.wait()
        self.rounds.append({Path(file.path).name for file in synced})
        for file in synced:
            file.datasync()


class SteppedRounds(Rounds):
    """Each round waits for its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = asyncio.Semaphore(0)
        self.begun = asyncio.Queue[None]()

    async def sync(self, files: Iterable[File]) -> None:
        self.begun.put_nowait(None)
        await self.turns.acquire()
        await super().sync(files)


def write_files(store: SessionStore, count: int) -> int:
    """Several sealed files and the begin of another; the size of each."""
    data = kernels.build_batches(
        [b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20
    )
    log = store.log(1)
    for roll in range(count):
        log.append(0, roll, 0, data)
        log.seal(0, roll, len(data))
    log.append(0, count, 0, data)
    return len(data)


def test_a_new_input_is_made_with_two_rounds_of_syncs_and_no_sync_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, rounds = machine_with_input(), Rounds()
    store, own = open_store(tmp_path, machine), list[str]()
    monkeypatch.setattr(OsFile, "datasync", lambda self: own.append(self.path))
    asyncio.run(store.make(1, rounds))
    *marks, first, second = rounds.rounds
    assert marks == [set(), {".marks.tmp"}, {"sessions"}], "once, for all inputs"
    assert first == {"session.json.tmp", "topic.json.tmp", "sessions", "s"}
    assert second == {"s", "t-0"}
    assert len(own) == sum(map(len, rounds.rounds)), "synced in the rounds only"
    assert store.log(1).end(0) == (0, 0)
    own.clear()
    asyncio.run(store.make(1, rounds))
    assert (len(rounds.rounds), own) == (5, [])


def test_an_absent_input_costs_no_file(tmp_path: Path) -> None:
    machine = machine_with_input()
    store, entry = open_store(tmp_path, machine), machine.state.sessions.inputs[1]
    store.set_gaps_aside()
    assert store.durable(entry) == store.written(entry) == store.held(entry) == entry.place
    assert not list((tmp_path / "sessions").iterdir())
    write_files(store, 0)
    assert store.written(entry) > entry.place


def test_an_input_is_made_once_and_not_opened_meanwhile(tmp_path: Path) -> None:
    machine, rounds = machine_with_input(), Rounds()
    store, entry = open_store(tmp_path, machine), machine.state.sessions.inputs[1]

    async def main() -> None:
        rounds.gate.clear()
        makers = [asyncio.create_task(store.make(1, rounds)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(BeingMade):
            store.log(1)
        assert store.written(entry) == entry.place
        makers.pop().cancel()
        rounds.gate.set()
        await asyncio.gather(*makers)

    asyncio.run(main())
    assert rounds.rounds[-2:] == [
        {"s", "session.json.tmp", "sessions", "topic.json.tmp"},
        {"s", "t-0"},
    ]
    assert len(rounds.rounds) == 5, "three of them for the marks"
    assert store.log(1).topic_id == "a" * 32


def test_bytes_of_an_input_that_is_made_again_are_vouched_for(
    tmp_path: Path,
) -> None:
    """A publisher asks for the input before the restarted node has looked at it."""
    machine, told = machine_with_input(), list[int]()
    before = open_store(tmp_path, machine)
    size = write_files(before, 0)
    ends = before.ends([1])
    for file in before.take_dirty([1])[0]:
        file.datasync()
    before.mark_durable(ends)
    asyncio.run(before.marks.save(Rounds()))
    before.close()
    events: Any = SimpleNamespace(session_log_unsynced=told.append)
    store = SessionStore(OsFileSystem(), str(tmp_path / "sessions"), machine, events)
    rounds, entry = SteppedRounds(), machine.state.sessions.inputs[1]

    async def main() -> None:
        maker = asyncio.create_task(store.make(1, rounds))
        await rounds.begun.get()
        assert store.durable(entry) == entry.place, "it is being made"
        for _ in range(9):
            rounds.turns.release()
        await maker

    asyncio.run(main())
    assert store.durable(entry).byte == size
    assert not store.log(1).dirty()
    assert told == [1]
    store.close()


@pytest.mark.parametrize("rounds_before", [0, 1])
@pytest.mark.parametrize("is_gone", [False, True])
def test_an_input_whose_session_is_forgotten_while_it_is_made_fails_nothing(
    tmp_path: Path, *, rounds_before: int, is_gone: bool
) -> None:
    """A stage was dropped, or a snapshot came, while the disk was slow."""
    machine, rounds = machine_with_input(), SteppedRounds()
    store, entry = open_store(tmp_path, machine), machine.state.sessions.inputs[1]

    async def main() -> None:
        await store.marks.begin(Rounds())
        maker = asyncio.create_task(store.make(1, rounds))
        for _ in range(rounds_before):
            rounds.turns.release()
        for _ in range(rounds_before + 1):
            await rounds.begun.get()
        store.forget_deleted()
        if is_gone:
            del machine.state.sessions.inputs[entry.number], machine.state.sessions.by_name["s"]
        store.forget_session("s")
        rounds.turns.release()
        rounds.turns.release()
        await maker

    asyncio.run(main())
    assert (tmp_path / "sessions" / "s").exists() is not is_gone
    if not is_gone:
        assert write_files(store, 0) == store.log(1).end(0)[1]


def test_a_loss_of_power_leaves_no_file_of_a_new_input_without_its_contents() -> None:
    machine = machine_with_input()
    is_made, effects = False, 0
    while not is_made:
        effects += 1
        for seed in range(20):
            disk, process = Disk(f"made {effects} {seed}"), Process("n", "n")
            store = SessionStore(cast(Any, SimFileSystem(disk, process)), "/s", machine, Untold())
            process.fuse = effects
            with suppress(ProcessDied):
                asyncio.run(store.make(1, Rounds()))
            is_made, process.is_alive = process.fuse is not None, False
            disk.lose_power()
            again = SimFileSystem(disk, Process("n", "n"))
            if is_made:
                assert read_topic_id(cast(Any, again), "/s/s/t-0") == "a" * 32
            store = SessionStore(cast(Any, again), "/s", machine, Untold())
            assert store.log(1).end(0) == (0, 0)
            assert not store.damaged
            assert not [path for path, _ in disk.files() if "quarantined" in path]


def test_bytes_behind_a_gap_are_set_aside_and_taken_anew(tmp_path: Path) -> None:
    """The names of the first files were lost, those of later ones were not."""
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    write_files(store, 3)
    store.close()
    directory = tmp_path / "sessions" / "s" / "t-0"
    for name in [file for file in directory.iterdir() if ".0.0" in file.name]:
        name.unlink()
    again = open_store(tmp_path, machine)
    again.set_gaps_aside()
    assert again.durable(machine.state.sessions.inputs[1]) == SessionPosition(0, 0, 0)
    assert again.log(1).end(0) == (0, 0)
    kept = sorted(file.name for file in directory.glob("*.quarantined-1"))
    assert kept == [f"log.0.{roll}.quarantined-1" for roll in (1, 2, 3)]
    ends = again.ends([1])
    write_files(again, 1)
    assert again.log(1).end(0)[0] == 1
    again.mark_durable(ends)
    assert again.durable(machine.state.sessions.inputs[1]) == SessionPosition(0, 0, 0)


def test_a_sync_under_way_says_nothing_of_what_was_begun_anew(tmp_path: Path) -> None:
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    write_files(store, 3)
    store.log(1).release(0, 0)
    ends = store.ends([1])
    store.set_gaps_aside()
    write_files(store, 4)
    store.mark_durable(ends)
    assert store.durable(machine.state.sessions.inputs[1]) == SessionPosition(0, 0, 0)


def test_released_files_are_no_gap(tmp_path: Path) -> None:
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    write_files(store, 3)
    store.log(1).release(0, 1)
    entry = machine.state.sessions.inputs[1]
    entry.run, entry.roll, entry.byte = 0, 2, 0
    store.set_gaps_aside()
    assert store.log(1).start(0) == (2, 0)
    assert store.log(1).end(0)[0] == 3


def test_a_gap_is_found_though_its_session_was_being_made_when_gaps_were_looked_for(
    tmp_path: Path,
) -> None:
    """A publisher opened another input of the session while the node came up."""
    machine, rounds = machine_with_input(), Rounds()
    machine.apply(CreateTopicCommand("d" * 32, "u", 1, {}, 0))
    machine.apply(OpenInputCommand("s", "d" * 32, 0))
    store = open_store(tmp_path, machine)
    write_files(store, 3)
    store.close()
    directory = tmp_path / "sessions" / "s" / "t-0"
    for name in [file for file in directory.iterdir() if ".0.0" in file.name]:
        name.unlink()
    again = open_store(tmp_path, machine)

    async def main() -> None:
        rounds.gate.clear()
        maker = asyncio.create_task(again.make(2, rounds))
        await asyncio.sleep(0)
        again.set_gaps_aside()
        rounds.gate.set()
        await maker

    asyncio.run(main())
    assert again.durable(machine.state.sessions.inputs[1]) == SessionPosition(0, 0, 0)
    assert again.log(1).end(0) == (0, 0)
    assert again.log(2).end(0) == (0, 0)


def test_what_was_asked_for_while_an_input_was_made_is_stated_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was asked how much of an ended run it holds named the merged position, and kept
    silent about the other bytes.
    """
    machine, rounds, unsynced = machine_with_input(), Rounds(), list[int]()
    machine.apply(CreateTopicCommand("d" * 32, "u", 2, {}, 0))
    for index in range(2):
        machine.apply(OpenInputCommand("s", "d" * 32, index))
    store = open_store(tmp_path, machine)
    write_files(store, 0)
    store.close()
    again = open_store(tmp_path, machine)
    entries = machine.state.sessions.inputs
    monkeypatch.setattr(again._events, "session_log_unsynced", unsynced.append, raising=False)

    async def main() -> None:
        rounds.gate.clear()
        maker = asyncio.create_task(again.make(2, rounds))
        await asyncio.sleep(0)
        assert again.written(entries[1]) == entries[1].place
        assert again.written(entries[3]) == entries[3].place
        rounds.gate.set()
        await maker

    asyncio.run(main())
    assert set(unsynced) == {1}, "the third one has no files"
    assert again.written(entries[1]) > entries[1].place
    unsynced.clear()
    asyncio.run(again.make(3, Rounds()))
    assert unsynced == []


def test_no_other_session_goes_with_a_session_that_is_forgotten(tmp_path: Path) -> None:
    """Names of sessions may end in any suffix."""
    machine = machine_with_input()
    run = "samelog://publisher/p", 0, "e" * 32, None, None
    machine.apply(OpenRunCommand("s.removed", "f" * 32, *run))
    machine.apply(OpenInputCommand("s.removed", "a" * 32, 0))
    store = open_store(tmp_path, machine)
    size = write_files(store, 0)
    held = store.log(2)
    held.append(0, 0, 0, store.log(1).read(0, 0, 0, size))
    store.close()
    again = open_store(tmp_path, machine)
    again.forget_deleted()
    del machine.state.sessions.by_name["s"]
    again.forget_session("s")
    assert not (tmp_path / "sessions" / "s").exists()
    assert again.log(2).end(0) == (0, size)


def test_a_stray_file_among_the_sessions_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path, machine_with_input())
    size = write_files(store, 0)
    (tmp_path / "sessions" / "a-note").write_text("see the wiki")
    store.forget_deleted()
    assert (tmp_path / "sessions" / "a-note").read_text() == "see the wiki"
    assert "a-note" in caplog.text
    assert store.log(1).end(0) == (0, size)


def test_marks_do_not_vouch_for_bytes_that_are_not_durable() -> None:
    """Else what a loss of power takes would count as damage."""
    machine = machine_with_input()
    for seed in range(20):
        disk = Disk(f"unsynced {seed}")
        fs = cast(Any, SimFileSystem(disk, Process("n", "n")))
        store = SessionStore(fs, "/sessions", machine, Untold())
        asyncio.run(store.make(1, Rounds()))
        size = write_files(store, 0)
        for file in store.take_dirty([1])[0]:
            file.datasync()
        store.mark_durable(store.ends([1]))
        store.log(1).append(0, 0, size, store.log(1).read(0, 0, 0, size))
        asyncio.run(store.marks.save(Rounds()))
        disk.lose_power()
        again = SessionStore(fs, "/sessions", machine, Untold())
        assert again.log(1).durable(0) == (0, size)
        assert not again.damaged
        assert not again.log(1).damaged


def test_marks_of_many_inputs_are_one_write_and_one_sync(tmp_path: Path) -> None:
    machine, rounds = machine_with_input(), Rounds()
    for number in range(2, 101):
        run = (f"s{number}", "b" * 32, "samelog://publisher/p", 0, "c" * 32, None, None)
        machine.apply(OpenRunCommand(*run))
        machine.apply(OpenInputCommand(f"s{number}", "a" * 32, 0))
    store = open_store(tmp_path, machine)
    data = kernels.build_batches(
        [b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20
    )
    for number in machine.state.sessions.inputs:
        store.log(number).append(0, 0, 0, data)
    for file in store.take_dirty(machine.state.sessions.inputs)[0]:
        file.datasync()
    store.mark_durable(store.ends(machine.state.sessions.inputs))
    asyncio.run(store.marks.save(rounds))
    assert rounds.rounds == [{".marks"}]
    assert not store.marks.is_busy
    again = open_store(tmp_path, machine)
    assert {again.log(number).durable(0) for number in machine.state.sessions.inputs} == {
        (0, len(data))
    }


@pytest.mark.parametrize("is_closing", [False, True])
@pytest.mark.parametrize("is_recreated", [False, True])
def test_marks_of_a_deleted_topic_are_dropped(
    tmp_path: Path, is_closing: bool, is_recreated: bool
) -> None:
    """A later topic of the same name does not get them either."""
    machine = machine_with_input()
    store, state = open_store(tmp_path, machine), machine.state
    size = write_files(store, 0)
    for file in store.take_dirty([1])[0]:
        file.datasync()
    store.mark_durable(store.ends([1]))
    partition = state.partitions.by_number.pop(state.sessions.inputs[1].partition)
    later = msgspec.structs.replace(partition, topic_id="d" * 32)
    if is_recreated:
        state.partitions.by_number[partition.number] = later
    if is_closing:
        store.close()
    else:
        asyncio.run(store.marks.save(Rounds()))
        assert not store.marks.is_busy
    for known in (partition, later):
        state.partitions.by_number[partition.number] = known
        assert open_store(tmp_path, machine).marks.of(state.sessions.inputs[1]) == (), size


def test_unreadable_names_of_owners_are_begun_anew(tmp_path: Path) -> None:
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    size = write_files(store, 0)
    store.close()
    session = tmp_path / "sessions" / "s"
    (session / "session.json").write_bytes(b"garbage")
    again = open_store(tmp_path, machine)
    assert again.log(1).end(0) == (0, size)
    assert (session / "session.json.quarantined-1").exists()
    again.close()
    (session / "t-0" / "topic.json").write_bytes(b"garbage")
    third = open_store(tmp_path, machine)
    assert third.log(1).end(0) == (0, 0)
    assert (session / "quarantine" / "t-0.quarantined-1").exists()


@pytest.mark.parametrize("lost_power", [False, True])
def test_damage_above_the_mark_counts_unless_the_power_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost_power: bool
) -> None:
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    size = write_files(store, 2)
    store.log(1).close()  # killed: nothing was marked
    file = tmp_path / "sessions" / "s" / "t-0" / "log.0.1"
    spoilt = bytearray(file.read_bytes())
    spoilt[-1] ^= 1
    file.write_bytes(spoilt)
    again = SessionStore(
        OsFileSystem(), str(tmp_path / "sessions"), machine, Untold(), lost_power=lost_power
    )
    assert (again.log(1).end(0), again.damaged) == ((1, 0), set() if lost_power else {1})
    assert file.with_name("log.0.1.from-0.quarantined-1").read_bytes() == spoilt
    assert len(file.with_name("log.0.2.quarantined-1").read_bytes()) == size
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    again.close()


def test_a_loss_of_power_during_a_release_leaves_no_hole() -> None:
    machine = machine_with_input()
    for seed in range(40):
        disk = Disk(f"release {seed}")
        fs = cast(Any, SimFileSystem(disk, Process("n", "n")))
        store = SessionStore(fs, "/sessions", machine, Untold())
        size = write_files(store, 5)
        store.log(1).settle()
        for directory in ("/sessions/s", "/sessions/s/t-0"):
            fs.sync_directory(directory)
        store.log(1).release(0, 3)
        disk.lose_power()
        again = SessionStore(fs, "/sessions", machine, Untold())
        assert again.log(1).end(0) == (5, size)


def test_a_sync_makes_all_runs_durable_whichever_one_an_input_is_in(tmp_path: Path) -> None:
    """The node was just started, and has not applied yet that the next run was opened."""
    machine = machine_with_input()
    store = open_store(tmp_path, machine)
    size = write_files(store, 0)
    store.log(1).append(1, 0, 0, store.log(1).read(0, 0, 0, size))
    store.mark_durable(store.ends([1]))
    machine.state.sessions.inputs[1].run = 1
    assert store.durable(machine.state.sessions.inputs[1]) == SessionPosition(1, 0, size)


def batch_of(number: int, size: int = 100) -> bytes:
    value = number.to_bytes(4, "big") + bytes(size)
    return kernels.build_batches(
        [value], timestamps=number, batch_bytes=1 << 14, max_record_bytes=1 << 20
    )


def store_with_memory(path: Path, memory: TailMemory) -> SessionStore:
    machine = machine_with_input()
    return SessionStore(OsFileSystem(), str(path / "sessions"), machine, Untold(), memory)


def compare_with_files(log: InputLog) -> None:
    """What is read is what the files have."""
    for file in log.files():
        for start in (0, 1, file.size // 2):
            found = log.read(file.run, file.roll, start, file.size)
            for from_file in (False, True):
                copied = log.copy(file.run, file.roll, start, file.size, from_file=from_file)
                assert copied == found


@given(st.integers(0, 1 << 32))
@settings(max_examples=12, deadline=None)
def test_unmerged_bytes_are_read_as_they_were_written_whatever_was_done(seed: int) -> None:
    source = random.Random(seed)
    memory = TailMemory(source.choice([3000, 40_000]), copies_large=source.random() < 0.5)
    with TemporaryDirectory() as directory:
        log = store_with_memory(Path(directory), memory).log(1)
        for number in range(40):
            roll, byte = log.end(0)
            match source.choice("aaaaasrgx"):
                case "a":
                    log.append(0, roll, byte, batch_of(number, source.choice([10, 900])))
                case "s":
                    log.seal(0, roll, byte)
                case "r":
                    log.release(0, roll - 1)
                case "g":
                    log.start_at(0, roll + 1, 0)
                case "x":
                    log.set_run_aside(0)
            compare_with_files(log)
            assert memory.held_bytes <= memory.limit_bytes
        log.close()
        assert memory.held_bytes <= 3 * PIECE_COST_BYTES * 40


def test_bytes_stay_in_memory_until_a_majority_has_merged_them(tmp_path: Path) -> None:
    memory = TailMemory(1 << 20)
    store = store_with_memory(tmp_path, memory)
    size = write_files(store, 3)
    place = SessionPosition(0, 3, 0)
    assert store.read(1, SessionPosition(0, 0, 0), size) != b""
    assert memory.reads == 1
    held = memory.held_bytes
    store.release(1, place, is_over=False)
    assert memory.held_bytes == held - 3 * size
    assert store.read(1, place, size) != b""
    assert memory.reads == 2
    store.close()


def test_a_mismatch_is_read_again_from_the_file(tmp_path: Path) -> None:
    memory = TailMemory(1 << 20)
    store = store_with_memory(tmp_path, memory)
    data = batch_of(1)
    store.log(1).append(0, 0, 0, data)
    part = Range(1, 0, 0, 0, len(data), 1, len(data), kernels.scan(data).digest)
    assert read_agreed(store, part) == bytearray(data)
    assert memory.reads == 1
    recent = store.log(1).recent
    assert recent is not None
    recent.wrote(0, 0, 0, batch_of(2))
    assert store.read_range(part) == bytearray(batch_of(2))
    assert read_agreed(store, part) == bytearray(data)
    store.close()
