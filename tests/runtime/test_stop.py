"""Ending by signals, which interrupt the thread that waits wherever it is."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from samelog.runtime.stop import Stop
from tests.patience import PATIENCE_S

INTERRUPTED = """
import signal
from samelog.runtime.stop import Stop

SLICE_S = 0.0005  # so short that the handler often comes when the thread is about to wait

for number in range(1000):
    stop = Stop()
    signal.signal(signal.SIGALRM, lambda *_: stop.set())
    signal.setitimer(signal.ITIMER_REAL, SLICE_S * (1 + number % 7 / 7))
    while not stop.wait(SLICE_S):
        pass
"""


def test_a_handler_never_waits_for_whom_it_interrupts() -> None:
    """With threading.Event the program stands still after some dozens of rounds; with a queue it
    does on a busy machine.
    """
    subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, timeout=PATIENCE_S)


def test_it_is_set_for_good_and_waited_for_no_longer_than_told() -> None:
    stop = Stop()
    assert not stop.wait(0.0)
    thread = threading.Thread(target=stop.set)
    thread.start()
    began = time.monotonic()
    assert stop.wait(PATIENCE_S)
    assert stop.wait(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    thread.join()
