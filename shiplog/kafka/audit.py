"""Kafka clients' changes in the audit log.

Invariant: what a client is answered does not depend on it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from shiplog.kafka.any_broker import AnyBroker
from shiplog.kafka.api import Api, CallTo, Later, Now, Outcome
from shiplog.runtime.audit import note_change

BrokerT = TypeVar("BrokerT", bound=AnyBroker)


def audited(api: Api[BrokerT]) -> Api[BrokerT]:
    """The same, with a line for each request that is not a question only."""

    def handle(call: CallTo[BrokerT], request: Any) -> Outcome:
        outcome = api.handle(call, request)
        if getattr(request, "validate_only", False):
            return outcome

        def note(answer: Any) -> None:
            note_change(
                who=call.client.identity,
                peer=call.client.host,
                what=api.name,
                asked=request,
                error="; ".join(dict.fromkeys(_errors(answer))) or None,
            )

        return _when_done(outcome, note)

    return replace(api, handle=handle)


def _when_done(outcome: Outcome, note: Any) -> Outcome:
    if isinstance(outcome, asyncio.Future):
        outcome.add_done_callback(lambda done: done.cancelled() or note(done.result()))
        return outcome
    if not inspect.iscoroutine(outcome):
        note(outcome)
        return outcome

    async def wait(running: Coroutine[Any, Any, Now | Later]) -> Now | Later:
        return _when_done(await running, note)

    return wait(outcome)


def _errors(answer: Any) -> Iterator[str]:
    """Every error in an answer, as text."""
    if isinstance(answer, Mapping):
        code = ErrorCode(answer.get("error_code", ErrorCode.none))
        if code is not ErrorCode.none:
            yield str(answer.get("error_message") or code.name)
        for value in answer.values():
            yield from _errors(value)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from _errors(value)
