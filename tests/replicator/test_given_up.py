"""When a publisher leaves an input behind: all nodes that have its partition refuse it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samelog.replicator.push.client import PushClient


@pytest.mark.parametrize(
    ("said", "is_given_up"),
    [
        ([True, True], True),
        ([True, False], False),
        ([True, None], True),
        ([None, None], False),
        ([True, None, False], False),
    ],
)
def test_who_has_not_the_partition_has_no_say(said: list[bool | None], is_given_up: bool) -> None:
    client: Any = PushClient.__new__(PushClient)
    client._links = [
        SimpleNamespace(conversation=SimpleNamespace(refuses=lambda run, name, word=word: word))
        for word in said
    ]
    client._session = SimpleNamespace(runs=[SimpleNamespace(run=1)])
    assert client.is_given_up(0, ("t", 0)) is is_given_up
    assert not client.is_given_up(1, ("t", 0)), "no newer run waits"
