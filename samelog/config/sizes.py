"""Counts of bytes as people write them.

Invariant: a text that was read is a whole number of bytes.
"""

from __future__ import annotations

import re

SIZE_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
}
_SIZE = re.compile(r"(\d+) ?([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int | None:
    """A count of bytes such as 4096, 64Ki or 10G; None if it is not one."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] not in SIZE_UNITS:
        return None
    return int(match[1]) * SIZE_UNITS[match[2]]
