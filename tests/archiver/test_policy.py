"""The policy file's contents: what is read, and what is refused with a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.archiver.policy import (
    HoldRule,
    Policy,
    PolicyError,
    hold_of,
    parse_policy,
    retention_from,
    rules_of,
)

DAY_MS = 24 * 3600 * 1000


def test_the_documented_policy() -> None:
    text = '{"time": 10080, "limit": "90Gi", "disk": 90}'
    assert parse_policy(text) == Policy(10080, 90 << 30, 90)


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        ("64Ki", 64 << 10),
        ("5Mi", 5 << 20),
        ("1Ti", 1 << 40),
        ("2Pi", 2 << 50),
        ("70k", 70_000),
        ("1M", 10**6),
        ("3G", 3 * 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("123456", 123_456),
        (123_456, 123_456),
        (None, None),
    ],
)
def test_sizes(limit: object, size: int | None) -> None:
    assert parse_policy(json.dumps({"time": 0, "limit": limit})) == Policy(0, size, 90)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"time": 1, "limits": "1Gi"}', "unknown key 'limits'"),
        ('{"limit": "1Gi"}', "time is missing"),
        ('{"time": -1}', "time is -1"),
        ('{"time": true}', "time is True"),
        ('{"time": 1.5}', "time is 1.5"),
        ('{"time": "7d"}', "time is '7d'"),
        ('{"time": 99999999999}', "time is 99999999999"),
        ('{"time": 1, "limit": 0}', "limit is 0"),
        ('{"time": 1, "limit": -5}', "limit is -5"),
        ('{"time": 1, "limit": "1"}', "limit is '1'"),
        ('{"time": 1, "limit": "ten"}', "limit is 'ten'"),
        ('{"time": 1, "limit": "9999Pi"}', "limit is"),
        ('{"time": 1, "disk": 0}', "disk is 0"),
        ('{"time": 1, "disk": 101}', "disk is 101"),
        ('{"time": 1, "disk": null}', "disk is None"),
        ("[" * 100_000, "not"),
    ],
)
def test_what_is_refused_names_the_key_and_what_is_allowed(text: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=reason):
        parse_policy(text)


@given(
    st.text() | st.recursive(st.integers() | st.text() | st.booleans(), st.lists).map(json.dumps)
)
def test_whatever_it_holds_it_is_a_policy_or_refused(text: str) -> None:
    try:
        policy = parse_policy(text)
    except PolicyError:
        return
    assert policy.time >= 0
    assert policy.disk >= 1
    assert policy.limit is None or policy.limit >= 64 << 10


def test_topics_override_what_they_set() -> None:
    policy = Policy(10, 1 << 30)
    plain = rules_of(policy, {})
    assert (plain.time_ms, plain.size, plain.counts, plain.for_ever) == (600_000, None, True, False)
    own = rules_of(policy, {"retention.ms": "5", "retention.bytes": "7"})
    assert (own.time_ms, own.size, own.counts, own.for_ever) == (5, 7, False, False)
    kept = rules_of(policy, {"retention.ms": "-1", "retention.bytes": "-1"})
    assert (kept.time_ms, kept.size, kept.counts, kept.for_ever) == (None, None, False, True)
    assert rules_of(Policy(0), {}).time_ms is None
    assert rules_of(None, {"retention.ms": "5"}).time_ms == 5


def test_who_says_for_how_long_records_are_kept() -> None:
    policy = Policy(10)
    assert retention_from(policy, {}) == "policy"
    assert retention_from(policy, {"retention.ms": "5"}) == "topic"
    assert retention_from(policy, {"cleanup.policy": "compact"}) == "topic"
    assert retention_from(Policy(0), {}) == retention_from(None, {}) == "none"


def test_holds_have_a_bound() -> None:
    assert hold_of({}) is None
    assert hold_of({"hold_groups": "a,b"}) == HoldRule(("a", "b"), 7 * DAY_MS, None)
    assert hold_of({"hold_groups": "a", "hold_max_bytes": "9"}) == HoldRule(("a",), None, 9)
