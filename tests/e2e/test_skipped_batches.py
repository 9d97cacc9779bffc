"""Batches of a source that nodes cannot hold are skipped by an operator, one after the other, on
real clusters.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import samelog
from tests.e2e.harness import wait_for
from tests.e2e.mirroring import TwoClusters, two_clusters
from tests.mirror.fakes import batches, odd
from tests.mirror.test_files_source import write
from tests.patience import PATIENCE_S

MIRROR = "eu.t"
GOOD = [*range(3), *range(5, 7), *range(9, 12)]


def wait_stopped(pair: TwoClusters, offset: int, behind: int) -> None:
    """Until the sidecar names the batch and the command that helps."""
    said = f"the batch at offset {offset} cannot be held"
    remedy = f"samelog mirror skip {MIRROR}/0 --to {behind}"

    def is_said() -> bool:
        log = pair.log.read_text("utf-8")
        return said in log and remedy in log

    wait_for(is_said, f"the sidecar names offset {offset}")
    assert pair.mirrored(MIRROR) == offset


def skip(pair: TwoClusters, to: int) -> str:
    ended = samelog("mirror", "skip", f"{MIRROR}/0", "--to", str(to), "--config", pair.config)
    return ended.stderr if ended.returncode == 0 else f"refused: {ended.stderr}"


@pytest.mark.usefixtures("starts_nodes")
def test_two_batches_are_skipped_and_mirroring_continues_each_time(tmp_path: Path) -> None:
    files = tmp_path / "files"
    data = [*batches(3), odd(3), *batches(2, first=5), odd(7), *batches(3, first=9)]
    write(files, data).close()
    with two_clusters(tmp_path) as pair:
        pair.configure(["t"], source=str(files), until="end")
        with pair.sidecar():
            wait_stopped(pair, 3, 5)
            assert "refused: " in skip(pair, 3)
            assert "t/0 ends at 12 at the source, and cannot skip to 13" in skip(pair, 13)
            assert f"{MIRROR}/0: offsets 3 to 4 are a gap" in skip(pair, 5)
            wait_stopped(pair, 7, 9)
        pair.log.write_text("", "utf-8")
        with pair.sidecar():
            wait_stopped(pair, 7, 9)
            assert f"{MIRROR}/0: offsets 7 to 8 are a gap" in skip(pair, 9)
            pair.wait_mirrored(12, MIRROR)
        for _ in range(2):
            with pair.sidecar() as process:
                assert process.wait(PATIENCE_S) == 0, "there is nothing left to copy"
        records = pair.destination.read(len(GOOD), topic=MIRROR)
        assert [each.offset for each in records] == GOOD
