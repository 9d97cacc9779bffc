"""Who hears what another member says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from samelog.consensus import GroupMessages
from samelog.consensus.messages import PreVote
from samelog.sequencer.peer_events import PeerEvents


def test_each_group_hears_what_is_for_it() -> None:
    heard: list[tuple[str, Any]] = []
    node: Any = SimpleNamespace(
        raft=SimpleNamespace(
            group=SimpleNamespace(receive=lambda node, said: heard.append(("group 0", said)))
        ),
        data_groups=SimpleNamespace(on_raft=lambda node, part: heard.append(("groups", part))),
    )
    said = [PreVote(1, 0, 0)]
    own, other = GroupMessages(0, 0, 0, said), GroupMessages(3, 1, 2, said)
    PeerEvents(node).on_raft(1, [own, GroupMessages(0, 5, 0, said), other])
    assert heard == [("group 0", said), ("groups", other)]
