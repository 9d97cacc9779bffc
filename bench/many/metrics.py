"""Counters of nodes and sidecars, read from `/metrics`: rounds, syncs, delays of the loop.

Invariant: a metric that is missing gives no figure, so that trees of different age can be compared.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from bench.meter import Meter, Spent

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
BOUND = re.compile(r'(?:^|,)le="([^"]+)"')
SYNC, COMMIT = 'samelog_fsync_seconds{files="raft"}', "samelog_raft_commit_seconds"
LOOP, MERGED = "samelog_event_loop_delay_seconds", "samelog_append_to_merged_seconds"
SCRAPE_S = 10.0
Samples = Mapping[str, float]


def scrape(address: str) -> Counter[str]:
    """All samples of a process; empty while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=SCRAPE_S) as answer:
            return parse(answer.read().decode())
    except (OSError, urllib.error.URLError):
        return Counter()


def parse(text: str) -> Counter[str]:
    """Samples by name, those of all label values added up; also each by its name with labels, and
    buckets by their bound.
    """
    found = Counter[str]()
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        name, labels, value = match.groups()
        found[name] += float(value)  # type: ignore[assignment]
        if labels:
            found[f"{name}{{{labels}}}"] += float(value)  # type: ignore[assignment]
    return found


class Histogram(NamedTuple):
    """What a histogram counted in a window. `buckets`: upper bound and how many were below it."""

    number: float
    total_s: float
    buckets: Sequence[tuple[float, float]]

    @property
    def mean_ms(self) -> float:
        """Milliseconds; 0 if nothing was counted."""
        return 1000 * self.total_s / self.number if self.number else 0.0

    def at_ms(self, share: float) -> float:
        """Milliseconds that this share does not exceed, interpolated in its bucket."""
        wanted, low, below = share * self.number, 0.0, 0.0
        if not wanted:
            return 0.0
        for bound, count in self.buckets:
            if count >= wanted:
                inside = (wanted - below) / (count - below) if count > below else 1.0
                return 1000 * (low + (min(bound, 2 * low or bound) - low) * inside)
            low, below = bound, count
        return 1000 * low


def histogram(name: str, before: Samples, after: Samples) -> Histogram | None:
    """The difference of a histogram; None if the process has none of that name."""
    plain, _, labels = name.rstrip("}").partition("{")
    inside = f"{labels}," if labels else ""
    ends = f"{{{labels}}}" if labels else ""
    pattern = re.compile(rf'^{plain}_bucket\{{{re.escape(inside)}le="([^"]+)"\}}$')
    found = [(match.group(1), key) for key in after if (match := pattern.match(key))]
    if not found:
        return None
    buckets = sorted((float(bound), after[key] - before.get(key, 0)) for bound, key in found)
    count, total = (
        after[f"{plain}_{part}{ends}"] - before.get(f"{plain}_{part}{ends}", 0)
        for part in ("count", "sum")
    )
    return Histogram(count, total, buckets)


class NodeMeter(Meter):
    """A meter of nodes that reads their metrics around each window, too."""

    def __init__(self, pids: Callable[[], list[int]], addresses: Sequence[str]) -> None:
        super().__init__(pids)
        self._addresses = addresses
        self.last = Spent()
        self.found: dict[str, float] = {}
        """Figures of the last window."""

    @contextmanager
    def window(self) -> Iterator[Spent]:
        """See Meter.window."""
        before = [scrape(each) for each in self._addresses]
        with super().window() as spent:
            yield spent
        after = [scrape(each) for each in self._addresses]
        self.last, pairs = spent, list(zip(before, after, strict=True))
        self.found = figures(pairs, spent.seconds)


def figures(nodes: Sequence[tuple[Samples, Samples]], seconds: float) -> dict[str, float]:
    """Rounds and syncs of all nodes, and times of the leader, which is the node that commits most,
    and of the followers: the better one, because an entry waits for one of them only.
    """

    def of(name: str) -> list[Histogram]:
        found = (histogram(name, before, after) for before, after in nodes)
        return [each for each in found if each is not None]

    commits, syncs, delays, merges = of(COMMIT), of(SYNC), of(LOOP), of(MERGED)
    if not commits or len(syncs) != len(nodes) or len(delays) != len(nodes):
        return {}
    leader = max(range(len(commits)), key=lambda number: commits[number].number)
    others = [each for number, each in enumerate(syncs) if number != leader]
    found = {
        "rounds_per_s": commits[leader].number / seconds,
        "syncs_per_s": sum(each.number for each in syncs) / seconds,
    }
    for name, each in (
        ("commit", commits[leader]),
        ("leader_sync", syncs[leader]),
        ("follower_sync", min(others, key=lambda each: each.mean_ms, default=syncs[leader])),
        ("leader_loop", delays[leader]),
        ("merged", merges[leader] if merges else None),
    ):
        if each is not None:
            found |= {f"{name}_mean_ms": each.mean_ms}
            found |= {f"{name}_p{100 * at:.0f}_ms": each.at_ms(at) for at in (0.5, 0.99)}
    return found
