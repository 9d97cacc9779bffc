"""What a publisher may remove: decided from real directories and made-up progress."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from samelog.format.directory_files import CarriedFile, ShippingFile
from samelog.replicator.interfaces import InputName, RollByte
from samelog.replicator.push.local_session import LocalSession
from samelog.replicator.push.progress import LostRange, SessionProgress
from samelog.replicator.push.release import (
    Removal,
    find_lost,
    plan_removal,
    remove,
    waits_for_file,
)
from samelog.store.disk.disk_errors import DirectoryGone
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import write_json_file
from tests.replicator.session_files import FLIGHTS, SessionFiles, batch

OTHER = ("weather", 2)
ONE = len(batch(b"x"))


class Publisher:
    """A session with files, as its push client sees it."""

    def __init__(self, path: Path) -> None:
        self.files = SessionFiles(path / "s")
        self.session = LocalSession(OsFileSystem(), str(self.files.path), lambda: None)
        self.progress = SessionProgress()

    def write(self, name: InputName, rolls: int) -> RollByte:
        """`rolls` sealed files and one that is not, with a batch in each; where they end."""
        for _ in range(rolls):
            self.files.append(batch(b"x"), name)
            self.files.roll(name)
        return self.files.append(batch(b"x"), name)

    def merged(self, run: int, name: InputName, place: RollByte) -> None:
        """A majority has merged it."""
        self.progress.reached(run, name, (place, place, place))

    def removed(self) -> set[str]:
        """What may go, below the session's directory."""
        self.session.poll()
        for record in self.session.runs:
            for name in self.session.inputs_of(record.run):
                while self.session.tail(record.run, name).advance():
                    pass
        paths = plan_removal(self.session, self.progress).paths
        return {str(Path(path).relative_to(self.files.path)) for path in paths}

    def names(self, run: int, rolls: int, name: str = "flights-0") -> set[str]:
        """The first sealed files of a run."""
        return {
            f"{name}/log.{run}.{roll}{suffix}"
            for roll in range(rolls)
            for suffix in ("", f".sealed-{ONE}")
        }


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    """With one run, that has three sealed files and a growing one."""
    made = Publisher(tmp_path)
    made.files.begin()
    made.write(FLIGHTS, 3)
    return made


@pytest.mark.parametrize(
    ("merged", "rolls"),
    [((0, 0), 0), ((0, ONE - 1), 0), ((0, ONE), 0), ((1, 0), 1), ((2, 5), 2), ((3, ONE), 3)],
)
def test_sealed_files_go_up_to_what_is_merged(
    publisher: Publisher, merged: RollByte, rolls: int
) -> None:
    publisher.merged(0, FLIGHTS, merged)
    assert publisher.removed() == publisher.names(0, rolls)


def test_nothing_goes_from_a_directory_that_took_the_place_of_this_one(
    publisher: Publisher,
) -> None:
    """Its files have the same names, and their bytes are not merged."""
    publisher.merged(0, FLIGHTS, (3, ONE))
    assert publisher.removed()
    path = publisher.files.path
    shutil.copytree(path, path.with_name("copy"))
    path.rename(path.with_name("away"))
    path.with_name("copy").rename(path)
    assert not publisher.removed()
    assert "while it was in use" in str(publisher.session.fault)


@pytest.mark.parametrize("which", ["s", "s/flights-0"])
def test_what_takes_a_directorys_place_after_the_plan_was_made_loses_nothing(
    publisher: Publisher, which: str
) -> None:
    publisher.merged(0, FLIGHTS, (3, ONE))
    assert publisher.removed()
    removal = plan_removal(publisher.session, publisher.progress)
    path = publisher.files.path.parent / which
    shutil.copytree(path, path.with_name("copy"))
    path.rename(path.with_name("away"))
    path.with_name("copy").rename(path)
    with pytest.raises(DirectoryGone):
        asyncio.run(remove(OsFileSystem(), removal))
    assert all(Path(name).exists() for name in removal.paths)
    assert not plan_removal(publisher.session, publisher.progress).paths


class Unlooped(dict[InputName, Any]):
    """A table of inputs that must be looked up by name."""

    def _refuse(self, *_: object) -> NoReturn:
        raise AssertionError("a loop over all inputs")

    __iter__ = keys = values = items = _refuse


def wide(path: Path) -> Publisher:
    """With a run of many inputs, that have a sealed file each and a growing one."""
    made = Publisher(path)
    made.files.begin()
    for partition in range(20):
        made.write(("flights", partition), 1)
    made.session.poll()
    return made


