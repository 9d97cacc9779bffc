"""What topics there are besides plain logs, as commands say it: in the words of the console.

Invariant: what cannot be asked is left out, and never ends a command that shows something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from samelog.admin.answers import TopicInfo
from samelog.admin.client import ask
from samelog.admin.errors import AdminError
from samelog.admin.mirror_answers import MirrorInfo
from samelog.admin.mirror_requests import ListMirrors
from samelog.admin.requests import AdminRequest
from samelog.config.tables.client import ClientConfig
from samelog.format.names import EVENTS_TOPIC

PLAIN = "log"
AnswerT = TypeVar("AnswerT")


def ask_if_may(config: ClientConfig, request: AdminRequest[AnswerT]) -> AnswerT | None:
    """What the cluster answers; None: this user may not know it, or the nodes are older."""
    try:
        return ask(config, request)
    except AdminError:
        return None


def mirrors_of(config: ClientConfig) -> tuple[MirrorInfo, ...]:
    """The mirrors that this user may know of."""
    found = ask_if_may(config, ListMirrors())
    return () if found is None else found.mirrors


def kinds_of(topics: Iterable[TopicInfo], mirrors: Iterable[MirrorInfo]) -> dict[str, str]:
    """Topic -> what it is."""
    known = {each.topic: each for each in mirrors}
    return {each.name: _kind(each, known.get(each.name)) for each in topics}


def _kind(topic: TopicInfo, mirror: MirrorInfo | None) -> str:
    if topic.base:
        return "view"
    if mirror is not None:
        return "mirror" if mirror.promoted_ms < 0 else "promoted mirror"
    if topic.name == EVENTS_TOPIC:
        return "internal"
    if topic.settings.get("dedup.key") == "first":
        return "keys count once"
    return "compacted" if "compact" in topic.settings.get("cleanup.policy", "") else PLAIN
