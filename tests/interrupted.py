"""A test that runs until it is interrupted, for test_forking.py; pytest finds it only by name.

As a program: what the test starts.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests import forking

STARTED = "SAMELOG_TEST_STARTED"
"""Names the file that says that the program runs."""
STANDSTILL_S = 600


@pytest.mark.usefixtures("starts_nodes")
@pytest.mark.timeout(STANDSTILL_S)
def test_until_interrupted() -> None:
    with open(os.devnull, "wb") as log:
        forking.fork([], log, module="tests.interrupted")
    threading.Event().wait(STANDSTILL_S)


if __name__ == "__main__":
    Path(os.environ[STARTED]).touch()
    signal.pause()
