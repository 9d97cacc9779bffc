"""Changes by Kafka clients in the audit log, also those that come to nothing in whatever way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.kafka.apis import topic_admin
from samelog.kafka.apis.topic_admin import CreateTopicsResponse, CreateTopicsResponseTopic
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.codec.errors import ApiError
from samelog.kafka.registry import audited

CALL: Any = SimpleNamespace(
    is_long=False, client=SimpleNamespace(identity="samelog://client/a", host="::1")
)
REFUSED = ApiError(ErrorCode.cluster_authorization_failed, "not you")


def now(answer: Any) -> Callable[[Any, Any], Any]:
    return lambda call, request: answer


def raising(call: Any, request: Any) -> Any:
    raise REFUSED


async def raising_later(call: Any, request: Any) -> Any:
    raise REFUSED


async def failing_future(call: Any, request: Any) -> Any:
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    outcome.set_exception(REFUSED)
    return outcome


async def outcome_of(handle: Callable[[Any, Any], Any]) -> Any:
    outcome = audited(replace(topic_admin.create_topics, handle=handle)).handle(
        CALL, {"topics": []}
    )
    while asyncio.iscoroutine(outcome) or isinstance(outcome, asyncio.Future):
        outcome = await outcome
    return outcome


@pytest.mark.parametrize("handle", [raising, raising_later, failing_future])
def test_what_fails_is_told_as_before_and_written_down(
    handle: Callable[[Any, Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "samelog.audit"), pytest.raises(ApiError):
        asyncio.run(outcome_of(handle))
    [line] = caplog.records
    assert "failed: " in line.getMessage()
    assert "not you" in line.getMessage()


def test_errors_in_an_answer_are_written_down_once(caplog: pytest.LogCaptureFixture) -> None:
    denied = CreateTopicsResponseTopic("t", ErrorCode.topic_authorization_failed)
    with caplog.at_level(logging.INFO, "samelog.audit"):
        given = CreateTopicsResponse([denied, denied])
        assert asyncio.run(outcome_of(now(given))) is given
        asyncio.run(outcome_of(now(CreateTopicsResponse([CreateTopicsResponseTopic("t")]))))
    failed, done = (record.getMessage() for record in caplog.records)
    assert failed.count("topic_authorization_failed") == 1
    assert 'result="done"' in done
