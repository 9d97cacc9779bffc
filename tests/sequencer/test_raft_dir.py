"""Raft's files in a directory of their own (rule raft.42)."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from samelog.config.schema.keys import KeyProblem
from samelog.config.tables.node import NodeConfig, NodePlaces
from samelog.sequencer.cluster.node_dir import (
    NodeDirectory,
    NodeDirectoryError,
    check_usable,
    read_record,
)
from samelog.sequencer.raft import raft_home
from samelog.sequencer.raft.raft_errors import RaftStoreError
from samelog.sequencer.raft.raft_home import raft_path
from samelog.sequencer.recovery import move_raft
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.cluster import plain_config

FS = OsFileSystem()


class Crash(Exception):
    """The process ends."""


def config_of(path: Path, *, raft: str | None = "raft-disk", data: str = "data") -> NodeConfig:
    """`raft`: None: Raft's files are in the data directory."""
    place = NodePlaces(raft_dir="" if raft is None else str(path / raft))
    return plain_config(path / data, place=place)


def begin(config: NodeConfig) -> NodeDirectory:
    return NodeDirectory.open(FS, config, bootstrap=True, wall_s=7, chance=random.Random())


def started(config: NodeConfig) -> None:
    """It has been there, and written something."""
    directory = begin(config)
    group = Path(raft_path(config), "0")
    group.mkdir(parents=True, exist_ok=True)
    (group / "snapshot.1").write_bytes(b"promises")
    Path(raft_path(config), "wal.1").write_bytes(b"more")
    directory.close()


def has_promises(config: NodeConfig) -> bool:
    group = Path(raft_path(config))
    whole = (group / "0" / "snapshot.1").read_bytes(), (group / "wal.1").read_bytes()
    return whole == (b"promises", b"more")


def refused(config: NodeConfig) -> str:
    """The same before anything is opened and at the start; nothing is changed."""
    with pytest.raises(RaftStoreError) as at_start:
        begin(config)
    with pytest.raises(RaftStoreError) as before:
        check_usable(FS, config)
    assert str(before.value) == str(at_start.value)
    return str(at_start.value)


def test_a_node_begins_again_with_the_files_that_it_had(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    started(config)
    assert not (tmp_path / "data" / "raft").exists()
    begin(config).close()
    assert has_promises(config)


def test_two_directories_do_not_share_one(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    running = begin(config)
    with pytest.raises(RaftStoreError, match=r"holds 'raft'|holds 'wal|another running node"):
        begin(config_of(tmp_path, data="other"))
    running.close()


def test_an_empty_directory_beside_an_old_one_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    started(config)
    (tmp_path / "raft-disk").rename(tmp_path / "unmounted")
    (tmp_path / "raft-disk").mkdir()
    assert "has no Raft files" in refused(config)
    assert list((tmp_path / "raft-disk").iterdir()) == []
    assert "has no Raft files" in refused(config_of(tmp_path, raft="nowhere"))
    (tmp_path / "raft-disk").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "raft-disk")
    begin(config).close()


def test_what_belongs_to_another_data_directory_is_refused(tmp_path: Path) -> None:
    config, other = config_of(tmp_path), config_of(tmp_path, raft="theirs", data="other")
    started(config)
    started(other)
    swapped = config_of(tmp_path, raft="theirs")
    assert str(tmp_path / "other") in refused(swapped)
    with pytest.raises(RaftStoreError, match=r"and .* is new"):
        begin(config_of(tmp_path, data="third"))


def test_files_elsewhere_and_files_here_are_not_mixed_up(tmp_path: Path) -> None:
    here, there = config_of(tmp_path, raft=None), config_of(tmp_path)
    started(here)
    assert "move-raft" in refused(there)
    move_raft(FS, there, wall_ms=1)
    assert "node.raft_dir is not set" in refused(here)
    begin(there).close()


def test_older_raft_files_count_for_nothing(tmp_path: Path) -> None:
    """The disk of Raft's files was put back, as it was in an earlier life."""
    config = config_of(tmp_path)
    started(config)
    life = (tmp_path / "raft-disk" / "raft.life").read_bytes()
    directory = begin(config)
    assert directory.record.may_vote
    directory.close()
    (tmp_path / "raft-disk" / "raft.life").write_bytes(life)
    directory = begin(config)
    assert directory.record.suspicion == "its raft_dir is older than its data directory"
    directory.close()
    directory = begin(config)
    assert not directory.record.may_vote, "until it is let in"
    assert directory.record.suspicions.times == 1
    directory.close()


def test_a_copy_of_raft_files_counts_for_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    started(config)
    shutil.copytree(tmp_path / "raft-disk", tmp_path / "backup")
    shutil.rmtree(tmp_path / "raft-disk")
    (tmp_path / "backup").rename(tmp_path / "raft-disk")
    elsewhere = config_of(tmp_path, raft=None)
    with pytest.raises(RaftStoreError, match="copy"):
        move_raft(FS, elsewhere, wall_ms=1)
    for _ in range(2):
        directory = begin(config)
        assert "copy" in directory.record.suspicion
        assert directory.record.suspicions.times == 1
        directory.close()


def test_a_life_that_did_not_begin_is_no_reason_for_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path)
    started(config)
    for step in range(3):
        with monkeypatch.context() as patching:
            left = [step]
            original = OsFileSystem.write_atomically
            patching.setattr(OsFileSystem, "write_atomically", crashing(original, left))
            with suppress(Crash):
                begin(config).close()
    directory = begin(config)
    assert directory.record.may_vote
    directory.close()


