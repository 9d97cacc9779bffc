"""Directories and files with names of any length: their removal, quarantine and replacement."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samelog.format.names import check_topic_name
from samelog.store.disk.directories import clear_removed, remove_whole
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.quarantine import set_partition_aside

LONGEST = "t" * 249 + "-99999"
"""Of the directory of a partition."""


class KilledFileSystem(OsFileSystem):
    """Its process dies before the files of a removed directory go."""

    def remove_tree(self, path: str | os.PathLike[str], *, is_durable: bool = True) -> None:
        """Raises KeyboardInterrupt."""
        raise KeyboardInterrupt


def made(parent: Path, name: str) -> str:
    """A directory with a file."""
    (parent / name).mkdir()
    (parent / name / "log.0.0").write_bytes(b"bytes")
    return str(parent / name)


def test_a_directory_with_the_longest_name_is_removed(tmp_path: Path) -> None:
    check_topic_name(LONGEST.rpartition("-")[0])
    remove_whole(OsFileSystem(), made(tmp_path, LONGEST))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["s", "s.removed", "removed", LONGEST])
def test_a_removal_that_was_cut_short_takes_nothing_else(tmp_path: Path, name: str) -> None:
    others = [made(tmp_path, other) for other in ("t", "t.removed", f"{name[:100]}.removed")]
    place = made(tmp_path, name) if not (tmp_path / name).exists() else str(tmp_path / name)
    with pytest.raises(KeyboardInterrupt):
        remove_whole(KilledFileSystem(), place)
    assert not os.path.exists(place)
    made(tmp_path, name)  # the next one of the name, which goes too
    remove_whole(OsFileSystem(), place)
    clear_removed(OsFileSystem(), str(tmp_path))
    left = {str(path) for path in tmp_path.iterdir()}
    assert left == set(others) - {place}


def test_directories_with_the_longest_name_are_set_aside(tmp_path: Path) -> None:
    kept = [set_partition_aside(OsFileSystem(), made(tmp_path, LONGEST)) for _ in range(2)]
    assert len(set(kept)) == 2
    assert all(Path(each, "log.0.0").read_bytes() == b"bytes" for each in kept)


@pytest.mark.parametrize("length", [1, 250, 251, 252, 255])
def test_a_file_with_a_name_of_any_length_is_replaced(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * length)
    for data in (b"old", b"new"):
        OsFileSystem().write_atomically(path, data)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]
