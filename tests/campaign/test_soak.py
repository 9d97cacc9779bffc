"""What the soak's samples and files are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from samelog.format import _kernels as kernels
from samelog.format.checked_json import encode_checked
from tests.campaign.results import BROKEN, KEPT, Result
from tests.campaign.soak import end_of, segments, values_from
from tests.campaign.soak_table import Sample, lives, same_age, samples, slope_mb_per_h, soak


def sample(minute: int, age_s: int, memory_mb: float, node: int = 0) -> Sample:
    return Sample(minute, node, age_s, memory_mb, 50)


def part(*found: Sample, code: str = "new", verdict: str = KEPT) -> Result:
    figures = {
        "acknowledged": 1_200_000,
        "lost": 0,
        "doubled": 0,
        "restarts": 2,
        "pause_ms": 70,
        "disk_mb": 300.5,
        "archived": 9,
        "samples": [list(each) for each in found],
    }
    return Result(
        kind="soak",
        row="soak",
        count=10,
        digest=code,
        commit=code,
        at="2026-01-01T00:00+00:00",
        took_s=660,
        verdict=verdict,
        figures=figures,
    )


def test_the_slope_is_that_of_the_groups_not_of_what_is_between_them() -> None:
    # Each process grows by 0.5 MB a minute; the second one begins where the first one began.
    found = [sample(minute, 60 * minute, 100 + 0.5 * minute) for minute in range(2, 8)]
    found += [sample(8 + minute, 60 * minute, 100 + 0.5 * minute) for minute in range(2, 8)]
    assert [len(life) for life in lives(found)] == [6, 6]
    assert slope_mb_per_h(lives(found)) == pytest.approx(30)
    assert slope_mb_per_h(same_age(found)) == pytest.approx(0)
    # Each process begins 8 MB above the one before it, and stays there.
    found = [sample(8 * n + minute, 60 * minute, 8.0 * n) for n in range(4) for minute in (2, 3, 4)]
    assert slope_mb_per_h(lives(found)) == pytest.approx(0)
    assert slope_mb_per_h(same_age(found)) == pytest.approx(60)


def test_nodes_are_kept_apart_and_what_is_young_is_left_out() -> None:
    found = [sample(minute, 60 * minute, 100.0, node) for minute in (6, 7) for node in (0, 1)]
    assert len(lives(found)) == 2
    assert samples([part(sample(5, 300, 900.0), sample(9, 60, 900.0), *found)]) == found
    assert slope_mb_per_h([]) == 0


def test_parts_follow_each_other_in_the_table() -> None:
    table = soak([part(code="old"), part(sample(9, 500, 99.5)), part(verdict=BROKEN)])
    first = "| 0 to 10 | `new` | 2,000 | 1,200,000 | 0 | 0 | 2 | 70 | 99.5 | 0.0 | 50 | 300.5 |"
    assert first in table
    assert "| 10 to 20 | `new` |" in table
    assert "In all: 20 minutes, 2,400,000 acknowledged records, 0 lost, 0 doubled." in table
    assert "On earlier code: 10 minutes." in " ".join(table.split())


# --- files ----------------------------------------------------------------------------------------


def segment(first: int, count: int = 10) -> bytes:
    """A segment of one batch, whose values are the offsets."""
    values = [b"%d" % (first + number) for number in range(count)]
    data = bytearray(
        kernels.build_batches(values, timestamps=1, batch_bytes=1 << 20, max_record_bytes=1 << 10)
    )
    kernels.assign_offsets(
        data,
        0,
        len(data),
        base_offset=first,
        leader_epoch=1,
        file_position=0,
        bytes_since_index=0,
        index_interval=4096,
        points=[],
    )
    return bytes(data)


def store(tmp_path: Path, name: str, *firsts: int) -> Path:
    """Segments in a directory of this name, which is given back."""
    directory = tmp_path / name
    directory.mkdir(parents=True)
    for first in firsts:
        (directory / f"{first:020d}.log").write_bytes(segment(first))
    return directory


def read(tmp_path: Path, first: int) -> tuple[list[int], list[str]]:
    """The records from an offset on, and what is wrong."""
    files, faults = segments(tmp_path / "copies", tmp_path / "data")
    found = list(values_from(files, first, faults))
    return [int(value or b"-1") for values in found for value in values], faults


def test_what_is_archived_is_read_from_its_copy(tmp_path: Path) -> None:
    store(tmp_path, "copies/local/chaos/id/segments/0", 0, 10, 20)
    kept = store(tmp_path, "data/merged/chaos-0", 20, 30)
    (kept / f"{0:020d}.log").touch()
    (kept / f"{10:020d}.log").touch()
    assert read(tmp_path, 0) == (list(range(40)), [])
    assert read(tmp_path, 14) == (list(range(14, 40)), [])
    assert read(tmp_path, 30) == (list(range(30, 40)), [])
    assert read(tmp_path, 40) == ([], [])


def test_what_is_nowhere_and_what_differs_is_a_fault(tmp_path: Path) -> None:
    copies = store(tmp_path, "copies/local/chaos/id/segments/0", 0, 20)
    kept = store(tmp_path, "data/merged/chaos-0", 20)
    (kept / f"{10:020d}.log").touch()
    assert read(tmp_path, 0)[1] == ["segment 10 is empty", "segment 20 follows offset 10"]
    (copies / f"{20:020d}.log").write_bytes(segment(20, 9))
    assert "the copy of segment 20 is not the segment" in read(tmp_path, 20)[1]


def test_a_copy_ends_behind_its_last_record(tmp_path: Path) -> None:
    kept = store(tmp_path, "data/merged/chaos-0", 20, 30)
    assert end_of(tmp_path / "data") == 0
    place = {"topic": "chaos", "topic_id": "id", "partition": 0, "start_offset": 20}
    (kept / "partition.json").write_bytes(encode_checked(place))
    assert end_of(tmp_path / "data") == 40
    (kept / f"{40:020d}.log").touch()
    assert end_of(tmp_path / "data") == 40
    assert end_of(tmp_path / "nowhere") == 0
