"""Whose a data directory is."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.sequencer.cluster.node_dir import NodeDirectory, NodeDirectoryError, NodePlace
from samelog.store.disk.files import OsFileSystem


def place(cluster: str = "c", node: str = "n", number: int = 0) -> NodePlace:
    return NodePlace(cluster=cluster, node=node, number=number, members=[])


def open_directory(path: Path, whose: NodePlace) -> NodeDirectory:
    return NodeDirectory.open(OsFileSystem(), str(path), whose, bootstrap=True, wall_s=7)


def test_a_disk_of_its_own_is_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    directory = open_directory(tmp_path, place())
    assert directory.record.boot == 7
    directory.close()


def test_a_directory_of_something_else_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(NodeDirectoryError, match=r"'photos' but no node\.json"):
        open_directory(tmp_path, place())
    assert not (tmp_path / "node.json").exists()


@pytest.mark.parametrize("whose", [place(cluster="d"), place(node="m", number=1)])
def test_a_directory_of_another_cluster_or_node_is_never_touched(
    tmp_path: Path, whose: NodePlace
) -> None:
    open_directory(tmp_path, place()).close()
    before = (tmp_path / "node.json").read_bytes()
    with pytest.raises(NodeDirectoryError, match=str(tmp_path)):
        open_directory(tmp_path, whose)
    assert (tmp_path / "node.json").read_bytes() == before


def test_two_processes_never_use_one_directory(tmp_path: Path) -> None:
    first = open_directory(tmp_path, place())
    with pytest.raises(NodeDirectoryError, match="another running node"):
        open_directory(tmp_path, place())
    first.close()
    open_directory(tmp_path, place()).close()
