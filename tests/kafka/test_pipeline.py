"""One connection's order, bounds and deadlines."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.kafka.clients.pipeline import NumberedRequest, PipelineLimits, RequestPipeline
from samelog.kafka.codec.errors import MalformedRequest

LIMITS = PipelineLimits(
    request_bytes=100, requests=3, waiting_bytes=150, frame_s=5, idle_s=60, stalled_s=7
)


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def start_all(pipeline: RequestPipeline) -> list[NumberedRequest]:
    found = []
    while (request := pipeline.next_request()) is not None:
        found.append(request)
    return found


def output(pipeline: RequestPipeline, now: float = 0) -> bytes:
    return b"".join(bytes(part) for part in pipeline.take_output(now))


@given(order=st.permutations(range(3)), silent=st.sets(st.integers(0, 2)))
def test_answers_leave_in_the_order_of_their_requests(order: list[int], silent: set[int]) -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    pipeline.received(framed(b"a", b"b", b"c"), 0)
    requests = start_all(pipeline)
    written = b""
    for index in order:
        answer = None if index in silent else [bytes([index]), b"!"]
        pipeline.answered(requests[index].number, answer)  # type: ignore[arg-type]
        written += output(pipeline)
    assert written == framed(*(bytes([i]) + b"!" for i in range(3) if i not in silent))


def test_nothing_leaves_behind_a_parked_request() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    pipeline.received(framed(b"fetch", b"metadata"), 0)
    fetch, metadata = start_all(pipeline)
    pipeline.answered(metadata.number, [b"m"])
    assert output(pipeline) == b""
    pipeline.answered(fetch.number, [b"f"])
    assert output(pipeline) == framed(b"f", b"m")


def test_only_so_many_requests_are_under_way() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    pipeline.received(framed(*(b"x" for _ in range(9))), 0)
    assert not pipeline.wants_input
    started = start_all(pipeline)
    assert len(started) == 3
    pipeline.answered(started[0].number, [b""])
    assert len(start_all(pipeline)) == 1


def test_only_so_many_bytes_wait() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    pipeline.received(framed(b"x" * 90), 0)
    assert pipeline.wants_input
    pipeline.received(framed(b"x" * 90), 0)
    assert not pipeline.wants_input
    for request in start_all(pipeline):
        pipeline.answered(request.number, None)
    assert pipeline.wants_input


def test_a_request_that_drips_is_overdue_but_not_one_behind_another() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    data = framed(b"x" * 20)
    for second in range(5):
        pipeline.received(data[second : second + 1], float(second))
        assert pipeline.overdue(second) is None
    assert "not ended in 5 s" in str(pipeline.overdue(5.1))
    pipeline.received(data[5:] + data[:3], 5.2)
    assert pipeline.overdue(9) is None
    assert pipeline.overdue(10.3) is not None


def test_an_idle_client_is_overdue_but_not_one_that_waits_for_an_answer() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    assert pipeline.overdue(59) is None
    assert "nothing was asked" in str(pipeline.overdue(61))
    pipeline.received(framed(b"x"), 61)
    (request,) = start_all(pipeline)
    assert pipeline.overdue(1000) is None
    pipeline.answered(request.number, [b"y"])
    output(pipeline, 1000)
    assert pipeline.overdue(1059) is None


def test_a_client_that_does_not_read_gets_nothing_more_and_is_overdue() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    pipeline.writing_paused(1)
    pipeline.received(framed(b"x"), 1)
    assert pipeline.next_request() is None
    assert "not read" in str(pipeline.overdue(9))
    pipeline.writing_resumed()
    assert pipeline.next_request() is not None


def test_whatever_comes_is_requests_or_refused() -> None:
    rng = random.Random(7)
    for _ in range(300):
        pipeline = RequestPipeline(LIMITS, 0)
        try:
            pipeline.received(rng.randbytes(rng.randrange(300)), 0)
        except MalformedRequest:
            continue
        start_all(pipeline)


def test_a_frame_that_is_too_long_is_refused() -> None:
    pipeline = RequestPipeline(LIMITS, 0)
    with pytest.raises(MalformedRequest):
        pipeline.received(framed(b"x" * 101), 0)
