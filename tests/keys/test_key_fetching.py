"""What is archived is fetched from a peer, checked, and not believed if it differs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from samelog.sequencer.keys import fetching
from samelog.sequencer.keys.fetching import KeyFetches, sums_of
from samelog.sequencer.state.tables import keys as key_table
from samelog.sequencer.state.tables.keys import KeyedPartition
from samelog.store.keys.key_store import LmdbKeys, stored_keys
from samelog.wire.peer_messages import KeysAsked, KeysTold, PeerMessage
from tests.keys.looking import at_once

BLOCK = 8
OWN, OTHER = 3, 4
"""The group that asks, and the one that is asked."""
NEW = b"\x00new"


def store(path: Any, count: int) -> LmdbKeys:
    path.mkdir()
    made = LmdbKeys.open(str(path))
    keys = stored_keys(b"%03d" % at for at in range(count))
    made.advance([(key, at) for at, key in enumerate(keys) if key is not None], count, {})
    return made


class Pair:
    """Who lacks, and who has; each message arrives at once."""

    def __init__(self, there: LmdbKeys, peers: Sequence[int] = (2,)) -> None:
        self.there = there
        self.asked = 0
        self.here = KeyFetches(OWN, self.to_peer, lambda number: (OTHER, peers), at_once)
        self.peer = KeyFetches(OTHER, self.back, lambda number: (OTHER, ()), at_once)

    def to_peer(self, node: int, message: PeerMessage) -> None:
        assert isinstance(message, KeysAsked)
        assert (node, message.group) == (2, OTHER)
        self.asked += 1
        self.answer = asyncio.ensure_future(self.peer.answer(1, message, self.there))

    def back(self, node: int, message: PeerMessage) -> None:
        assert isinstance(message, KeysTold)
        assert (node, message.group) == (1, OWN)
        asyncio.get_running_loop().call_soon(self.here.answered, message)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LOOKED_AT", 7)
    monkeypatch.setattr(fetching, "TOLD_BYTES", 40)
    monkeypatch.setattr(key_table, "BLOCK_RECORDS", BLOCK)


def test_all_entries_of_what_is_archived_come_and_no_others(tmp_path: Any) -> None:
    there, here = store(tmp_path / "there", 60), store(tmp_path / "here", 0)
    pair, keyed = Pair(there), KeyedPartition(agreed=dict(sums_of(there, 48)))
    found = asyncio.run(pair.here.fetch(1, here, 50, keyed))
    assert found is not None
    assert not found.is_different
    assert sorted(offset for _, offset in here.page(b"", 100)) == list(range(50))
    assert found.sums == sums_of(there, 50)
    assert pair.asked > 5
    assert here.end == 0  # what came counts only once it is said to be whole


def test_what_differs_from_what_is_agreed_is_said(tmp_path: Any) -> None:
    there, here = store(tmp_path / "there", 60), store(tmp_path / "here", 0)
    keyed = KeyedPartition(agreed=dict(sums_of(there, 48)))
    there.advance([(NEW, 3)], 60, {})
    found = asyncio.run(Pair(there).here.fetch(1, here, 50, keyed))
    assert found is not None
    assert found.is_different


def test_what_does_not_count_any_more_need_not_be_there(tmp_path: Any) -> None:
    there, here = store(tmp_path / "there", 60), store(tmp_path / "here", 0)
    keyed = KeyedPartition(floor=20, agreed=dict(sums_of(there, 48)))
    there.sweep(b"", 20)
    found = asyncio.run(Pair(there).here.fetch(1, here, 50, keyed))
    assert found is not None
    assert not found.is_different


def test_a_peer_that_is_silent_is_given_up(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "ANSWER_S", 0.01)
    here = store(tmp_path / "here", 0)

    def silent(node: int, message: PeerMessage) -> None:
        """Nothing comes back."""

    fetches = KeyFetches(OWN, silent, lambda number: (OWN, [2]), at_once)
    assert asyncio.run(fetches.fetch(1, here, 50, KeyedPartition())) is None
    nobody = KeyFetches(OWN, silent, lambda number: (OWN, ()), at_once)
    assert asyncio.run(nobody.fetch(1, here, 50, KeyedPartition())) is None
