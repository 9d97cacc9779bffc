"""Whose a data directory is."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from samelog.format.checked_json import checked
from samelog.sequencer.cluster.lives import Contradiction, KnownLife
from samelog.sequencer.cluster.node_dir import (
    IS_A_COPY,
    NodeDirectory,
    NodeDirectoryError,
    NodePlace,
    Suspicions,
    check_has_log,
    read_record,
    suspect,
)
from samelog.store.disk.disk_errors import DiskFault
from samelog.store.disk.files import OsFileSystem
from samelog.wire.bounds import LIVES_TOLD
from tests.sequencer.cluster import plain_config


def open_directory(
    path: Path, cluster: str = "c", node: str = "n", peers: int = 1
) -> NodeDirectory:
    config = plain_config(path, cluster=cluster, node=node, peers=peers)
    return NodeDirectory.open(
        OsFileSystem(), config, bootstrap=True, wall_s=7, chance=random.Random()
    )


def test_a_disk_of_its_own_is_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    directory = open_directory(tmp_path)
    assert directory.record.boot == 7
    directory.close()


def test_a_directory_of_something_else_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(NodeDirectoryError, match=r"'photos' but no node\.json"):
        open_directory(tmp_path)
    assert not (tmp_path / "node.json").exists()


@pytest.mark.parametrize("whose", [("d", "n"), ("c", "m")])
def test_a_directory_of_another_cluster_or_node_is_never_touched(
    tmp_path: Path, whose: tuple[str, str]
) -> None:
    open_directory(tmp_path).close()
    before = (tmp_path / "node.json").read_bytes()
    with pytest.raises(NodeDirectoryError, match=str(tmp_path)):
        open_directory(tmp_path, *whose)
    assert (tmp_path / "node.json").read_bytes() == before


def test_two_processes_never_use_one_directory(tmp_path: Path) -> None:
    first = open_directory(tmp_path)
    with pytest.raises(NodeDirectoryError, match="another running node"):
        open_directory(tmp_path)
    first.close()
    open_directory(tmp_path).close()


@pytest.mark.parametrize("peers", [0, 2, 4])
def test_the_peers_count_only_until_there_is_a_directory(tmp_path: Path, peers: int) -> None:
    with pytest.raises(NodeDirectoryError, match=r"not among the peers|1, 3, 5 or 7 voters"):
        open_directory(tmp_path, peers=peers)
    open_directory(tmp_path).close()
    directory = open_directory(tmp_path, peers=peers)
    assert (directory.record.number, directory.record.boot) == (0, 8)
    directory.close()


def lives(directory: NodeDirectory) -> tuple[str, list[str], str]:
    """Of a directory that is opened: this life, those before it, and why it is suspect."""
    record = directory.record
    directory.close()
    return record.incarnation, record.predecessors, record.suspicion


def test_every_start_is_a_life_of_its_own_and_knows_those_before_it(tmp_path: Path) -> None:
    told = [lives(open_directory(tmp_path)) for _ in range(LIVES_TOLD + 3)]
    incarnations = [incarnation for incarnation, _, _ in told]
    assert len(set(incarnations)) == len(incarnations)
    for number, (_, before, suspicion) in enumerate(told):
        assert before == incarnations[:number][-LIVES_TOLD:]
        assert suspicion == ""


def test_a_copy_of_a_directory_is_suspect_however_it_was_made(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    open_directory(original).close()
    shutil.copytree(original, copy)
    assert lives(open_directory(copy))[2] == IS_A_COPY
    assert lives(open_directory(copy))[2] == IS_A_COPY  # until it is let in
    directory = open_directory(copy)
    directory.is_let_in()
    directory.close()
    assert lives(open_directory(copy))[2] == ""
    original.rename(tmp_path / "moved")  # a move is no copy
    assert lives(open_directory(tmp_path / "moved"))[2] == ""


def test_a_directory_knows_since_when_its_replicas_are_the_first_ones(tmp_path: Path) -> None:
    """A readmitted life led the change that gave its member the only replica of a group, and ended
    before that began. The next life took the replica for one that another directory might
    have had, and the group had no leader for ever (world 900000046 of converting groups).
    """
    directory = open_directory(tmp_path)
    directory.has_confirmed(3)
    assert directory.record.suspicions == Suspicions(), "it was never suspect"
    directory.is_suspect("a copy")
    directory.is_let_in(let_in_at=7)
    directory.has_confirmed(9)
    assert directory.record.suspicions == Suspicions(1, 7), "it is in the table"
    directory.close()
    directory = open_directory(tmp_path)
    directory.has_confirmed(12)
    assert directory.record.suspicions == Suspicions(1, 7), "of an earlier life"
    directory.is_suspect("another life is known")
    directory.has_confirmed(15)
    assert directory.record.suspicions == Suspicions(2), "the other directory may still have one"
    directory.is_let_in()
    assert directory.record.suspicions == Suspicions(2, 15), "all voters agreed"
    directory.close()


def test_a_table_may_be_empty_when_it_is_confirmed(tmp_path: Path) -> None:
    """Version 0 was taken for none: the member's first replica never counted, and a group of which
    it was the only one had no leader (worlds of converting groups, seeds 275, 297 and 303).
    """
    directory = open_directory(tmp_path)
    directory.is_suspect("a copy")
    directory.has_confirmed(0)
    directory.is_let_in()
    assert directory.record.suspicions == Suspicions(1, 0)
    directory.close()


def test_an_old_copy_put_back_in_its_place_is_suspect(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    open_directory(original).close()
    shutil.copytree(original, copy)
    open_directory(original).close()
    shutil.rmtree(original)
    shutil.copytree(copy, original)
    assert lives(open_directory(original))[2] == IS_A_COPY


def test_who_joins_counts_for_nothing_until_it_is_let_in(tmp_path: Path) -> None:
    config = plain_config(tmp_path, peers=3)
    place = NodePlace(cluster="c", node="n", number=7, members=[], cluster_id="id")
    directory = NodeDirectory.open(
        OsFileSystem(), config, place, bootstrap=False, wall_s=7, chance=random.Random()
    )
    assert not directory.record.may_vote
    assert directory.record.cluster_id == "id"
    directory.close()


def test_a_suspect_goes_on_behind_the_life_that_others_know(tmp_path: Path) -> None:
    first = lives(open_directory(tmp_path))[0]
    suspect(OsFileSystem(), str(tmp_path), Contradiction("why", KnownLife(99, "theirs")))
    directory = open_directory(tmp_path)
    assert directory.record.boot == 100
    assert lives(directory)[1:] == (["theirs", first], "why")


def test_no_bit_of_node_json_turns_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    open_directory(tmp_path).close()
    file = tmp_path / "node.json"
    data, record = file.read_bytes(), read_record(OsFileSystem(), str(tmp_path))
    half = len(checked(data))
    for bit in range(8, 8 * (half - 3), 29):
        turned = bytearray(data)
        turned[bit // 8] ^= 1 << bit % 8
        file.write_bytes(turned)
        assert read_record(OsFileSystem(), str(tmp_path)) == record
        turned[bit // 8 + half + 9] ^= 1 << bit % 8
        file.write_bytes(turned)
        with pytest.raises(NodeDirectoryError, match=r"node\.json"):
            read_record(OsFileSystem(), str(tmp_path))
    assert f"{file} is damaged" in caplog.text


def test_a_directory_that_was_only_begun_has_no_log_yet(tmp_path: Path) -> None:
    check_has_log(OsFileSystem(), str(tmp_path))
    open_directory(tmp_path).close()
    check_has_log(OsFileSystem(), str(tmp_path))
    (tmp_path / "raft").mkdir()
    check_has_log(OsFileSystem(), str(tmp_path))


@pytest.mark.parametrize("left", ["merged", "sessions", "groups"])
def test_a_directory_that_has_lost_its_log_is_refused(tmp_path: Path, left: str) -> None:
    open_directory(tmp_path).close()
    (tmp_path / left).mkdir()
    with pytest.raises(NodeDirectoryError, match=r"no Raft log any more.*Remedy"):
        check_has_log(OsFileSystem(), str(tmp_path))
    (tmp_path / "raft").mkdir()
    (tmp_path / "raft" / f"wal.{1:020d}").touch()
    check_has_log(OsFileSystem(), str(tmp_path))


def test_who_knows_the_cluster_or_was_let_in_had_a_log(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    directory.belongs_to("id")
    directory.close()
    with pytest.raises(NodeDirectoryError, match="no Raft log any more"):
        check_has_log(OsFileSystem(), str(tmp_path))
    joined = tmp_path / "joined"
    config = plain_config(joined, peers=3)
    place = NodePlace(cluster="c", node="n", number=7, members=[], cluster_id="id")
    directory = NodeDirectory.open(
        OsFileSystem(), config, place, bootstrap=False, wall_s=7, chance=random.Random()
    )
    check_has_log(OsFileSystem(), str(joined))
    directory.is_let_in()
    directory.close()
    with pytest.raises(NodeDirectoryError, match="no Raft log any more"):
        check_has_log(OsFileSystem(), str(joined))


def test_a_directory_is_durable_though_the_start_that_made_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power would take all that the node has acknowledged since."""
    synced, sync, fails = list[str](), OsFileSystem.sync_directory, [True]

    def fail_once(self: OsFileSystem, path: str) -> None:
        if str(path) == str(tmp_path) and fails and fails.pop():
            raise DiskFault(str(path), "sync", errno.EIO)
        synced.append(str(path))
        sync(self, path)

    monkeypatch.setattr(OsFileSystem, "sync_directory", fail_once)
    with pytest.raises(DiskFault):
        open_directory(tmp_path / "data")
    assert str(tmp_path) not in synced
    open_directory(tmp_path / "data").close()
    assert str(tmp_path) in synced
