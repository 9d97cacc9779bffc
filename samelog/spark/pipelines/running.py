"""Runs a streaming query to its end, tells how far it is, and why it failed in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from samelog.spark.errors import BadOption, PipelineError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

AVAILABLE_NOW = "available-now"
CHECK_S = 0.5
TRACEBACK = "Traceback (most recent call last):\n"
OURS = re.compile(r"^samelog\.(?:\w+\.)+\w+: ")


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """What a query has done since it was started: micro-batches, and rows read."""

    batches: int = 0
    rows: int = 0


def triggered(writer: DataStreamWriter, trigger: str) -> DataStreamWriter:
    """With a trigger: `available-now` (what there is, then end) or an interval as "30 seconds".
    Raises BadOption.
    """
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    if not re.fullmatch(r"\d+ \w+", trigger.strip()):
        raise BadOption(f'trigger: {trigger!r} is neither {AVAILABLE_NOW} nor as "30 seconds"')
    return writer.trigger(processingTime=trigger)


def wait_for_end(
    query: StreamingQuery, on_progress: Callable[[QueryProgress], None] = lambda progress: None
) -> QueryProgress:
    """Wait until a query ends, or stop it when interrupted. Raises PipelineError if it failed."""
    seen: dict[int, int] = {}
    try:
        with spark_errors():
            while not query.awaitTermination(CHECK_S):  # type: ignore[arg-type]
                _report_progress(query, seen, on_progress)
    except KeyboardInterrupt:
        pass
    finally:
        query.stop()
    return _report_progress(query, seen, on_progress)


def _report_progress(
    query: StreamingQuery, seen: dict[int, int], on_progress: Callable[[QueryProgress], None]
) -> QueryProgress:
    seen.update((each.batchId, each.numInputRows) for each in query.recentProgress)
    found = QueryProgress(len(seen), sum(seen.values()))
    on_progress(found)
    return found


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise what Spark raises as PipelineError, with the reason alone."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(reason(error)) from error


def reason(error: Exception) -> str:
    """Why Spark failed: what the Python code raised that it quotes, or what it says itself."""
    text = str(error)
    _, is_python, quoted = text.rpartition(TRACEBACK)
    if is_python:
        raised = next((line for line in quoted.splitlines() if line and not line[0].isspace()), "")
        return OURS.sub("", raised)
    return f"Spark: {next((line for line in text.splitlines() if line.strip()), repr(error))}"
