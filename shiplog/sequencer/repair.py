"""Gets what this node lacks from its peers: session bytes while they exist, else the merged bytes.

A partition that stalls waits a moment (its publisher is probably still sending), then pulls. Which
peer is asked is who said it has more.
"""

from __future__ import annotations
