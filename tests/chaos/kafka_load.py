"""The load of a Kafka client: an idempotent producer that waits for all replicas.

Invariant: an acknowledgement is counted when the client has told of it, and in the order of the
records; anything else that it tells ends the process with an error.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.chaos.load import NOT_MERGED_CODE, TOPIC, Values
from tests.chaos.notes import Kind, NoteBook

OPTIONS = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "log_level": 3}


class KafkaLoad:
    """One life of a producer."""

    def __init__(self, bootstrap: str, values: Values, notes: NoteBook) -> None:
        from confluent_kafka import Producer

        self._values, self._notes = values, notes
        self._producer = Producer({"bootstrap.servers": bootstrap, **OPTIONS})
        self._acknowledged = self._noted = 0
        self._errors: list[str] = []

    def append(self, count: int) -> None:
        """Hand so many records to the client."""
        for value in self._values.take(count):
            self._producer.produce(TOPIC, value, partition=0, on_delivery=self._told)
        self._notes.write(Kind.APPENDED, self._values.count)

    def _told(self, error: Any, _: Any) -> None:
        if error is None and not self._errors:
            self._acknowledged += 1
        elif error is not None:
            self._errors.append(str(error))

    def look(self) -> None:
        """Note what was acknowledged since the last time."""
        self._producer.poll(0)
        if self._acknowledged > self._noted:
            self._noted = self._acknowledged
            self._notes.write(Kind.ACKNOWLEDGED, self._noted)

    def end(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged: the exit code."""
        left = self._producer.flush(timeout_s)
        self.look()
        if left or self._errors:
            sys.stderr.write(f"{left} records are not delivered; {self._errors[:3]}\n")
            return NOT_MERGED_CODE
        self._notes.write(Kind.ENDED, self._values.count)
        return 0
