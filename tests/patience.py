"""How long tests wait for what must happen.

Invariant: a test that passes never waits this long, so a machine with much else to do may take its
time; only what must *not* happen is waited for shortly.
"""

from __future__ import annotations

PATIENCE_S = 60.0
