"""The needs of tests: markers that pytest derives from the fixtures a test uses.

A test that starts nodes, simulates worlds, starts Java or a browser, plants bugs or runs the blocks
of pages uses the fixture below that says so, most often through a fixture of its package. The
Makefile selects the tests of each tier by these markers.

Invariant: what a marker stands for cannot be started by a test without it; `require` ends the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.sequencer.cluster import InLoop, RunWith

MARKERS = {
    "starts_nodes": "cluster",
    "simulates": "world",
    "starts_java": "jvm",
    "starts_browser": "browser",
    "plants_bugs": "mutant",
    "builds_packages": "dist",
    "pastes_pages": "docs",
}
"""For each of the fixtures below: the marker of the tests that use it, directly or not."""

PROGRAMS = {
    ("samelog", "up"): "starts_nodes",
    ("samelog", "demo"): "starts_nodes",
    ("samelog", "node"): "starts_nodes",
    ("java",): "starts_java",
    ("tests.spark.",): "starts_java",
    ("tests.hops",): "starts_nodes",
    ("tests.sim",): "simulates",
    ("tests.cluster_sim",): "simulates",
    ("tests.campaign.worlds",): "simulates",
    ("tests.mutants.planting",): "plants_bugs",
}
"""What commands that tests start need: for words of a command, of which the first may have more to
it."""

SMOKE_MAX = 12

_running: list[pytest.Item] = []
"""The test that runs in this process, at most one."""


def mark(items: Sequence[pytest.Item]) -> None:
    """Give each test the markers of the fixtures it uses."""
    for item in items:
        for name in getattr(item, "fixturenames", ()):
            if name in MARKERS:
                item.add_marker(MARKERS[name])


def require(fixture: str) -> None:
    """Fail the running test unless it uses the fixture; outside of tests do nothing."""
    for item in _running:
        if item.get_closest_marker(MARKERS[fixture]) is None:
            pytest.fail(
                f"the test must use the fixture {fixture!r} (tests/tiers.py), for example with"
                f' @pytest.mark.usefixtures("{fixture}")'
            )


def watch_commands() -> None:
    """From now on compare the commands that tests start with PROGRAMS."""
    start = subprocess.Popen.__init__

    def init(self: subprocess.Popen[Any], args: Any, *others: Any, **options: Any) -> None:
        if _running and not isinstance(args, (str, bytes, os.PathLike)):
            for fixture in needs(args):
                require(fixture)
        start(self, args, *others, **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


def needs(command: Iterable[Any]) -> set[str]:
    """Return the fixtures that a command needs."""
    words = [os.path.basename(os.fsdecode(word)) for word in command]
    if words[1:] == ["-version"]:
        return set()
    return {
        fixture
        for (first, *rest), fixture in PROGRAMS.items()
        if set(rest) <= set(words)
        and any(
            word == first or (first[:6] == "tests." and word.startswith(first)) for word in words
        )
    }


def sampled(values: Iterable[int], *chosen: int, usual: Container[int] | None = None) -> list[Any]:
    """Parameters of a test of worlds. The chosen ones are the sample that everyone runs; those
    that are not `usual` either repeat a test with other seeds, in a campaign.
    """

    def marks(value: int) -> Sequence[pytest.MarkDecorator]:
        if value in chosen:
            return [pytest.mark.sample]
        is_usual = usual is None or value in usual
        return () if is_usual else [pytest.mark.campaign]

    return [pytest.param(value, marks=marks(value)) for value in values]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs before `-m` selects."""
    mark(items)
    smoke = [item for item in items if item.get_closest_marker("smoke")]
    sample = [item for item in items if item.get_closest_marker("sample")]
    if len(smoke) > SMOKE_MAX:
        raise pytest.UsageError(f"{len(smoke)} smoke tests, at most {SMOKE_MAX} allowed")
    for items_of, marker in ((smoke, "cluster"), (sample, "world")):
        for item in items_of:
            if item.get_closest_marker(marker) is None:
                raise pytest.UsageError(f"{item.nodeid}: not a test of the marker {marker!r}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note which test runs."""
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.remove(item)


@pytest.fixture(scope="session")
def starts_nodes() -> None:
    """Nodes and sidecars, as processes or in this one."""


@pytest.fixture
def run_with(starts_nodes: None) -> RunWith:
    """`cluster.run_with`: runs a coroutine with started nodes."""
    from tests.sequencer import cluster

    return cluster.run_with


@pytest.fixture
def in_loop(starts_nodes: None) -> InLoop:
    """`cluster.in_loop`: runs a coroutine that starts nodes itself."""
    from tests.sequencer import cluster

    return cluster.in_loop


@pytest.fixture(scope="session")
def simulates() -> None:
    """Simulated worlds."""


@pytest.fixture(scope="session")
def starts_java() -> None:
    """Spark, and Kafka's own programs."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java (as root: apt-get install default-jre-headless)")


@pytest.fixture(scope="session")
def starts_browser() -> None:
    """A headless Chromium."""
    if shutil.which("chromium") is None and shutil.which("chromium-browser") is None:
        pytest.skip("Chromium is not installed")


@pytest.fixture(scope="session")
def plants_bugs() -> None:
    """Bugs planted into the product, which tests or worlds must find."""


@pytest.fixture(scope="session")
def builds_packages() -> None:
    """The sdist and the wheel."""


@pytest.fixture(scope="session")
def pastes_pages() -> None:
    """The blocks of a page of the documentation, run as they stand."""
