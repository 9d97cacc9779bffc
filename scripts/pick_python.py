"""Which of the Pythons that were found runs fastest: the first one, unless another of the same
version takes much less time for the same loop.

Why: a Python that somebody has compiled without its build's optimisations takes 1.15 times as much
processor time for a record as Debian's, and no setting of a build tells for certain.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

MUCH = 0.8
"""Takes another less than this share of the first one's time, it is chosen."""
ROUNDS = 4
PROGRAM = """
import sys, time
class Record:
    __slots__ = ("size",)
    def __init__(self, size): self.size = size
    def grown(self, by): return self.size + by
def loop():
    begin = time.process_time()
    for number in range(40_000): Record(number).grown(1)
    return time.process_time() - begin
print(*sys.version_info[:2], min(loop() for _ in range(7)))
"""


class Found(NamedTuple):
    """One Python: how it is called, its version, and how long it takes."""

    name: str
    version: tuple[int, int]
    seconds: float


def measured(name: str) -> Found | None:
    """None: it does not run."""
    ran = subprocess.run([name, "-I", "-c", PROGRAM], capture_output=True, text=True, check=False)
    if ran.returncode:
        return None
    major, minor, seconds = ran.stdout.split()
    return Found(name, (int(major), int(minor)), float(seconds))


def least(name: str) -> Found | None:
    """The best of some rounds: others may want the same processor meanwhile."""
    rounds = [each for each in (measured(name) for _ in range(ROUNDS)) if each is not None]
    return min(rounds, key=lambda each: each.seconds, default=None)


def chosen(found: Sequence[Found]) -> Found:
    """Of at least one, the first of which a shell finds first."""
    first = found[0]
    alike = [each for each in found if each.version == first.version]
    fastest = min(alike, key=lambda each: each.seconds)
    return fastest if fastest.seconds < MUCH * first.seconds else first


def main(names: Sequence[str]) -> None:
    """Print the chosen one; say why, if it is not the first."""
    found = [each for each in map(least, names) if each is not None]
    best = chosen(found)
    if best is not found[0]:
        share = found[0].seconds / best.seconds
        print(
            f"setup: taking {best.name}, which is {share:.1f} times as fast as {found[0].name}",
            file=sys.stderr,
        )
    print(best.name)


if __name__ == "__main__":
    main(sys.argv[1:])
