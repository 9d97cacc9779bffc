"""Versions of topics' schemas in the replicated state (docs/typed.md, T4, T5, T14)."""

from __future__ import annotations

import json

import pytest

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.instructions import Merge, Range
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import schemas
from samelog.sequencer.state.tables.resets import HardReset, SoftReset
from samelog.sequencer.state.tables.schemas import SchemaVersion, SetSchemaCommand
from samelog.sequencer.state.tables.sessions import OpenInputCommand, OpenRunCommand
from samelog.sequencer.state.tables.topics import (
    AddPartitions,
    AlterTopicCommand,
    CreateTopicCommand,
    DeleteTopicCommand,
)
from samelog.typed.schema import parse_schema
from samelog.typed.versions import VERSIONS_MOST


def text(*columns: str) -> str:
    """Columns as `name type`; not nullable with `!` behind."""
    found = []
    for column in columns:
        name, kind = column.split(" ", 1)
        nullable = not kind.endswith("!")
        found.append({"name": name, "type": kind.rstrip("!"), "nullable": nullable})
    return json.dumps({"format": "json", "columns": found})


A, AB, ABC = text("a int64"), text("a int64", "b string"), text("a int64", "b string", "c bool")


@pytest.fixture
def machine() -> StateMachine:
    machine = StateMachine()
    machine.apply(CreateTopicCommand("t1", "ticks", 2, {}, 1))
    machine.apply(CreateTopicCommand("t2", "other", 1, {}, 1))
    machine.apply(OpenRunCommand("ewr", "d1", "i", 0, "run", None, None))
    machine.apply(OpenInputCommand("ewr", "t1", 0))
    return machine


def merge(machine: StateMachine, records: int) -> None:
    """Into partition 1."""
    at, offset = (
        machine.state.sessions.inputs[1].byte,
        machine.state.partitions.by_number[1].next_offset,
    )
    part = Range(1, 0, 0, at, at + 10, records, 10, 7)
    assert not isinstance(machine.apply(Merge(1, offset, 3, 1000, False, [part])), Rejection)


def set_schema(machine: StateMachine, follows: int, schema: str, topic: str = "t1") -> str:
    """Why not; empty: it is set."""
    outcome = machine.apply(SetSchemaCommand(topic, follows, schema, 9))
    return outcome.code if isinstance(outcome, Rejection) else ""


def versions(machine: StateMachine, topic: str = "t1") -> list[str]:
    state = machine.state
    return [state.schemas.schema_of(each).text for each in state.topics.by_id[topic].schemas]


def canonical(*schemas: str) -> list[str]:
    return [parse_schema(each).text for each in schemas]


def since(machine: StateMachine, topic: str = "t1") -> list[list[tuple[int, int]]]:
    numbers = machine.state.topics.by_id[topic].partition_numbers
    return [list(machine.state.partitions.by_number[number].schema_since) for number in numbers]


def test_it_survives_encoding() -> None:
    command = SetSchemaCommand("t1", 0, A, 9)
    assert decode_commands(encode_commands([command])) == [command]


def test_versions_follow_each_other_from_each_partitions_next_offset_on(
    machine: StateMachine,
) -> None:
    assert set_schema(machine, 0, A) == ""
    merge(machine, 5)
    assert set_schema(machine, 1, AB) == ""
    assert versions(machine) == canonical(A, AB)
    assert since(machine) == [[(0, 1), (5, 2)], [(0, 2)]]  # no record of the other has version 1
    machine.apply(AddPartitions("t1", 3))
    assert since(machine)[2] == [(0, 2)]
    assert since(machine, "t2") == [[]]
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_a_version_is_set_against_the_one_that_was_seen(machine: StateMachine) -> None:
    assert set_schema(machine, 1, A) == "SCHEMA_MOVED"
    assert set_schema(machine, 0, A) == ""
    assert set_schema(machine, 0, text("a int64", "x bool")) == "SCHEMA_MOVED"
    before = machine.encode()
    assert set_schema(machine, 0, A) == ""  # proposed twice
    assert set_schema(machine, 1, A) == ""  # nothing new
    assert machine.encode() == before
    assert set_schema(machine, 1, AB) == ""
    assert set_schema(machine, 0, A) == "SCHEMA_MOVED"


def test_compatibility_is_judged_as_the_topic_says(machine: StateMachine) -> None:
    needs_b = text("a int64", "b string!")
    set_schema(machine, 0, A)
    before = machine.encode()
    assert set_schema(machine, 1, needs_b) == "INCOMPATIBLE_SCHEMA"
    assert set_schema(machine, 1, '{"format": "json"}') == "INVALID_SCHEMA"
    assert set_schema(machine, 0, A, topic="none") == "UNKNOWN_TOPIC"
    assert machine.encode() == before
    machine.apply(AlterTopicCommand("t1", {"schema.compatibility": "forward"}, []))
    assert set_schema(machine, 1, needs_b) == ""


def test_resets_keep_all_versions_and_records_of_the_new_log_have_the_newest(
    machine: StateMachine,
) -> None:
    set_schema(machine, 0, A)
    merge(machine, 5)
    set_schema(machine, 1, AB)
    machine.apply(SoftReset("r1", 10))
    assert since(machine)[0] == [(0, 1), (5, 2)]
    machine.apply(HardReset("r2", 10, 5))
    assert versions(machine) == canonical(A, AB)
    assert since(machine) == [[(0, 2)], [(0, 2)]]


def test_equal_texts_are_kept_once_and_as_long_as_a_topic_has_them(machine: StateMachine) -> None:
    set_schema(machine, 0, A)
    set_schema(machine, 0, f" {A} ", topic="t2")
    set_schema(machine, 1, AB, topic="t2")
    state = machine.state
    assert len(state.schemas.texts) == 2
    assert state.schemas.size_bytes == sum(len(each) for each in canonical(A, AB))
    machine.apply(DeleteTopicCommand("t2"))
    assert [each.text for each in state.schemas.texts.values()] == canonical(A)
    machine.apply(DeleteTopicCommand("t1"))
    assert (state.schemas.texts, state.schemas.size_bytes) == ({}, 0)


def test_a_text_that_returns_is_a_version_of_its_own(machine: StateMachine) -> None:
    for follows, schema in enumerate([A, AB, A]):
        assert set_schema(machine, follows, schema) == ""
    assert versions(machine) == canonical(A, AB, A)
    assert len(machine.state.schemas.texts) == 2


def test_schemas_are_bounded(machine: StateMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "TEXTS_BYTES_MOST", len(canonical(A)[0]))
    assert set_schema(machine, 0, A) == ""
    assert set_schema(machine, 0, A, topic="t2") == ""
    assert set_schema(machine, 1, AB) == "TOO_MANY_SCHEMAS"
    monkeypatch.undo()
    topic = machine.state.topics.by_id["t1"]
    topic.schemas += [SchemaVersion(topic.schemas[0].fingerprint, 9)] * (VERSIONS_MOST - 1)
    before = machine.encode()
    assert set_schema(machine, VERSIONS_MOST, AB) == "TOO_MANY_SCHEMAS"
    assert machine.encode() == before
