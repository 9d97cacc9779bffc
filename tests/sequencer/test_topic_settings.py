"""Topic settings: what is accepted, and what the refusal says."""

from __future__ import annotations

import pytest

from samelog.sequencer.state.topic_settings import problem_with


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.bytes", "65536"),
        ("segment.bytes", str((1 << 31) - 1)),
        ("message.timestamp.type", "CreateTime"),
        ("message.timestamp.type", "LogAppendTime"),
        ("max.message.bytes", "1000"),
        ("retention.ms", "-1"),
        ("cleanup.policy", "delete"),
    ],
)
def test_what_means_something_is_accepted(key: str, value: str) -> None:
    assert problem_with(key, value) is None


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("segment.bytes", "65535", "is not a number from 65536 to 2147483647"),
        ("segment.bytes", "-70000", "is not a number"),
        ("segment.bytes", "\u0667\u0667\u0667\u0667\u0667\u0667", "is not a number"),
        ("message.timestamp.type", "logappendtime", "is not one of CreateTime, LogAppendTime"),
        ("retention.ms", "-2", "is not a number from 0"),
        ("retention.bytes", "1Gi", "is not a number from 0"),
        ("hold_groups", "a,,b", "is not a list of consumer groups"),
        ("hold_max_ms", "-1", "is not a number"),
        ("cleanup.policy", "compact", "is not one of delete"),
        ("colour", "red", "unknown topic setting 'colour', known are"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(key: str, value: str, said: str) -> None:
    assert said in str(problem_with(key, value))
