"""Settings for all tests.

Several processes share them (tests/sharing.py).

Hypothesis measures no time (a shared machine would make tests fail at random) and always prints how
to reproduce a failure. What tests mount vanishes with them; their nodes are forked.

What is imported and collected stays: looking for garbage among its 400,000 objects, again and
again, took a tenth of the time.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import settings

from tests import forking, mounts, patience, sharing, tiers

# The same code gets the same verdict; `--hypothesis-profile=random` looks where nobody looked yet,
# `quick` (of `make check`) at a few examples only.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.register_profile(
    "quick", deadline=None, print_blob=True, derandomize=True, max_examples=20
)
settings.load_profile("same")
mounts.keep_to_ourselves()
forking.take_over()
tiers.watch_commands()
gc.disable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sharing.LongestFirst:
    """Who runs what, with `-n`."""
    return sharing.LongestFirst(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/consensus --rewrite`: write what happens into the scenario files; review the
    diff. `make test-all ARGS=--record-seconds`: write which files take long.
    """
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite the expected traces of scenarios"
    )
    parser.addoption(
        "--record-seconds", action="store_true", help="rewrite how long files of tests take"
    )


def pytest_collection_finish() -> None:
    """From here on there is garbage."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Libraries look for what is left at the end."""
    gc.unfreeze()


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that the others report to records."""
    config.pluginmanager.register(tiers)
    if hasattr(config, "workerinput"):
        return
    slow = patience.SlowTests(sharing.recorded_tests(), sharing.TEST_FROM_S)
    config.pluginmanager.register(slow)
    if config.getoption("--record-seconds"):
        config.pluginmanager.register(sharing.Recorder())
