"""Settings for all tests.

Several processes share them out by file; all that need Spark go to one, which starts with them: a
session takes long to start, and more than one would not fit.

Hypothesis measures no time (a shared machine would make tests fail at random) and always prints how
to reproduce a failure. What tests mount vanishes with them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests import mounts

SPARK = Path(__file__).parent / "spark"

# The same code gets the same verdict; `--hypothesis-profile=random` looks where nobody looked yet.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")
mounts.keep_to_ourselves()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for `--dist loadgroup`."""
    for item in items:
        group = "spark" if SPARK in item.path.parents else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: SPARK not in item.path.parents)
