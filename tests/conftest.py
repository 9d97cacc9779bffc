"""Settings for all tests.

Hypothesis measures no time (a shared machine would make tests fail at random) and always prints how
to reproduce a failure. What tests mount vanishes with them.
"""

from __future__ import annotations

from hypothesis import settings

from tests import mounts

settings.register_profile("shiplog", deadline=None, print_blob=True)
settings.load_profile("shiplog")
mounts.keep_to_ourselves()
