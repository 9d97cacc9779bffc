"""What `import shiplog` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shiplog


def test_every_public_name_is_there() -> None:
    assert sorted(shiplog.__all__) == dir(shiplog)
    for name in shiplog.__all__:
        assert getattr(shiplog, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'shiplog' has no attribute 'nothing'"):
        getattr(shiplog, "nothing")  # noqa: B009  # a constant name would not pass the type checker


def test_importing_loads_no_part_until_it_is_used() -> None:
    program = "import sys, shiplog; print([name for name in sys.modules if 'shiplog.' in name])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"[]\n"
