"""Two clusters, and a sidecar that is killed: the mirror is the source, to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mirroring import TwoClusters, two_clusters


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TwoClusters]:
    with two_clusters(tmp_path) as made:
        yield made


def test_a_mirror_has_the_sources_bytes(pair: TwoClusters) -> None:
    with pair.source.publisher("p") as publisher:
        for number in range(500):
            publisher.append(b"value %d" % number, partition=0)
        publisher.flush()
        pair.configure()
        with pair.sidecar():
            pair.wait_mirrored(500)
            publisher.append(b"later", partition=0)
            publisher.flush()
            pair.wait_mirrored(501)
    pair.assert_same_bytes()
    records = pair.destination.read(501, topic="eu.t")
    assert records[-1].value == b"later"
