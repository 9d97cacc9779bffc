"""Where a publisher says that a run ends."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.wire.messages import SessionStartsAt
from samelog.wire.push import inputs
from samelog.wire.push.effects import (
    BeginAt,
    FileExtent,
    InputState,
    ListFiles,
    PushEffect,
    RollByte,
    ShippedInput,
)
from samelog.wire.push.inputs import RunInputs
from samelog.wire.sender import Sender


@pytest.mark.parametrize(
    ("end", "lengths", "told"),
    [
        ((0, 0), {}, (0, 0)),
        ((1, 7), {0: 2860}, (1, 7)),
        ((1, 0), {0: 2860}, (0, 2860)),
        ((3, 0), {0: 2860, 1: 0, 2: 0}, (0, 2860)),
        ((2, 0), {0: 0, 1: 0}, (0, 0)),
        ((3, 0), {2: 0}, (2, 0)),
    ],
)
def test_a_run_ends_with_its_last_bytes(
    end: RollByte, lengths: dict[int, int], told: RollByte
) -> None:
    """It ended with an empty file: a data group that a partition had moved to, and that held none
    of its files, never closed its part of the run (converting world 700021).
    """
    known = {roll: FileExtent(length, roll + 1) for roll, length in lengths.items()}
    files: Any = SimpleNamespace(part_end=end, extent=known.get)
    assert inputs._end_of_bytes(files) == told


def test_files_that_vanish_before_they_are_sent_are_listed() -> None:
    """Another connection had scanned them, so this one read nothing that could be missing: the run
    never ended (world 930100 with rotting publishers).
    """
    effects: list[PushEffect] = []
    sender = Sender(window_bytes=1000, read_bytes=100)
    shipping: Any = RunInputs(None, None, None, effects, sender, handles=count())  # type: ignore[arg-type]
    files: Any = SimpleNamespace(first=(0, 0), end=(5, 0), extent=lambda roll: None)
    shipped = ShippedInput(("t", 0), files)
    shipped.state, shipped.handle = InputState.SHIPPING, 1
    sender.add(1, 0, 0)
    shipping.files_changed(shipped)
    shipping.scanned(shipped, has_moved=False)
    assert effects == []
    files.first = (1, 0)
    shipping.files_changed(shipped)
    shipping.scanned(shipped, has_moved=False)
    assert effects == [ListFiles(shipped)]


def test_an_input_is_shipped_once_another_conversation_has_found_its_bytes() -> None:
    """The node holds more of the input than was known of the files."""
    effects: list[PushEffect] = []
    sender = Sender(window_bytes=1000, read_bytes=100)
    shipping: Any = RunInputs(None, None, None, effects, sender, handles=count())  # type: ignore[arg-type]
    files: Any = SimpleNamespace(first=(0, 0), end=(0, 0), rolls=[0], may_have_more=False)
    shipped = ShippedInput(("t", 0), files)
    shipped.state, shipped.handle = InputState.AHEAD, 1
    shipped.position = SessionStartsAt(1, "topic", 1, 0, 500)
    assert shipping.files_changed(shipped)
    shipping.scanned(shipped, has_moved=False)
    assert (effects, shipping.unscanned) == ([], {})
    files.end = (0, 500)
    assert shipping.files_changed(shipped)
    shipping.scanned(shipped, has_moved=False)
    assert effects == [BeginAt(shipped, (0, 500))]
