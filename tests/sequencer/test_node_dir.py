"""Whose a data directory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.sequencer.cluster.node_dir import NodeDirectory, NodeDirectoryError
from samelog.store.disk.files import OsFileSystem
from tests.sequencer.cluster import plain_config


def open_directory(
    path: Path, cluster: str = "c", node: str = "n", peers: int = 1
) -> NodeDirectory:
    config = plain_config(path, cluster=cluster, node=node, peers=peers)
    return NodeDirectory.open(OsFileSystem(), config, bootstrap=True, wall_s=7)


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
