"""What a mirror knows of its source's producers has bounds."""

from __future__ import annotations

from unittest.mock import patch

from samelog.sequencer.state.tables import mirrors
from tests.sequencer.mirroring import MirrorWorld, source_batch


def test_what_is_known_of_the_sources_producers_is_bounded() -> None:
    world = MirrorWorld()
    merges = world.bring(*[source_batch(n, 1, producer_id=n % 3) for n in range(600)])
    assert world.next_offset == 600
    assert len(merges) > 1, "an instruction says of so many batches at most"
    with patch.object(mirrors, "PRODUCERS_MOST", 2):
        world.bring(source_batch(600, 1, producer_id=7))
    known = world.machine.state.mirrors.places[world.number].producers
    assert list(known) == [1, 2, 7]
    assert all(len(each) <= 5 for each in known.values())
