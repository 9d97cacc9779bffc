"""The process that checks records: tasks on standard input, verdicts on standard output, each a
MessagePack value behind its length.

It is a process of its own, so that a node's event loop never waits for values that take long to
decode, and neither what they unpack to nor a crash of a decoder is the node's. It ends with its
input.

Invariant: every task is answered, in order, unless the process ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from struct import Struct
from typing import BinaryIO

import msgspec

from samelog.format.batch import read_header
from samelog.typed.judging import PLAIN, BatchMisfits, Terms, judge_batch
from samelog.typed.misfits import beginning
from samelog.typed.schema import Schema, parse_schema

LENGTH = Struct(">I")
TROUBLES = (ImportError, MemoryError, OSError)
"""Of this process: they say nothing of a batch."""
TOPICS_KEPT = 256
"""Schemas that are known on both sides; with one more, both forget all."""


class JudgeTask(msgspec.Struct, frozen=True, array_like=True):
    """Batches of one topic. `texts`: the versions of its schema, from version 1 on; None: as of the
    last task that had them, of the same `key`.
    """

    key: str
    texts: list[str] | None
    batches: list[bytes]
    terms: Terms = PLAIN


class JudgeAnswer(msgspec.Struct, frozen=True, array_like=True):
    """What does not fit, by batch; or why nothing can be said of them."""

    misfits: list[BatchMisfits] = []
    problem: str = ""
    is_for_long: bool = False
    """Something is not installed."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JudgeTask)


class JudgeWorker:
    """Does one task after the other."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, Schema]] = {}

    def do(self, task: JudgeTask) -> JudgeAnswer:
        """Judge some batches."""
        if task.texts is not None:
            if len(self._known) >= TOPICS_KEPT:
                self._known.clear()
            self._known[task.key] = {
                version: parse_schema(text) for version, text in enumerate(task.texts, 1)
            }
        schemas = self._known[task.key]
        try:
            return JudgeAnswer([_judged(schemas, batch, task.terms) for batch in task.batches])
        except TROUBLES as error:
            lacks = isinstance(error, ImportError)
            return JudgeAnswer([], str(error) or type(error).__name__, lacks)


def _judged(schemas: Mapping[int, Schema], batch: bytes, terms: Terms) -> BatchMisfits:
    """What does not fit: all of a batch that cannot be read, whatever the reason. Raises one of
    TROUBLES.
    """
    try:
        return judge_batch(schemas, len(schemas), batch, terms)
    except TROUBLES:
        raise
    except Exception as error:  # noqa: BLE001 - the seam: nothing is taken that is not checked
        records = read_header(batch).records
        why = 0, "", "a batch that can be read", beginning(str(error).encode())
        return BatchMisfits([*range(records)], [why])


def frame(value: JudgeTask | JudgeAnswer) -> bytes:
    """As it goes through a pipe."""
    data = _encoder.encode(value)
    return LENGTH.pack(len(data)) + data


def _serve(tasks: BinaryIO, answers: BinaryIO) -> None:
    worker = JudgeWorker()
    while len(head := tasks.read(LENGTH.size)) == LENGTH.size:
        data = tasks.read(LENGTH.unpack(head)[0])
        answers.write(frame(worker.do(_decoder.decode(data))))
        answers.flush()


def main() -> None:
    """Until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the node, which ends this one
    try:
        _serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    main()
