"""What `import samelog` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import samelog


def test_every_public_name_is_there() -> None:
    assert sorted(samelog.__all__) == dir(samelog)
    for name in samelog.__all__:
        assert getattr(samelog, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="module 'samelog' has no attribute 'nothing'"):
        getattr(samelog, "nothing")  # noqa: B009  # a constant name would not pass the type checker


def test_importing_loads_no_part_until_it_is_used() -> None:
    program = "import sys, samelog; print([name for name in sys.modules if 'samelog.' in name])"
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"[]\n"
