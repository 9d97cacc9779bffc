"""Words of tests/house_words.txt are found wherever they stand, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house_words
from tests.ratchet import recorded


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It begins ane" + "w.", [(1, "anew")]),
        ("# No" + "body reads it\n# of\n# before", [(1, "Nobody"), (2, "of # before")]),
        ("A follower i" + "s told.", [(1, "is told")]),
        ("def fence_no" + "body(): ...", []),
        ("The leader retries the proposal.", []),
    ],
)
def test_words_are_found(tmp_path: Path, text: str, found: list[tuple[int, str]]) -> None:
    path = tmp_path / "noun.py"
    path.write_text(text)
    assert list(house_words.found_in(path)) == found


def test_modules_are_named_by_nouns(tmp_path: Path) -> None:
    for name in ("judging.py", "judgement.py"):
        (tmp_path / name).touch()
    assert list(house_words.found_in(tmp_path / "judging.py")) == [(1, "judging.py")]
    assert list(house_words.found_in(tmp_path / "judgement.py")) == []


def test_every_package_is_counted() -> None:
    counts = house_words.house_words()
    assert {"wire", "sequencer", "tests", "docs", house_words.TOP} <= set(counts)
    assert set(recorded().exceptions["house_words"]) <= set(counts)


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert house_words.main(["samelog/consensus"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == house_words.house_words().get("consensus", 0)
    assert all(line.startswith("samelog/consensus/") for line in listed)
