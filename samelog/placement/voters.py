"""Which members become voters of the group of all members: few, and spread over hosts. Pure.

Invariant: where members of three hosts may vote, the loss of one host leaves the majority that
there was before a promotion (rule raft.53).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

VOTERS_MOST = 7
HOSTS_LEAST = 3
"""With fewer hosts, the loss of one may stop the group, however its voters are spread."""


def promotable(
    voters: Collection[int], candidates: Collection[int], host_of: Callable[[int], str]
) -> frozenset[int]:
    """Return the candidates of which one may become a voter next: on the hosts that have fewest
    voters, unless half of all voters would then be on one host.
    """
    if len(voters) >= VOTERS_MOST or not candidates:
        return frozenset()
    there = Counter(map(host_of, voters))
    fewest = min(there[host_of(each)] for each in candidates)
    hosts = {host_of(each) for each in (*voters, *candidates)}
    if fewest and len(hosts) >= HOSTS_LEAST and 2 * (fewest + 1) > len(voters):
        return frozenset()
    return frozenset(each for each in candidates if there[host_of(each)] == fewest)
