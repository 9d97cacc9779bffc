"""A stage is published whole or not at all: damage in its files ends it at once, and is named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from samelog.publisher.errors import NotStaged
from samelog.publisher.staging import StagedWriter
from tests.patience import PATIENCE_S
from tests.publisher.nodes import Nodes, running

VALUES = [b"%06d" % number * 20 for number in range(200)]
ROLL_BYTES = 4096


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with running(tmp_path) as found:
        found.world.cluster.merges = False  # as nodes do with a stage before it is published
        found.stop_nodes()  # nothing is shipped before the files are damaged
        yield found


def hold(nodes: Nodes, directory: Path, damage: Callable[[Path], None]) -> tuple[str, Path]:
    """Stage records of two partitions, damage the session's files, and hold them: why that fails,
    and the session's directory.
    """
    config = nodes.world.config()
    config = replace(config, publisher=replace(config.publisher, roll_bytes=ROLL_BYTES))
    with StagedWriter("t", stage="s", config=config, partitions=2, directory=directory) as writer:
        for value in VALUES:
            writer.publisher.append(value, partition=0)
        writer.publisher.append(b"of another partition", partition=1)
        writer.publisher.flush()
        [session] = directory.glob("samelog-stage-*/s-*")
        damage(session)
        nodes.start_nodes()
        with pytest.raises(NotStaged) as raised:
            writer.hold(timeout=PATIENCE_S)  # else it names what is not held yet
    return str(raised.value), session


def files(session: Path) -> list[Path]:
    """The files of partition 0, the oldest first."""
    found = [path for path in (session / "t-0").glob("log.0.*") if "sealed" not in path.name]
    return sorted(found, key=lambda path: int(path.suffix[1:]))


def flip(path: Path, at: int) -> None:
    """Turn a bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def flip_first(session: Path) -> None:
    flip(files(session)[0], 100)


def flip_last(session: Path) -> None:
    last = files(session)[-1]
    flip(last, last.stat().st_size - 1)


def cut_last(session: Path) -> None:
    last = files(session)[-1]
    last.write_bytes(last.read_bytes()[:-1])


def remove(which: int) -> Callable[[Path], None]:
    return lambda session: files(session)[which].unlink()


def remove_all(session: Path) -> None:
    for path in files(session):
        path.unlink()


def clear_records(session: Path) -> None:
    for path in session.glob("run*.0.json"):
        path.write_bytes(b"")


def remove_records(session: Path) -> None:
    for path in session.glob("run*.0.json"):
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (flip_first, r"t-0/log\.0\.0, byte 0: .*; a copy of the damaged bytes is .*log\.0\.0\."),
        (flip_last, r"t-0/log\.0\.\d+, byte \d+: "),
        (cut_last, r"t-0/log\.0\.\d+, byte \d+: "),
        (remove(0), r"t-0/log\.0\.0, byte 0: the files before are missing"),
        (remove(2), r"t-0/log\.0\.2, byte 0: the file is missing"),
        (remove(-1), r"t-0/log\.0\.\d+, byte 0: the file is missing"),
        (remove_all, r"t-0/log\.0\.0, byte 0: the file is missing"),
        (lambda session: shutil.rmtree(session / "t-0"), r"t-0, byte 0: the directory is missing"),
        (clear_records, r"run\.0\.json, byte 0: unreadable"),
        (remove_records, r"run\.0\.json, byte 0: the file is missing"),
    ],
    ids=[
        *("bit in the first batch", "bit in the last batch", "cut file"),
        *("first file", "middle file", "last file", "all files", "directory"),
        *("record of the run", "no record of the run"),
    ],
)
def test_damage_ends_a_stage_at_once(
    nodes: Nodes, tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    said, session = hold(nodes, tmp_path, damage)
    assert said.startswith("stage 's': ")
    assert re.search(why, said), said
    assert "stage the records again with another writer" in said
    assert f"The files are kept in {session.parent}" in said
    assert (session / "t-1" / "log.0.0").stat().st_size > 0, "intact files are kept"


def test_a_session_that_was_removed_ends_a_stage_at_once(nodes: Nodes, tmp_path: Path) -> None:
    said, session = hold(nodes, tmp_path, shutil.rmtree)
    assert f"{session} has no session.json; stage the records again" in said
