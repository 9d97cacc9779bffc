"""One of a thing is not several."""

from __future__ import annotations

from samelog.format.nouns import counted


def test_nouns_follow_their_numbers() -> None:
    assert [counted(count, "record") for count in (0, 1, 2, 2000)] == [
        "0 records",
        "1 record",
        "2 records",
        "2,000 records",
    ]
    assert [counted(count, "copy", "copies") for count in (1, 3)] == ["1 copy", "3 copies"]
