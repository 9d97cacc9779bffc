"""Runs the test that must find a planted bug.

`python -m tests.mutants.planting NAME…` plants each in turn, in this process, which must be one of
its own: tests within tests would share what pytest keeps.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

import pytest

from tests import patience
from tests.mutants.by_tests import PLANTED, Planted

SHORT_S = 4.0
"""What never comes is waited for no longer."""


def is_found(planted: Planted) -> bool:
    """Whether the test fails. Raises ValueError if there is no such test, or it cannot run."""
    arguments = [
        "-q",
        "-x",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "filterwarnings=ignore",
    ]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), planted.mutant():
        code = pytest.main([*arguments, planted.test])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise ValueError(f"{planted.test}: {pytest.ExitCode(code).name}")
    return code == pytest.ExitCode.TESTS_FAILED


def main() -> int:
    """The exit code says whether all were found."""
    patience.PATIENCE_S = SHORT_S  # before any test imports it
    wanted = [planted for planted in PLANTED if planted.mutant.__name__ in sys.argv[1:]]
    survivors = 0
    for planted in wanted:
        found = is_found(planted)
        survivors += not found
        sys.stdout.write(f"{planted.mutant.__name__:34} {'found' if found else 'SURVIVES'}\n")
    return 1 if survivors or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
