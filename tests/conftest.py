"""Settings for all tests.

Hypothesis measures no time (a shared machine would make tests fail at random) and always prints how
to reproduce a failure. What tests mount vanishes with them.
"""

from __future__ import annotations

from hypothesis import settings

from tests import mounts

# The same code gets the same verdict; `--hypothesis-profile=random` looks where nobody looked yet.
settings.register_profile("same", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")
mounts.keep_to_ourselves()