def test_a_release_plans_for_the_inputs_that_moved_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher, looked = wide(tmp_path), list[str]()
    publisher.merged(0, ("flights", 3), (1, 0))
    publisher.merged(0, ("flights", 5), (1, 0))
    session, identity = publisher.session, OsFileSystem.identity

    def counted(self: OsFileSystem, path: str) -> tuple[int, int]:
        looked.append(Path(path).name)
        return identity(self, path)

    monkeypatch.setattr(OsFileSystem, "identity", counted)
    monkeypatch.setattr(session, "_inputs", Unlooped(session._inputs))
    removal = plan_removal(session, publisher.progress, {("flights", 3): None})
    assert {Path(path).parent.name for path in removal.paths} == {"flights-3"}
    assert looked == ["s", "flights-3"]


def test_an_end_of_a_run_is_noticed_without_a_loop_over_all_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for after each piece that is shipped."""
    session = wide(tmp_path).session
    name = "flights", 7
    session.tail(0, name)
    monkeypatch.setattr(session, "_inputs", Unlooped(session._inputs))
    assert not session.is_over(0)
    assert not session.has_unnoted_damage(0)
    assert session.to_ship(0, name) == [name], "as when its topic was deleted"
    session.tail(0, name).lose_start()
    assert session.is_over(0)
    assert session.has_unnoted_damage(0)


def test_a_merged_file_goes_once_there_is_a_newer_one(tmp_path: Path) -> None:
    """No position moves then."""
    publisher = Publisher(tmp_path)
    publisher.files.begin()
    publisher.write(FLIGHTS, 0)
    publisher.session.poll()
    assert not waits_for_file(publisher.session, publisher.progress, FLIGHTS)
    publisher.merged(0, FLIGHTS, (1, 0))
    assert waits_for_file(publisher.session, publisher.progress, FLIGHTS)
    publisher.files.roll(FLIGHTS)
    publisher.files.append(batch(b"x"), FLIGHTS)
    assert publisher.removed() == publisher.names(0, 1)
    assert not waits_for_file(publisher.session, publisher.progress, FLIGHTS)


def test_only_positions_that_have_moved_are_told() -> None:
    progress = SessionProgress()
    places = (0, 5), (0, 3), (0, 1)
    for name in FLIGHTS, OTHER:
        progress.reached(0, name, places)
    assert progress.moved == progress.inputs
    progress.moved, progress.merged_more = {}, {}
    progress.reached(0, FLIGHTS, places)
    progress.reached(0, OTHER, ((0, 9), (0, 3), (0, 1)))
    assert progress.moved == {OTHER: progress.inputs[OTHER]}
    assert not progress.merged_more
    progress.reached(0, FLIGHTS, ((0, 5), (0, 3), (0, 2)))
    assert progress.merged_more == {FLIGHTS: None}


def test_what_a_run_carried_stays_merged_when_an_earlier_run_is_gone(tmp_path: Path) -> None:
    """Run 2 carries bytes of runs 0 and 1; only run 1 is finished, because run 0 has others."""
    publisher = Publisher(tmp_path)
    for names in (FLIGHTS, OTHER), (FLIGHTS,), (OTHER,):
        publisher.files.begin()
        for name in names:
            publisher.write(name, 0)
    carried = tuple(CarriedFile(run, 0, 0, ONE) for run in (0, 1))
    shipping = ShippingFile(former=("gone",), begin=(2, 0, 0), carried=carried)
    publisher.session.poll()
    publisher.session.ship_differently(FLIGHTS, shipping)
    layout, end = publisher.session.layout(2, FLIGHTS), (1, ONE)
    publisher.progress.reached_as(2, FLIGHTS, (end, end, end), layout)
    publisher.progress.close_run(0, {OTHER: (0, ONE)}, {})
    publisher.progress.close_run(1, {}, {})
    assert publisher.removed() == {"flights-0/log.1.0", "run.1.json", "run-again.1.json"}
    publisher.progress.forget_run(1, publisher.session.carried())
    assert publisher.progress.merged_as(2, FLIGHTS, layout) == end


def test_what_is_only_acknowledged_stays(publisher: Publisher) -> None:
    publisher.progress.reached(0, FLIGHTS, ((3, ONE), (3, ONE), (0, 0)))
    publisher.progress.close_run(0, {FLIGHTS: (3, ONE)}, {})
    assert publisher.removed() == set()


def test_a_run_goes_when_all_its_inputs_are_merged_to_their_ends(publisher: Publisher) -> None:
    publisher.write(OTHER, 0)
    publisher.files.begin()
    publisher.merged(0, FLIGHTS, (3, ONE))
    publisher.merged(0, OTHER, (0, ONE - 1))
    publisher.progress.close_run(0, {FLIGHTS: (3, ONE), OTHER: (0, ONE)}, {})
    assert publisher.removed() == publisher.names(0, 3)
    publisher.merged(0, OTHER, (0, ONE))
    everything = publisher.names(0, 3) | {"flights-0/log.0.3", "weather-2/log.0.0", "run.0.json"}
    assert publisher.removed() >= everything
    assert not any("log.1" in name or "run.1" in name for name in publisher.removed())


def test_an_open_run_keeps_its_newest_file_and_its_record(publisher: Publisher) -> None:
    publisher.files.begin()
    publisher.merged(0, FLIGHTS, (3, ONE))
    assert publisher.removed() == publisher.names(0, 3)


def test_a_run_without_files_leaves_no_record_but_the_newest(publisher: Publisher) -> None:
    for _ in range(2):
        run = publisher.files.begin()
        publisher.progress.close_run(run, {}, {})
    assert publisher.removed() == {"run.1.json", "run-again.1.json"}


def test_what_was_never_merged_of_a_closed_run_stays(publisher: Publisher) -> None:
    publisher.session.poll()
    end = (1, ONE)
    publisher.merged(0, FLIGHTS, end)
    publisher.progress.close_run(0, {FLIGHTS: end}, {})
    lost = find_lost(publisher.session, 0, FLIGHTS, end)
    assert lost is not None
    assert (lost.start, lost.run) == (end, 0)
    publisher.progress.lose(lost)
    assert publisher.removed() == publisher.names(0, 1)


@pytest.mark.parametrize("end", [(3, ONE), (4, 0), (9, 9)])
def test_nothing_is_lost_of_a_run_that_was_closed_at_its_end_or_behind(
    publisher: Publisher, end: RollByte
) -> None:
    publisher.session.poll()
    assert find_lost(publisher.session, 0, FLIGHTS, end) is None


def test_empty_files_behind_the_end_are_not_lost(publisher: Publisher) -> None:
    publisher.files.roll(FLIGHTS)
    publisher.files.roll(FLIGHTS)
    publisher.session.poll()
    assert find_lost(publisher.session, 0, FLIGHTS, (3, ONE)) is None


def test_torn_bytes_behind_the_end_are_not_lost(publisher: Publisher) -> None:
    with publisher.files.file(3).open("ab") as file:
        file.write(batch(b"torn")[:-1])
    publisher.session.poll()
    assert find_lost(publisher.session, 0, FLIGHTS, (3, ONE)) is None
    lost = find_lost(publisher.session, 0, FLIGHTS, (0, 0))
    assert lost == LostRange(0, FLIGHTS, (0, 0), (3, ONE))


def test_the_files_of_a_deleted_topic_go_unmerged(publisher: Publisher) -> None:
    publisher.progress.let_go(0, FLIGHTS)
    assert publisher.removed() == publisher.names(0, 3)
    publisher.progress.close_run(0, {}, {})
    assert publisher.removed() >= publisher.names(0, 3) | {"flights-0/log.0.3"}


def test_removing_twice_does_no_harm(publisher: Publisher) -> None:
    publisher.session.poll()
    paths = (str(publisher.files.file(0)), str(publisher.files.file(77)))
    removal = Removal(paths, (), publisher.session.identities((FLIGHTS,)))
    for _ in range(2):
        asyncio.run(remove(OsFileSystem(), removal))
    assert not publisher.files.file(0).exists()
    assert publisher.files.file(1).exists()


def test_a_run_goes_though_no_file_is_left_of_what_it_carried(publisher: Publisher) -> None:
    """An earlier process removed the carried files, and ended before it removed the rest of the
    run: the next one waited without end for a position that no node reports any more.
    """
    publisher.progress.close_run(0, {FLIGHTS: (3, ONE)}, {})
    run = publisher.files.begin()
    publisher.write(OTHER, 0)
    publisher.files.begin()
    flights = publisher.files.path / "flights-0"
    for file in flights.glob("log.*"):
        file.unlink()
    carried = (CarriedFile(0, 0, 0, ONE),)
    shipping = ShippingFile(former=("f" * 32,), begin=(run, 0, 0), carried=carried)
    write_json_file(OsFileSystem(), str(flights / "shipping.json"), shipping)
    publisher.merged(run, OTHER, (0, ONE))
    publisher.progress.close_run(run, {FLIGHTS: (0, ONE), OTHER: (0, ONE)}, {})
    assert {"weather-2/log.1.0", "run.1.json"} <= publisher.removed()
