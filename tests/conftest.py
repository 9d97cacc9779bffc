"""Settings for all tests.

Several processes share them out by file; all that need Spark go to one: a session takes long to
start, and more than one would not fit.

Hypothesis measures no time (a shared machine would make tests fail at random) and always prints how
to reproduce a failure. What tests mount vanishes with them; their nodes are forked.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests import forking, mounts

SPARK = "tests/spark/"

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


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """A file's tests go to one process; those of all files that need Spark, too."""

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Who runs what, with `-n`."""
    return ByFile(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/consensus --rewrite`: write what happens into the scenario files; review the
    diff.
    """
    parser.addoption(
        "--rewrite", action="store_true", help="rewrite the expected traces of scenarios"
    )
