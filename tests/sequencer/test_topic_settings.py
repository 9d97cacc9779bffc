"""Topic settings: what is accepted, and what the refusal says."""

from __future__ import annotations

import pytest

from samelog.sequencer.state.topic_settings import ADVICE, FIXED, longest_segment_ms, problem_with


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
        ("min.insync.replicas", "1"),
        ("min.insync.replicas", "2"),
        ("compression.type", "zstd"),
        ("segment.ms", "60000"),
        ("unclean.leader.election.enable", "false"),
        ("flush.messages", "1"),
        ("preallocate", "true"),
        ("delete.retention.ms", "0"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("compression.zstd.level", "-7"),
        ("local.retention.ms", "-2"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "delete,compact"),
    ],
)
def test_what_means_something_is_accepted(key: str, value: str) -> None:
    assert problem_with(key, value, 2) is None


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
        ("cleanup.policy", "compact,compact", "is not delete, compact, or both"),
        ("cleanup.policy", "", "is not delete, compact, or both"),
        ("min.insync.replicas", "3", "acknowledged when 2 nodes have it"),
        ("min.insync.replicas", "0", "is not a number from 1"),
        ("unclean.leader.election.enable", "true", "is not one of false"),
        ("message.timestamp.after.max.ms", "1000", "is not one of"),
        ("compression.type", "brotli", "is not one of producer, uncompressed, gzip"),
        ("min.cleanable.dirty.ratio", "1.5", "is not a number from 0 to 1"),
        ("compression.zstd.level", "23", "is not a number from 1 to 22"),
        ("flush.ms", "-1", "is not a number"),
        ("colour", "red", "unknown topic setting 'colour', known are"),
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(key: str, value: str, said: str) -> None:
    assert said in str(problem_with(key, value, 2))


def test_what_is_shown_by_default_can_be_given() -> None:
    shown = {**FIXED, **{key: default for key, (default, _) in ADVICE.items()}}
    assert [key for key, value in shown.items() if problem_with(key, value, 1)] == []


def test_segments_that_wait_for_compaction_are_rolled_for_it() -> None:
    settings = {"segment.ms": "900", "max.compaction.lag.ms": "500"}
    assert longest_segment_ms(settings, 700) == 900
    settings["cleanup.policy"] = "compact,delete"
    assert longest_segment_ms(settings, 700) == 500
    del settings["segment.ms"], settings["max.compaction.lag.ms"]
    assert longest_segment_ms(settings, 700) == 700
