"""Planning what was received, and taking entries with their bytes only: the parts that decide."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from samelog.consensus import Entry, HardState, Raft, RaftConfig
from samelog.format import _kernels as kernels
from samelog.format.positions import SessionPosition
from samelog.placement.values import PartitionPass, PassStage, PlacedPartition
from samelog.sequencer.group_replica import GroupReplica
from samelog.sequencer.merge.checked_ranges import CheckedRanges
from samelog.sequencer.merge.drafts import PlannerLimits
from samelog.sequencer.merge.in_flight import InFlight, MemberFlight
from samelog.sequencer.merge.session_store import SessionStore
from samelog.sequencer.raft.coordinator import Coordinator
from samelog.sequencer.raft.direct import LEAST_LATE_S, MOST_LATE_S, DirectInputs, QuietInputs
from samelog.sequencer.raft.entry_bytes import EntryBytes
from samelog.sequencer.state.commands import encode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.sessions import Input
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.os_file import OsFile
from tests.sequencer.test_session_store import machine_with_input, open_store

START, END = SessionPosition(0, 0, 0), SessionPosition(0, 0, 100)
BATCH = kernels.build_batches([b"v"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20)
OTHER = kernels.build_batches([b"w"], timestamps=1, batch_bytes=1 << 14, max_record_bytes=1 << 20)


# --- which inputs are planned when received -------------------------------------------------------


def test_an_input_is_direct_once_a_majority_has_shown_it() -> None:
    direct = DirectInputs()
    assert 1 not in direct.open
    direct.shown(1, now=0.0)
    assert 1 in direct.open
    direct.clear()
    assert 1 not in direct.open


def test_an_input_whose_bytes_come_late_goes_back_to_reports_for_longer_and_longer() -> None:
    direct, now = DirectInputs(), 0.0
    for pause_s in (2.0, 4.0, 8.0):
        direct.shown(1, now)
        direct.named(1, END, now)
        direct.told(1, START, START, now + LEAST_LATE_S / 2)  # it may still come
        assert 1 in direct.open
        now += 2 * LEAST_LATE_S
        direct.told(1, END, START, now)  # this one has it
        direct.told(1, START, END, now)  # that one has not, but enough others had
        assert 1 in direct.open
        direct.told(1, START, START, now)
        assert 1 not in direct.open
        direct.shown(1, now + pause_s - 0.1)
        assert 1 not in direct.open
        now += pause_s
    direct.shown(1, now)
    assert 1 in direct.open


def test_reports_wait_only_of_what_is_named_without_them() -> None:
    quiet = QuietInputs()
    part = _range(BATCH, stop=100)
    quiet.told({1: END})
    quiet.named([part])
    assert not quiet.numbers  # the leader had been told
    quiet.clear()
    quiet.named([part])
    assert quiet.numbers == {1}
    further = {1: SessionPosition(0, 0, 200)}
    assert quiet.look(further) == set()  # an entry may be on its way
    assert quiet.numbers == {1}
    assert quiet.look(further) == {1}
    assert not quiet.numbers


def test_what_comes_later_of_an_input_that_was_named_is_looked_up_again() -> None:
    quiet, further = QuietInputs(), {1: SessionPosition(0, 0, 200)}
    quiet.named([_range(BATCH, stop=100)])
    assert quiet.look({1: END}) == quiet.look({1: END}) == set()
    quiet.stated([1])
    assert quiet.look(further) == set()
    assert quiet.look(further) == {1}


def test_a_look_at_quiet_inputs_follows_what_has_moved() -> None:
    class Places(dict[int, SessionPosition]):
        asked = 0

        def get(self, number: int, default: Any = None) -> Any:
            self.asked += 1
            return super().get(number, default)

    quiet, part = QuietInputs(), _range(BATCH)
    for number in range(10_000):
        quiet.named([replace(part, input=number)])
    places = Places(dict.fromkeys(range(10_000), SessionPosition(0, 0, len(BATCH))))
    assert quiet.look(places) == set()
    places.asked = 0
    quiet.stated([7])
    assert quiet.look(places) == quiet.look(places) == set()
    assert places.asked == 1
    assert len(quiet.numbers) == 10_000


def test_lateness_follows_the_usual_round() -> None:
    rounds_s: list[float] = []
    direct = DirectInputs(rounds_s)
    assert direct.late_s == LEAST_LATE_S
    rounds_s += [0.02, 0.02, 5.0]
    assert direct.late_s == pytest.approx(0.16)
    direct.shown(1, 0.0)
    direct.named(1, END, 0.0)
    direct.told(1, START, START, 0.15)
    assert 1 in direct.open
    direct.told(1, START, START, 0.17)
    assert 1 not in direct.open
    rounds_s += [5.0, 5.0]
    assert direct.late_s == MOST_LATE_S


# --- the leader -----------------------------------------------------------------------------------


class Leader:
    """A coordinator that leads, with one input of which more is here than was reported."""

    def __init__(self, *, voters: int = 3) -> None:
        self.machine = machine_with_input()
        self.asked: list[tuple[str, list[int]]] = []
        self.proposed: list[Any] = []
        self.planned: list[dict[int, SessionPosition]] = []
        numbers = list(range(voters))
        raft = SimpleNamespace(
            voters=numbers, peers=numbers[1:], leadership=object(), term=1, commit=0
        )
        group: Any = SimpleNamespace(
            is_leader=True,
            raft=raft,
            entry_bytes=SimpleNamespace(sync_always=True),
            applied_index=0,
            propose=self._propose,
            rounds_s=(),
        )
        planner: Any = SimpleNamespace(
            in_flight=InFlight(PlannerLimits(), MemberFlight()),
            place=lambda entry: START,
            plan=self._plan,
            closing=lambda name: None,
            owes_markers=False,
            forgotten=set(),
            cluster=self.machine,
        )
        sessions: Any = SimpleNamespace(written=lambda entry: END)
        self.now = 1.0
        clock: Any = SimpleNamespace(now=lambda: self.now, wall_ms=lambda: 0)
        self.coordinator = Coordinator(
            0,
            machine=self.machine,
            planner=planner,
            sessions=sessions,
            group=group,
            clock=clock,
            is_there=lambda node: node != 2,
            events=SimpleNamespace(ends_wanted=self._ask),
        )
        self._no_turns()

    def _no_turns(self) -> None:
        self.coordinator._scheduled = True  # they are taken here

    def turn(self) -> None:
        self.coordinator._turn()
        self._no_turns()

    def _ask(self, session: str, run_id: str, ends: object, nodes: list[int]) -> None:
        self.asked.append((session, nodes))

    def _propose(self, commands: Any) -> int:
        self.proposed += commands
        return len(self.proposed)

    def _plan(self, available: dict[int, SessionPosition], *_: object, **__: object) -> list[Any]:
        self.planned.append(dict(available))
        return []

    def available(self) -> dict[int, SessionPosition]:
        self.coordinator._plan_once()
        return self.planned[-1] if self.planned else {}


HALF = SessionPosition(0, 0, 50)


def test_what_a_majority_has_shown_is_planned_when_received() -> None:
    leader = Leader()
    assert not leader.coordinator.received(1)
    leader.coordinator.positions(0, 0, {1: HALF})
    assert leader.available() == {}
    leader.coordinator.positions(1, 0, {1: HALF})
    assert leader.available() == {1: END}
    assert leader.coordinator.received(1)


def test_where_there_is_no_other_reports_decide() -> None:
    leader = Leader(voters=1)
    leader.coordinator.positions(0, 0, {1: HALF})
    leader.coordinator.positions(1, 0, {1: HALF})
    assert leader.available() == {1: HALF}
    assert not leader.coordinator.received(1)


def test_a_run_is_closed_after_all_who_can_be_reached_were_asked() -> None:
    leader = Leader()
    leader.coordinator.run_ended("s", "c" * 32, {})
    leader.turn()
    assert leader.asked == [("s", [1])]  # 2 is away
    assert not leader.proposed
    leader.coordinator.positions(1, 0, {})
    leader.turn()
    assert len(leader.proposed) == 1


# --- the bytes of an entry ------------------------------------------------------------------------


def _range(data: bytes, stop: int | None = None) -> Range:
    scan = kernels.scan(data, max_batch_bytes=1 << 20)
    return Range(1, 0, 0, 0, stop or len(data), scan.records, len(data), scan.digest)


def _entry(data: bytes) -> Entry:
    merge = Merge(1, 0, 1, 1, False, [_range(data)])
    return Entry(1, 1, encode_commands([merge]))


class Holder:
    """What a follower says of entries, with what it has of one input."""

    def __init__(self, path: Path) -> None:
        self.machine: StateMachine = machine_with_input()
        self.store: SessionStore = open_store(path, self.machine)
        self.named: list[Range] = []
        raft = Raft(
            0,
            (0, 1, 2),
            config=RaftConfig(),
            random=SimpleNamespace(random=lambda: 0.5, getrandbits=lambda bits: 1),  # type: ignore[arg-type]
            now=0.0,
            snapshot=None,
            entries=[],
            hard_state=HardState(0, None, 0),
        )
        syncer: Any = None
        self.bytes = EntryBytes(
            raft,
            self.machine,
            self.store,
            sync_always=True,
            syncer=syncer,
            on_named=self.named.extend,
        )

    @property
    def input(self) -> Input:
        return self.machine.state.sessions.inputs[1]


def test_an_entry_is_backed_when_its_bytes_are_here(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    assert not holder.bytes.is_backed(entry)
    assert holder.bytes.lacking(entry) == {1: SessionPosition(0, 0, len(BATCH))}
    holder.store.log(1).append(0, 0, 0, BATCH)
    assert holder.bytes.is_backed(entry)
    assert [part.input for part in holder.named] == [1]
    assert holder.bytes._not_durable([entry]) == {1}
    holder.store.mark_durable(holder.store.ends([1]))
    assert holder.bytes._not_durable([entry]) == set()


def _entry_of_parts(count: int) -> Entry:
    """An entry that names so many batches, each in a range of its own."""
    scan = kernels.scan(BATCH, max_batch_bytes=1 << 20)
    ranges = [
        Range(1, 0, 0, at, at + len(BATCH), scan.records, len(BATCH), scan.digest)
        for at in range(0, count * len(BATCH), len(BATCH))
    ]
    return Entry(1, 1, encode_commands([Merge(1, 0, 1, 1, False, ranges)]))


def test_each_range_of_a_held_entry_is_digested_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, entry, read = Holder(tmp_path), _entry_of_parts(10), list[Range]()
    read_range = SessionStore.read_range

    def count(store: SessionStore, part: Range, *, from_file: bool = False) -> bytearray | None:
        read.append(part)
        return read_range(store, part, from_file=from_file)

    monkeypatch.setattr(SessionStore, "read_range", count)
    for number in range(10):
        assert not holder.bytes.is_backed(entry)
        holder.store.log(1).append(0, 0, number * len(BATCH), BATCH)
    assert holder.bytes.is_backed(entry)
    assert len(read) == len(set(read)) == 10
    assert not holder.bytes._agreed


def test_bytes_of_other_inputs_do_not_back_a_held_entry(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    assert holder.bytes.may_back(entry, 2), "the entry was not checked yet"
    assert not holder.bytes.is_backed(entry)
    assert holder.bytes.may_back(entry, 1)
    assert not holder.bytes.may_back(entry, 2)
    assert holder.bytes.may_back(_entry(BATCH), 2), "another entry"
    holder.store.log(1).append(0, 0, 0, BATCH)
    assert holder.bytes.is_backed(entry)
    assert holder.bytes.may_back(entry, 2), "nothing is lacking"


def test_bytes_that_were_given_up_back_nothing(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry_of_parts(2)
    held = holder.store.log(1)
    held.append(0, 0, 0, BATCH)
    assert not holder.bytes.is_backed(entry)
    held.set_run_aside(0)
    held.append(0, 0, 0, OTHER)
    held.append(0, 0, len(OTHER), BATCH)
    assert not holder.bytes.is_backed(entry)


def test_an_entry_that_is_applied_checks_the_held_one_again() -> None:
    """It may have opened the input whose bytes are named, or closed it."""
    replica, looked = object.__new__(GroupReplica), list[float]()
    raft: Any = SimpleNamespace(backing=SimpleNamespace(held=object()), bytes_came=looked.append)
    coordinator = SimpleNamespace(applied=lambda *_: None)
    parts: Any = SimpleNamespace(coordinator=coordinator, group=SimpleNamespace(raft=raft))
    given = SimpleNamespace(clock=SimpleNamespace(now=lambda: 7.0))
    replica.raft, replica._site = parts, cast(Any, SimpleNamespace(given=given))
    replica.entry_applied(1, [], rejected=False)
    assert looked == [7.0]


def test_other_bytes_at_the_same_place_do_not_back_an_entry(tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    holder.store.log(1).append(0, 0, 0, OTHER)
    assert not holder.bytes.is_backed(_entry(BATCH))


def test_bytes_that_back_an_entry_are_at_hand_once_and_for_its_digest_only(tmp_path: Path) -> None:
    holder, part = Holder(tmp_path), _range(BATCH)
    holder.store.log(1).append(0, 0, 0, BATCH)
    assert holder.store.checked.take(part) is None
    assert holder.bytes.is_backed(_entry(BATCH))
    assert holder.store.checked.take(_range(OTHER)) is None
    assert holder.store.checked.take(part) == bytearray(BATCH)
    assert holder.store.checked.take(part) is None  # who took them may have changed them


def test_other_bytes_are_never_at_hand(tmp_path: Path) -> None:
    holder, part = Holder(tmp_path), _range(BATCH)
    holder.store.log(1).append(0, 0, 0, OTHER)
    assert not holder.bytes.is_backed(_entry(BATCH))
    assert holder.store.checked.take(part) is None


def test_what_was_checked_first_is_kept_no_longer_than_there_is_room() -> None:
    ranges = CheckedRanges(limit_bytes=2 * len(BATCH))
    first, second, third = (
        Range(number, 0, 0, 0, len(BATCH), 1, len(BATCH), 7) for number in range(3)
    )
    for part in (first, second, first, third):
        ranges.keep(part, bytearray(BATCH))
    assert ranges.take(second) is None
    assert ranges.take(first) == ranges.take(third) == bytearray(BATCH)
    ranges.keep(second, bytearray(3 * len(BATCH)))
    assert ranges.take(second) is None


def test_what_will_be_rejected_needs_no_bytes(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    holder.input.run = 1
    assert holder.bytes.is_backed(entry)
    del holder.machine.state.sessions.inputs[1]
    assert holder.bytes.is_backed(entry)


def test_what_has_left_the_group_needs_no_bytes(tmp_path: Path) -> None:
    """It may have been planned before the leader learnt that, and nobody takes the bytes any more:
    the entry, and all behind it, would be waited for in vain. So it is after a restart.
    """
    holder, entry = Holder(tmp_path), _entry(BATCH)
    transfers, number = holder.machine.state.transfers, holder.input.partition
    for stage in PassStage:
        transfers.passing = PartitionPass(1, number, stage)
        is_sealed = stage is PassStage.SEALED
        assert holder.bytes.is_backed(entry) is holder.bytes.is_kept(entry) is is_sealed
    transfers.passing = PartitionPass(1, number + 1, PassStage.SEALED)
    assert not holder.bytes.is_backed(entry)
    holder.machine.state.placement.partitions[number] = PlacedPartition(number, "t", 0, 1)
    assert holder.bytes.is_backed(entry)
    assert holder.bytes.is_kept(entry)


def test_what_is_not_opened_here_yet_is_waited_for(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    del holder.machine.state.sessions.inputs[1]
    holder.machine.state.sessions.next_input = 1
    assert not holder.bytes.is_backed(entry)


def test_damage_is_no_reason_to_cut_an_entry(tmp_path: Path) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    assert not holder.bytes.is_kept(entry)
    holder.store.damaged.add(1)
    assert holder.bytes.is_kept(entry)


def test_a_disk_that_cannot_be_looked_at_is_no_reason_to_cut_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    holder.store.log(1).append(0, 0, 0, BATCH)
    assert holder.bytes.is_kept(entry)

    def fail(*_: object) -> bytes:
        raise DiskFault("log", "read", errno.EIO)

    monkeypatch.setattr(OsFile, "pread", fail)
    with pytest.raises(DiskFault):
        holder.bytes.is_kept(entry)
    holder.store.opened.clear()
    monkeypatch.setattr(OsFileSystem, "sync_directory", fail)
    with pytest.raises(DiskFault):
        holder.bytes.is_kept(entry)


@pytest.mark.parametrize("byte", [11, 19, len(BATCH) - 1])
def test_bytes_that_rotted_unnoticed_are_no_reason_to_cut_an_entry(
    tmp_path: Path, byte: int
) -> None:
    holder, entry = Holder(tmp_path), _entry(BATCH)
    holder.store.log(1).append(0, 0, 0, BATCH)
    (file,) = tmp_path.rglob("log.0.0")
    spoilt = bytearray(file.read_bytes())
    spoilt[byte] ^= 1
    file.write_bytes(spoilt)
    assert holder.bytes.is_kept(entry)
    assert not holder.bytes.is_backed(entry)


def test_other_bytes_at_the_same_place_are_a_reason_to_cut_an_entry(tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    holder.store.log(1).append(0, 0, 0, OTHER)
    assert not holder.bytes.is_kept(_entry(BATCH))