def test_a_node_whose_raft_disk_is_gone_ends(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    running = begin(config)
    running.check_is_there()
    (tmp_path / "raft-disk").rename(tmp_path / "unmounted")
    with pytest.raises(NodeDirectoryError, match="raft-disk is not there any more"):
        running.check_is_there()
    running.close()


def test_files_are_moved_to_another_disk_and_back(tmp_path: Path) -> None:
    here, there = config_of(tmp_path, raft=None), config_of(tmp_path)
    elsewhere = config_of(tmp_path, raft="third-disk")
    started(here)
    where, aside = move_raft(FS, there, wall_ms=1)
    assert (where, Path(aside).name) == (str(tmp_path / "raft-disk"), "set-aside.raft.1")
    assert has_promises(there)
    begin(there).close()
    with pytest.raises(RaftStoreError, match="already"):
        move_raft(FS, there, wall_ms=2)
    move_raft(FS, elsewhere, wall_ms=3)
    assert has_promises(elsewhere)
    assert "belongs" in refused(there) or "has no Raft files" in refused(there)
    begin(elsewhere).close()
    move_raft(FS, here, wall_ms=4)
    assert has_promises(here)
    begin(here).close()


def test_a_move_that_was_interrupted_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(40):
        path = tmp_path / str(step)
        path.mkdir()
        here, there = config_of(path, raft=None), config_of(path)
        started(here)
        ended = move_and_crash(there, step, monkeypatch)
        try:
            begin(there).close()
        except RaftStoreError:
            move_raft(FS, there, wall_ms=2)
            begin(there).close()
        assert has_promises(there)
        assert raft_home.is_there(FS, there)
        if not ended:
            return
    raise AssertionError("a move has fewer steps")


CHANGES = ("rename", "unlink", "make_directory", "write_atomically")


def move_and_crash(config: NodeConfig, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it was ended before so many changes of names were made."""
    left = [step]
    with monkeypatch.context() as patching:
        for name in CHANGES:
            patching.setattr(OsFileSystem, name, crashing(getattr(OsFileSystem, name), left))
        try:
            move_raft(FS, config, wall_ms=1)
        except Crash:
            return True
    return False


def crashing(original: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def change(*args: Any, **options: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return original(*args, **options)

    return change


def test_a_running_node_is_not_moved(tmp_path: Path) -> None:
    here, there = config_of(tmp_path, raft=None), config_of(tmp_path)
    started(here)
    running = begin(here)
    with pytest.raises(NodeDirectoryError, match="stop the node first"):
        move_raft(FS, there, wall_ms=1)
    running.close()
    assert read_record(FS, here.data).boot == 8


@pytest.mark.parametrize("raft_dir", ["data", "data/raft", "."])
def test_one_directory_in_the_other_is_refused(tmp_path: Path, raft_dir: str) -> None:
    with pytest.raises(KeyProblem) as problem:
        config_of(tmp_path, raft=raft_dir).check()
    assert problem.value.key == "node.raft_dir"
