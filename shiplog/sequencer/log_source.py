"""What pull servers may read of this node: merged logs for everybody with the right, session logs for peers.

Invariant: only executed, therefore committed, bytes of a partition that is not halted are ever readable.
"""

from __future__ import annotations
