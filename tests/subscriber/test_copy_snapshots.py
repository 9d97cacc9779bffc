"""What a reader is told of copies that do not grow, or not yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from samelog.config.values import Address
from samelog.replicator.client_errors import TopicDeleted
from samelog.replicator.pull.options import PullStatus
from samelog.subscriber.copy_snapshots import CopySnapshot, check_copy, check_topics, explain
from samelog.subscriber.errors import (
    CopyStopped,
    LogReset,
    OffsetOutOfRange,
    UnknownTopic,
)
from samelog.wire.errors import FaultCode
from samelog.wire.pull.copies import CopyState
from samelog.wire.pull.refusal import Refusal

COPYING = CopySnapshot(CopyState.COPYING, None, True, False, 9, 9, None, "", "log")
OUT_OF_RANGE = Refusal(FaultCode.OUT_OF_RANGE, "archived", earliest=7)


def changed(**fields: Any) -> CopySnapshot:
    """A copy that grew, but for these."""
    return msgspec.structs.replace(COPYING, **fields)


@pytest.mark.parametrize(
    ("copy", "raised"),
    [
        (changed(state=CopyState.GONE), TopicDeleted),
        (changed(state=CopyState.GONE, successor="topic-2"), LogReset),
        (changed(state=CopyState.STOPPED, fault=OUT_OF_RANGE), CopyStopped),
        (changed(state=CopyState.WAITING, fault=OUT_OF_RANGE, is_begun=False), OffsetOutOfRange),
    ],
)
def test_what_is_final_is_raised(copy: CopySnapshot, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        check_copy(("flights", 0), copy)


def test_what_may_pass_is_not_raised() -> None:
    lagging = Refusal(FaultCode.NOT_READY, "starting")
    check_copy(("flights", 0), changed(state=CopyState.WAITING, fault=lagging))
    check_copy(("flights", 0), changed(state=CopyState.WAITING, fault=OUT_OF_RANGE))
    check_topics({"flights": lagging}, must_exist=True)


def test_refused_topics_are_final_and_unknown_ones_if_they_must_exist() -> None:
    with pytest.raises(CopyStopped, match="may not"):
        check_topics({"flights": Refusal(FaultCode.NOT_AUTHORISED, "may not")}, must_exist=False)
    unknown = {"flights": Refusal(FaultCode.UNKNOWN_TOPIC, "none")}
    check_topics(unknown, must_exist=False)
    with pytest.raises(UnknownTopic):
        check_topics(unknown, must_exist=True)


def test_why_copies_have_not_caught_up_is_one_sentence() -> None:
    refused = {"trains": Refusal(FaultCode.UNKNOWN_TOPIC, "none", "create it")}
    status = PullStatus(Address("here", 1), "", "unreachable", None, refused, {})
    copies = {("flights", 0): COPYING, ("flights", 1): changed(is_caught_up=True)}
    assert explain(copies, status, "no such key") == (
        "flights-0 is copying; topic 'trains': UNKNOWN_TOPIC: none (create it); "
        "not connected to here:1: unreachable; configuration refused: no such key"
    )
    assert explain({}, None, "") == "nothing was heard of the cluster yet"
