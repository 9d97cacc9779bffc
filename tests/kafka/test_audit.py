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
from samelog.runtime import slices
from samelog.runtime.audit import UNKNOWN
from tests.kafka.test_turns import BOUND, Turns
from tests.sequencer.cluster import until

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


def test_the_line_of_a_long_request_takes_no_long_turn_though_its_client_closes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    turns, asked = Turns(), {"topics": [{"name": f"n{number}"} for number in range(5_000)]}

    async def never(call: Any, request: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        monkeypatch.setattr(slices.slices(), "now", turns.now)
        call: Any = SimpleNamespace(is_long=True, client=CALL.client)
        handle: Any = audited(replace(topic_admin.create_topics, handle=never)).handle
        running: asyncio.Task[Any] = asyncio.ensure_future(handle(call, asked))
        await asyncio.sleep(0)
        with turns:
            running.cancel()
            await until(lambda: bool(caplog.records), "a line")

    with caplog.at_level(logging.INFO, "samelog.audit"):
        asyncio.run(main())
    assert UNKNOWN in caplog.records[0].getMessage()
    assert turns.most <= BOUND
